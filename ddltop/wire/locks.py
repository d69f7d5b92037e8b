"""A lock file tells who lives: the kernel drops an flock when its holder dies, however it dies."""

import fcntl
import os
import time
from pathlib import Path

_NUM_TRIES = 3


def hold_lock(path: Path) -> int | None:
    """Take the lock for the life of this process and return its descriptor; None when another process has it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    for attempt in range(_NUM_TRIES):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            # `is_locked` of a neighbour holds it for a moment: that is no owner.
            time.sleep(0.02 * (attempt + 1))
        else:
            return descriptor
    os.close(descriptor)
    return None


def is_locked(path: Path) -> bool:
    """Tell whether a living process holds the lock."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False

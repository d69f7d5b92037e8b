"""The CURVE keys of one run, in a file that only its owner may read."""

import os
import stat
from pathlib import Path

import msgspec

from ddltop.errors import UsageError


class Keys(msgspec.Struct, frozen=True, kw_only=True):
    """Z85 texts of 40 characters. Clients need all but `server_secret`; one user's processes share the file."""

    server_public: str
    server_secret: str
    client_public: str
    client_secret: str


def write_keys(path: Path, keys: Keys) -> None:
    """Create the file with mode 0600 before a byte is in it; raise FileExistsError when there is one."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(msgspec.json.encode(keys))


def read_keys(path: Path) -> Keys:
    """Read the keys; raise UsageError when the file is missing, malformed or readable by others."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError as error:
        raise UsageError(
            f"the key file {path} cannot be read: {error.strerror}", "copy it from the node of the collector"
        ) from error
    with os.fdopen(descriptor, "rb") as file:
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        content = file.read(65536)
    if mode & 0o077:
        raise UsageError(f"the key file {path} has mode {mode:04o}; others may read it", f"chmod 600 {path}")
    try:
        return msgspec.json.decode(content, type=Keys)
    except msgspec.DecodeError as error:
        raise UsageError(
            f"the key file {path} is malformed: {error}", "copy it again from the node of the collector"
        ) from error

"""The probe's life in a training process: armed at import, started by the first DDP model, ended at exit."""

import atexit
import os
import secrets
import sys
import threading
from pathlib import Path
from typing import Any

from ddltop.wire.environment import ENV_RUN_DIR

from . import stamps
from .assembly import StepAssembler

_sender: Any = None
_is_disabled = False


def on_ddp_built(ddp: Any) -> None:
    """Start measuring when the first DDP model of this process exists; never raises."""
    global _sender
    if _is_disabled or not os.environ.get(ENV_RUN_DIR):
        return
    try:
        from . import comm_hook

        bucket_timing = comm_hook.install(ddp)
        if _sender is None:
            _sender = _start(ddp, bucket_timing)
    except Exception as error:  # noqa: BLE001
        disable()
        print(f"ddltop: this rank is not measured: {error!r}", file=sys.stderr)  # noqa: T201


def _start(ddp: Any, bucket_timing: str) -> Any:
    from .facts import describe_rank, is_host_clock
    from .sender import Sender

    run_dir = Path(os.environ[ENV_RUN_DIR])
    hello = describe_rank(ddp, run_id=run_dir.name, epoch=secrets.token_hex(8), bucket_timing=bucket_timing)
    assembler = StepAssembler(is_host_clock=is_host_clock(ddp), has_peers=hello.world_size > 1)
    sender = Sender(stamps.stream, assembler, hello, run_dir)
    os.register_at_fork(after_in_child=disable)
    atexit.register(stop)
    stamps.stream.training_thread = threading.get_ident()
    sender.start()
    return sender


def stop() -> None:
    """Send the last steps and let go of the communication threads; at most 2.5 s."""
    global _sender
    sender, _sender = _sender, None
    stamps.stream.training_thread = None
    if sender is None:
        return
    try:
        sender.stop()
        from .comm_hook import drain

        drain()
    except Exception:  # noqa: BLE001
        disable()


def disable() -> None:
    """Make every stamp a no-op for good: a forked child, or a probe that failed."""
    global _is_disabled, _sender
    _is_disabled = True
    _sender = None
    stamps.stream.training_thread = None

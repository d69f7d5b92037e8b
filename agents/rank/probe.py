"""The probe's life in a training process: armed at import, started by the first model that trains, ended at exit."""

import atexit
import os
import secrets
import sys
import threading
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

from ddltop.wire.environment import ENV_RUN_DIR
from ddltop.wire.messages import RankHello

from .assembly import StepAssembler
from .facts import (
    TrainedModel,
    describe_ddp,
    describe_fsdp1,
    describe_fsdp2,
    describe_optimizer,
    describe_rank,
    describe_script,
    merge_models,
)
from .stream import stream


class _Session:
    """What this process measures now: one rank of one job, from its first trained model on."""

    is_disabled = False
    sender: Any = None
    hello: RankHello | None = None
    models: ClassVar[WeakKeyDictionary[Any, TrainedModel]] = WeakKeyDictionary()


def _guarded(start: Callable[..., None]) -> Callable[..., None]:
    """Never let what starts the probe reach the training: one line, then silence."""

    @wraps(start)
    def call(*args: Any) -> None:
        if _Session.is_disabled or not os.environ.get(ENV_RUN_DIR):
            return
        try:
            start(*args)
        except Exception as error:  # noqa: BLE001
            disable()
            print(f"ddltop: this rank is not measured: {error!r}", file=sys.stderr)  # noqa: T201

    return call


@_guarded
def on_ddp_built(ddp: Any) -> None:
    """Measure a DistributedDataParallel instance."""
    if ddp in _Session.models:
        return
    from . import comm_hook

    _train(ddp, describe_ddp(ddp, comm_hook.install(ddp)))


@_guarded
def on_fsdp1_forward(module: Any) -> None:
    """Measure the outermost FullyShardedDataParallel from its first forward on."""
    if module not in _Session.models:
        _train(module, describe_fsdp1(module))


@_guarded
def on_fsdp2_forward(module: Any) -> None:
    """Measure the root of a `fully_shard` model from its first forward on."""
    if module not in _Session.models:
        _train(module, describe_fsdp2(module))


@_guarded
def on_optimizer_step(optimizer: Any) -> None:
    """Measure a process that trains without any wrapped model, from its first optimizer step on."""
    if not _Session.models:
        _train(optimizer, describe_optimizer(optimizer))


@_guarded
def on_manual_step() -> None:
    """Measure a loop that names its phases and steps itself."""
    if _Session.sender is None:
        _open(describe_script())


def _train(key: Any, model: TrainedModel) -> None:
    """Note one more trained model; a wrapped one takes the place of what an optimizer alone had told."""
    held = tuple(_Session.models.values())
    if any(other.strategy != model.strategy for other in held):
        _Session.models.clear()
    _Session.models[key] = model
    _open(merge_models(_Session.models.values()))


def _open(model: TrainedModel) -> None:
    """Start the session, or go on with it under changed facts; another place in the job is another session."""
    run_dir = Path(os.environ[ENV_RUN_DIR])
    held = _Session.hello
    hello = describe_rank(model, run_id=run_dir.name, epoch=held.epoch if held else secrets.token_hex(8))
    if held is None:
        _Session.hello = hello
        _Session.sender = _start(hello, run_dir)
        return
    if _identity(held) == _identity(hello):
        _Session.sender.describe(hello)
    else:
        hello = describe_rank(model, run_id=run_dir.name, epoch=secrets.token_hex(8))
        _Session.sender.restart(hello, _assembler(hello))
        stream.training_thread = threading.get_ident()
    _Session.hello = hello


def _identity(hello: RankHello) -> tuple[object, ...]:
    return hello.rank, hello.world_size, hello.strategy, hello.device


def _start(hello: RankHello, run_dir: Path) -> Any:
    from .sender import Sender

    sender = Sender(stream, _assembler(hello), hello, run_dir)
    os.register_at_fork(after_in_child=disable)
    atexit.register(stop)
    if "multiprocessing.util" in sys.modules:
        # A forked worker of multiprocessing leaves by os._exit, past atexit.
        sys.modules["multiprocessing.util"].Finalize(None, stop, exitpriority=10)
    stream.training_thread = threading.get_ident()
    sender.start()
    return sender


def _assembler(hello: RankHello) -> StepAssembler:
    if hello.device.startswith("cuda") and stream.clock is None:
        from .device_clock import start_clock

        start_clock(hello.device)
    return StepAssembler(
        is_host_clock=hello.device == "cpu",
        has_peers=hello.world_size > 1,
        sees_all_comm=hello.strategy != "none",
        failures=stream.failures,
    )


def stop() -> None:
    """Send the last steps and let go of the communication threads; at most 2.5 s."""
    sender, _Session.sender = _Session.sender, None
    stream.training_thread = None
    if sender is None:
        return
    try:
        if stream.clock is not None:
            stream.clock.finish()
        sender.stop()
        from .pending import pending

        pending.drain()
    except Exception:  # noqa: BLE001
        disable()


def disable() -> None:
    """Make every stamp a no-op for good: a forked child, or a probe that failed."""
    _Session.is_disabled = True
    _Session.sender = None
    stream.training_thread = None

"""Time each DDP bucket's all-reduce by a communication hook that does exactly what DDP does without one.

A Python hook costs about 42 us per bucket and one pass over the gradients (torch 2.13, CPU), so it is
installed only where the result stays bit-equal: see `reason_against`. Imported after torch.
"""

import os
from collections.abc import Callable
from functools import wraps
from itertools import count
from time import perf_counter_ns, sleep
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist

from ddltop.wire.environment import ENV_BUCKETS

from .stamps import BucketStamp, stream

Hook = Callable[[Any, Any], torch.futures.Future[torch.Tensor]]

# gloo's threads may still hold a Python callback when the interpreter ends, which aborts it (exit -6);
# waiting for them, then 20 ms for the last reference, removed it in 6 of 6 forced cases.
_DRAIN_LIMIT_S = 2.0
_DRAIN_GRACE_S = 0.02


class HookState:
    """What the hook of one DDP instance needs; `inner` is the user's own hook, called in our place."""

    def __init__(self, process_group: dist.ProcessGroup) -> None:
        self.process_group = process_group
        self.inverse_world_size = 1.0 / process_group.size()
        self.inner: tuple[Any, Hook] | None = None


# Buckets on the wire, by a number of their own. Adding to and discarding from a set are atomic, counting is not:
# gloo's two threads would lose counts now and then, and the exit would wait for callbacks that have long been.
_numbers = count()
_pending: set[int] = set()


def time_bucket(state: HookState, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """All-reduce one bucket (mean), or let the user's hook do it, and note when it was ready and when it ended."""
    stamp: BucketStamp | None = None
    entered_ns = perf_counter_ns()
    try:
        stamp = BucketStamp(bucket.index(), _num_bytes(bucket.buffer()), entered_ns)
        stream.record_bucket(stamp)
    except Exception:  # noqa: BLE001
        stream.count_error()
    stream.cost_ns += perf_counter_ns() - entered_ns
    future = _reduce(state, bucket)
    number = next(_numbers)
    _pending.add(number)

    def finish(done: torch.futures.Future[Any]) -> torch.Tensor:
        if stamp is not None:
            stamp.end_ns = perf_counter_ns()
        _pending.discard(number)
        value = done.value()
        return value if isinstance(value, torch.Tensor) else value[0]

    return future.then(finish)


def _num_bytes(tensor: torch.Tensor) -> int:
    return int(tensor.numel()) * int(tensor.element_size())


def _reduce(state: HookState, bucket: dist.GradBucket) -> torch.futures.Future[Any]:
    if state.inner is not None:
        inner_state, hook = state.inner
        return hook(inner_state, bucket)
    # A multiplication, as DDP itself does: dividing differs in the last bit for 3 ranks.
    buffer = bucket.buffer().mul_(state.inverse_world_size)
    work = dist.all_reduce(buffer, group=state.process_group, async_op=True)
    return work.get_future()


def install(ddp: Any) -> str:
    """Install the hook on a DDP instance; return "on", or why not."""
    reason = reason_against(ddp)
    if reason:
        return reason
    state = HookState(ddp.process_group)
    ddp.register_comm_hook(state, time_bucket)
    _states[ddp] = state
    return "on"


# Beside the instances, not on them: nothing of ours may end up in a pickled model.
_states: WeakKeyDictionary[Any, HookState] = WeakKeyDictionary()


def reason_against(ddp: Any) -> str:
    """Say why buckets of this instance are not timed; empty when they can be, bit-equal."""
    world_size = ddp.process_group.size()
    if world_size == 1:
        return "one worker exchanges no gradients"
    if os.environ.get(ENV_BUCKETS) == "off":
        return "switched off by DDLTOP_BUCKETS=off"
    if world_size & (world_size - 1) and getattr(ddp, "gradient_as_bucket_view", False):
        return "gradient_as_bucket_view with a world size that is no power of two: a hook would change the last bit"
    for flag in ("mixed_precision", "_delay_all_reduce_all_params", "_delay_all_reduce_params"):
        if getattr(ddp, flag, None):
            return f"DDP uses {flag.strip('_')}"
    if getattr(ddp, "_comm_hooks", None):
        return "a communication hook was registered before ddltop"
    if os.environ.get("CUDA_DEVICE_MAX_CONNECTIONS") == "1":
        return "CUDA_DEVICE_MAX_CONNECTIONS=1: timing would serialise communication and computation"
    return ""


def patch_registration(ddp_class: type) -> None:
    """Let a user register a hook after ours: it then runs inside ours, as DDP takes only one."""
    original_register = ddp_class.register_comm_hook  # type: ignore[attr-defined]
    original_builtin = ddp_class._register_builtin_comm_hook  # type: ignore[attr-defined]
    if hasattr(original_register, "_ddltop_original"):
        return

    @wraps(original_register)
    def register_comm_hook(self: Any, state: object, hook: Hook) -> None:
        ours = _states.get(self)
        if ours is None or ours.inner is not None:
            original_register(self, state, hook)
        else:
            self._check_comm_hook(hook)
            ours.inner = (state, hook)

    @wraps(original_builtin)
    def register_builtin(self: Any, kind: Any) -> None:
        ours = _states.get(self)
        if ours is None or ours.inner is not None:
            original_builtin(self, kind)
        else:
            ours.inner = (ours.process_group, _builtin_hook(kind))

    register_comm_hook._ddltop_original = original_register  # type: ignore[attr-defined]
    ddp_class.register_comm_hook = register_comm_hook  # type: ignore[attr-defined]
    ddp_class._register_builtin_comm_hook = register_builtin  # type: ignore[attr-defined]


def _builtin_hook(kind: Any) -> Hook:
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    is_fp16 = kind == dist.BuiltinCommHookType.FP16_COMPRESS
    hook: Hook = default_hooks.fp16_compress_hook if is_fp16 else default_hooks.allreduce_hook
    return hook


def drain() -> None:
    """Wait until no callback of ours is left on a communication thread, at most 2 s."""
    if next(_numbers) == 0:
        return
    deadline_ns = perf_counter_ns() + int(_DRAIN_LIMIT_S * 1e9)
    while _pending and perf_counter_ns() < deadline_ns:
        sleep(0.001)
    sleep(_DRAIN_GRACE_S)

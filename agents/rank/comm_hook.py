"""Time each DDP bucket's all-reduce by a communication hook that does exactly what DDP does without one.

A Python hook costs about 42 us per bucket and one pass over the gradients (torch 2.13, CPU), so it is
installed only where the result stays bit-equal: see `reason_against`. Imported after torch.
"""

import os
from collections.abc import Callable
from functools import wraps
from time import perf_counter_ns
from typing import Any
from weakref import WeakKeyDictionary, ref

import torch
import torch.distributed as dist

from ddltop.wire.environment import ENV_BUCKETS

from .joining import present_ranks
from .pending import pending
from .stamps import is_patched, mark_patched
from .stream import BucketStamp, fenced, stream

Hook = Callable[[Any, Any], torch.futures.Future[torch.Tensor]]


class HookState:
    """What the hook of one DDP instance needs; `inner` is the user's own hook, called in our place."""

    def __init__(self, ddp: Any) -> None:
        self.process_group: dist.ProcessGroup = ddp.process_group
        self.inverse_world_size = 1.0 / self.process_group.size()
        self.inner: tuple[Any, Hook] | None = None
        self._ddp = ref(ddp)

    @property
    def factor(self) -> float:
        """Give what the sum of gradients is multiplied by: 1 / ranks, under join() perhaps 1 / ranks still there."""
        ddp = self._ddp()
        num_present = present_ranks(ddp) if ddp is not None else None
        return self.inverse_world_size if num_present is None else 1.0 / num_present


def time_bucket(state: HookState, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """All-reduce one bucket (mean), or let the user's hook do it, and note when it was ready and when it ended."""
    stamp = _open_bucket(bucket)
    future = _reduce(state, bucket)
    if stamp is None:
        return future.then(_value)
    entered_ns = perf_counter_ns()
    number = pending.add()

    def finish(done: torch.futures.Future[Any]) -> torch.Tensor:
        _close_bucket(stamp)
        pending.discard(number)
        return _value(done)

    chained = future.then(finish)
    stream.cost_ns += perf_counter_ns() - entered_ns
    return chained


@fenced("buckets")
def _open_bucket(bucket: dist.GradBucket) -> BucketStamp | None:
    if not stream.is_detailed or stream.training_thread is None:
        return None
    entered_ns = perf_counter_ns()
    buffer = bucket.buffer()
    nbytes = int(buffer.numel()) * int(buffer.element_size())
    stamp = BucketStamp(bucket.index(), nbytes, entered_ns, str(buffer.dtype).removeprefix("torch."))
    stream.record_bucket(stamp)
    stream.cost_ns += perf_counter_ns() - entered_ns
    return stamp


@fenced("buckets")
def _close_bucket(stamp: BucketStamp) -> None:
    if stream.clock is not None and stamp.ready_mark is not None:
        # Runs inline on a stream that has waited for this all-reduce alone (torch/csrc/distributed/c10d, NCCL).
        stamp.end_mark = stream.clock.mark()
    stamp.end_ns = perf_counter_ns()


def _value(done: torch.futures.Future[Any]) -> torch.Tensor:
    value = done.value()
    return value if isinstance(value, torch.Tensor) else value[0]


def _reduce(state: HookState, bucket: dist.GradBucket) -> torch.futures.Future[Any]:
    if state.inner is not None:
        inner_state, hook = state.inner
        return hook(inner_state, bucket)
    # A multiplication, as DDP itself does: dividing differs in the last bit for 3 ranks.
    buffer = bucket.buffer().mul_(state.factor)
    work = state.process_group.allreduce([buffer], _SUM)
    return work.get_future()


_SUM = dist.AllreduceOptions()


# Beside the instances, not on them: nothing of ours may end up in a pickled model.
_states: WeakKeyDictionary[Any, HookState] = WeakKeyDictionary()


def install(ddp: Any) -> str:
    """Install the hook on a DDP instance; return "on", or why not."""
    reason = reason_against(ddp)
    if reason:
        return reason
    state = HookState(ddp)
    ddp.register_comm_hook(state, time_bucket)
    _states[ddp] = state
    return "on"


def reason_against(ddp: Any) -> str:
    """Say why buckets of this instance are not timed; empty when they can be, bit-equal.

    DDLTOP_BUCKETS=force times them although the last bit may differ; what DDP refuses stays refused.
    """
    world_size = ddp.process_group.size()
    mode = os.environ.get(ENV_BUCKETS, "auto")
    if world_size == 1:
        return "one worker exchanges no gradients"
    if mode == "off":
        return "switched off by --buckets off"
    if getattr(ddp, "_comm_hooks", None):
        return "a communication hook was registered before ddltop"
    for flag in ("mixed_precision", "_delay_all_reduce_all_params", "_delay_all_reduce_params"):
        if getattr(ddp, flag, None):
            return f"DDP uses {flag.strip('_')}"
    if not hasattr(ddp, "_join_config"):
        return "this version of torch does not tell how many ranks take part under join()"
    if mode == "force":
        return ""
    if world_size & (world_size - 1) and getattr(ddp, "gradient_as_bucket_view", False):
        return "gradient_as_bucket_view with a world size that is no power of two: a hook would change the last bit"
    if os.environ.get("CUDA_DEVICE_MAX_CONNECTIONS") == "1":
        return "CUDA_DEVICE_MAX_CONNECTIONS=1: timing would serialise communication and computation"
    if os.environ.get("TORCH_NCCL_BLOCKING_WAIT", "0") not in ("", "0"):
        return "TORCH_NCCL_BLOCKING_WAIT: the hook would wait on the host for every bucket"
    return ""


def patch_registration(ddp_class: type) -> None:
    """Let a user register a hook after ours: it then runs inside ours, as DDP takes only one."""
    original_register = ddp_class.register_comm_hook  # type: ignore[attr-defined]
    original_builtin = ddp_class._register_builtin_comm_hook  # type: ignore[attr-defined]
    if is_patched(original_register):
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

    mark_patched(register_comm_hook, original_register)
    ddp_class.register_comm_hook = register_comm_hook  # type: ignore[attr-defined]
    ddp_class._register_builtin_comm_hook = register_builtin  # type: ignore[attr-defined]


def _builtin_hook(kind: Any) -> Hook:
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    is_fp16 = kind == dist.BuiltinCommHookType.FP16_COMPRESS
    hook: Hook = default_hooks.fp16_compress_hook if is_fp16 else default_hooks.allreduce_hook
    return hook

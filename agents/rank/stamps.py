"""The stamp sites: where a training step is cut into phases. Everything the training thread runs is here.

Patches are on classes and functions, never on instances (an instance hook would be pickled into the user's
checkpoint). torch.compile must not trace this module: a traced hook cost 94-184 ms per iteration for the first
12 iterations (torch 2.13), so `attach` lists it in torch._dynamo.trace_rules. No lock, no queue.Queue (19 of
60 forked children hung on one), no logging, no I/O.
"""

from collections import deque
from collections.abc import Callable
from enum import IntEnum
from functools import wraps
from threading import get_ident
from time import perf_counter_ns
from typing import Any, NamedTuple

# 2**16 stamps hold over 2,000 steps of 12 stamps and 16 buckets: minutes of a stopped sender.
STREAM_LENGTH = 2**16
MAX_ERRORS = 3


class Tag(IntEnum):
    """What a stamp marks."""

    IO_BEGIN = 0  # payload: batches the iterator has given before
    IO_END = 1
    IO_STOP = 2  # the iterator is exhausted
    FORWARD_BEGIN = 3  # payload: ForwardFacts
    FORWARD_END = 4
    BACKWARD_BEGIN = 5
    BACKWARD_COMPUTED = 6  # the engine has run all nodes; DDP has not yet waited for its buckets
    BACKWARD_END = 7
    UPDATE_BEGIN = 8
    UPDATE_END = 9
    SCALER_UPDATE = 10
    BUCKET = 11  # payload: BucketStamp


class ForwardFacts(NamedTuple):
    """How a forward pass was called."""

    is_training: bool
    is_synchronising: bool  # False inside no_sync()
    num_samples: int | None


class BucketStamp:
    """One DDP bucket of one backward: `end_ns` is filled by the communication thread."""

    __slots__ = ("end_ns", "index", "nbytes", "ready_ns")

    def __init__(self, index: int, nbytes: int, ready_ns: int) -> None:
        self.index = index
        self.nbytes = nbytes
        self.ready_ns = ready_ns
        self.end_ns: int | None = None


Stamp = tuple[Tag, int, Any]
"""(tag, perf_counter nanoseconds, payload)."""


class Stream:
    """Stamps of the training thread, oldest dropped when nobody reads them.

    One thread appends, the sender thread pops; deque makes both atomic.
    """

    def __init__(self) -> None:
        self.stamps: deque[Stamp] = deque(maxlen=STREAM_LENGTH)
        self.training_thread: int | None = None  # None: not started, or ended
        self.num_recorded = 0
        self.num_errors = 0
        self.cost_ns = 0
        self.backward_depth = 0
        self.update_depth = 0
        self.updating: int | None = None  # id of the outermost optimizer

    def record(self, tag: Tag, payload: Any = None) -> None:
        """Append one stamp if this is the training thread."""
        now = perf_counter_ns()
        if get_ident() != self.training_thread:
            return
        self.stamps.append((tag, now, payload))
        self.num_recorded += 1
        self.cost_ns += perf_counter_ns() - now

    def record_bucket(self, bucket: BucketStamp) -> None:
        """Append a bucket; the autograd thread calls this while the training thread waits in backward."""
        if self.training_thread is not None:
            self.stamps.append((Tag.BUCKET, bucket.ready_ns, bucket))
            self.num_recorded += 1

    def count_error(self) -> None:
        """Count a failure of our own; after three the probe is silent for good."""
        self.num_errors += 1
        if self.num_errors >= MAX_ERRORS:
            self.training_thread = None


stream = Stream()


def _fenced(stamp: Callable[..., None]) -> Callable[..., None]:
    # The fence of the training process: whatever goes wrong in a stamp stays in it, and is counted.
    @wraps(stamp)
    def call(*args: Any) -> None:
        try:
            stamp(*args)
        except Exception:  # noqa: BLE001
            stream.count_error()

    return call


_record = _fenced(stream.record)


def patch_loader_iterator(iterator_class: type) -> None:
    """Stamp every `next()` of a DataLoader iterator class."""
    original = iterator_class.__next__  # type: ignore[attr-defined]
    if hasattr(original, "_ddltop_original"):
        return

    @wraps(original)
    def timed_next(self: Any) -> Any:
        _record(Tag.IO_BEGIN, getattr(self, "_num_yielded", None))
        try:
            batch = original(self)
        except StopIteration:
            _record(Tag.IO_STOP)
            raise
        _record(Tag.IO_END)
        return batch

    _mark(timed_next, original)
    iterator_class.__next__ = timed_next  # type: ignore[attr-defined]


def patch_ddp_forward(ddp_class: type) -> None:
    """Stamp `DistributedDataParallel.forward`."""
    original = ddp_class.forward  # type: ignore[attr-defined]
    if hasattr(original, "_ddltop_original"):
        return

    @wraps(original)
    def timed_forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        _stamp_forward(self, args, kwargs)
        try:
            return original(self, *args, **kwargs)
        finally:
            _record(Tag.FORWARD_END)

    _mark(timed_forward, original)
    ddp_class.forward = timed_forward  # type: ignore[attr-defined]


@_fenced
def _stamp_forward(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    facts = ForwardFacts(
        is_training=bool(module.training) and _is_grad_enabled(),
        is_synchronising=bool(getattr(module, "require_backward_grad_sync", True)),
        num_samples=_num_samples(args, kwargs),
    )
    stream.record(Tag.FORWARD_BEGIN, facts)


def _is_grad_enabled() -> bool:
    import torch

    return bool(torch.is_grad_enabled())


def _num_samples(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int | None:
    # The first dimension of the first tensor is the batch in every layout DDP users have.
    for value in (*args, *kwargs.values()):
        shape = getattr(value, "shape", None)
        if shape is not None and len(shape) > 0:
            return int(shape[0])
    return None


def patch_backward(autograd: Any) -> None:
    """Stamp `torch.autograd.backward`, which `Tensor.backward` looks up at each call."""
    original = autograd.backward
    if hasattr(original, "_ddltop_original"):
        return

    @wraps(original)
    def timed_backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        stream.backward_depth += 1
        handle = _begin_backward(tensors) if stream.backward_depth == 1 else None
        try:
            return original(tensors, *args, **kwargs)
        finally:
            stream.backward_depth -= 1
            if stream.backward_depth == 0:
                _end_backward(handle)

    _mark(timed_backward, original)
    autograd.backward = timed_backward


def _begin_backward(tensors: Any) -> Any:
    """Stamp the begin and ask the engine for a call when all nodes have run; return the hook's handle."""
    if get_ident() != stream.training_thread:
        return None
    try:
        roots = (tensors,) if hasattr(tensors, "register_hook") else tuple(tensors)
        root = next(t for t in roots if t.requires_grad)
        handle = root.register_hook(_queue_computed_stamp)
    except Exception:  # noqa: BLE001
        # No root that wants a gradient: torch will say so itself.
        handle = None
    _record(Tag.BACKWARD_BEGIN)
    return handle


def _queue_computed_stamp(_gradient: Any) -> None:
    # Queued at the first node, so it runs before the callback in which DDP waits for its buckets.
    try:
        from torch.autograd import Variable

        Variable._execution_engine.queue_callback(_stamp_computed)
    except Exception:  # noqa: BLE001
        stream.count_error()


def _stamp_computed() -> None:
    # On CUDA the engine runs this on a thread of its own; the training thread waits in backward().
    if stream.training_thread is not None:
        stream.stamps.append((Tag.BACKWARD_COMPUTED, perf_counter_ns(), None))
        stream.num_recorded += 1


def _end_backward(handle: Any) -> None:
    _record(Tag.BACKWARD_END)
    if handle is not None:
        try:
            handle.remove()
        except Exception:  # noqa: BLE001
            stream.count_error()


def patch_optimizers(register_pre_hook: Any, register_post_hook: Any) -> None:
    """Stamp the step of every torch Optimizer through torch's own global hooks."""
    register_pre_hook(_before_update)
    register_post_hook(_after_update)


@_fenced
def _before_update(optimizer: Any, _args: Any, _kwargs: Any) -> None:
    if get_ident() != stream.training_thread:
        return
    if stream.updating == id(optimizer):
        stream.update_depth = 0  # its last step() raised: no post hook came
    stream.update_depth += 1
    if stream.update_depth == 1:
        stream.updating = id(optimizer)
        stream.record(Tag.UPDATE_BEGIN)


@_fenced
def _after_update(_optimizer: Any, _args: Any, _kwargs: Any) -> None:
    if get_ident() != stream.training_thread:
        return
    stream.update_depth = max(0, stream.update_depth - 1)
    if stream.update_depth == 0:
        stream.updating = None
        stream.record(Tag.UPDATE_END)


def patch_grad_scaler(scaler_class: type) -> None:
    """Stamp `GradScaler.update`: it ends a step even when the overflow check has skipped the optimizer."""
    original = scaler_class.update  # type: ignore[attr-defined]
    if hasattr(original, "_ddltop_original"):
        return

    @wraps(original)
    def timed_update(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return original(self, *args, **kwargs)
        finally:
            _record(Tag.SCALER_UPDATE)

    _mark(timed_update, original)
    scaler_class.update = timed_update  # type: ignore[attr-defined]


def _mark(patched: Any, original: Any) -> None:
    patched._ddltop_original = original

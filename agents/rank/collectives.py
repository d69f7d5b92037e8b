"""Stamp the calls of torch.distributed that a training makes beside DDP's buckets, and the waits for them.

DDP's buckets are launched in C++ and never come through here; FSDP, ZeRO, SyncBatchNorm, DDP's buffers, metrics,
gradient norms and barriers do. Only the outermost call counts: all_gather_object calls all_gather.
"""

from collections.abc import Callable
from functools import wraps
from threading import get_ident
from time import perf_counter_ns
from typing import Any, ClassVar

from ddltop.wire.collectives import COLLECTIVE_KINDS, CollectiveKind

from .pending import pending
from .stamps import is_patched, mark_patched
from .stream import CollectiveCall, Tag, fenced, stream

# Names of torch.distributed, 2.6-2.13, and which arguments hold the message: the larger side, as nccl-tests count.
_CALLS: dict[str, tuple[CollectiveKind, tuple[int, str] | None]] = {
    "all_reduce": (CollectiveKind.ALL_REDUCE, (0, "tensor")),
    "all_reduce_coalesced": (CollectiveKind.ALL_REDUCE, (0, "tensors")),
    "all_gather": (CollectiveKind.ALL_GATHER, (0, "tensor_list")),
    "all_gather_into_tensor": (CollectiveKind.ALL_GATHER, (0, "output_tensor")),
    "all_gather_single": (CollectiveKind.ALL_GATHER, (0, "output_tensor")),
    "all_gather_coalesced": (CollectiveKind.ALL_GATHER, (0, "output_tensor_lists")),
    "all_gather_object": (CollectiveKind.ALL_GATHER, None),
    "reduce_scatter": (CollectiveKind.REDUCE_SCATTER, (1, "input_list")),
    "reduce_scatter_tensor": (CollectiveKind.REDUCE_SCATTER, (1, "input")),
    "reduce_scatter_single": (CollectiveKind.REDUCE_SCATTER, (1, "input")),
    "broadcast": (CollectiveKind.BROADCAST, (0, "tensor")),
    "broadcast_object_list": (CollectiveKind.BROADCAST, None),
    "_broadcast_coalesced": (CollectiveKind.BROADCAST, (1, "tensors")),
    "reduce": (CollectiveKind.REDUCE, (0, "tensor")),
    "gather": (CollectiveKind.GATHER, (0, "tensor")),
    "gather_object": (CollectiveKind.GATHER, None),
    "scatter": (CollectiveKind.SCATTER, (0, "tensor")),
    "scatter_object_list": (CollectiveKind.SCATTER, None),
    "all_to_all": (CollectiveKind.ALL_TO_ALL, (1, "input_tensor_list")),
    "all_to_all_single": (CollectiveKind.ALL_TO_ALL, (1, "input")),
    "barrier": (CollectiveKind.BARRIER, None),
    "monitored_barrier": (CollectiveKind.BARRIER, None),
    "send": (CollectiveKind.SEND_RECV, (0, "tensor")),
    "recv": (CollectiveKind.SEND_RECV, (0, "tensor")),
    "isend": (CollectiveKind.SEND_RECV, (0, "tensor")),
    "irecv": (CollectiveKind.SEND_RECV, (0, "tensor")),
    "batch_isend_irecv": (CollectiveKind.SEND_RECV, None),
}
_CODES = {kind: code for code, kind in enumerate(COLLECTIVE_KINDS)}
# Work that nobody has waited for yet; more than this was forgotten by its caller.
_MAX_LAUNCHED = 4096


class _Calls:
    """What the training thread is in, and what it has launched."""

    depth = 0
    launched: ClassVar[dict[int, CollectiveCall]] = {}


def patch_collectives(*modules: Any) -> None:
    """Stamp every call these modules have under a known name; later ones get the patched functions of the first."""
    patched: dict[Any, Any] = {}
    for module in modules:
        for name, (kind, message) in _CALLS.items():
            original = getattr(module, name, None)
            if original is None or is_patched(original):
                continue
            if original not in patched:
                patched[original] = _timed_call(original, _CODES[kind], message)
            setattr(module, name, patched[original])


def _timed_call(original: Callable[..., Any], kind: int, message: tuple[int, str] | None) -> Callable[..., Any]:
    @wraps(original)
    def timed_call(*args: Any, **kwargs: Any) -> Any:
        call = _begin(kind, message, args, kwargs)
        if call is None:
            return original(*args, **kwargs)
        result = None
        try:
            result = original(*args, **kwargs)
        finally:
            _end(call, result)
        return result

    mark_patched(timed_call, original)
    return timed_call


def patch_wait(work_class: Any) -> None:
    """Stamp `Work.wait` as Python calls it; DDP and blocking calls wait in C++ or inside a stamped call."""
    original = work_class.wait
    if is_patched(original):
        return

    @wraps(original)
    def timed_wait(self: Any, *args: Any, **kwargs: Any) -> Any:
        call = _begin_wait(self)
        if call is None:
            return original(self, *args, **kwargs)
        try:
            return original(self, *args, **kwargs)
        finally:
            _end(call, None)

    mark_patched(timed_wait, original)
    work_class.wait = timed_wait


def _is_ours() -> bool:
    if _Calls.depth or not stream.is_detailed or stream.training_thread is None:
        return False
    if get_ident() not in (stream.training_thread, stream.autograd_thread):
        return False
    # A call on a side stream holds nothing up by itself: FSDP's waits are stamped in fsdp.py.
    return stream.clock is None or stream.clock.is_on_main_stream()


@fenced("collectives")
def _begin(kind: int, message: tuple[int, str] | None, args: Any, kwargs: Any) -> CollectiveCall | None:
    if not _is_ours():
        return None
    nbytes = 0
    if message is not None:
        position, name = message
        nbytes = _num_bytes(args[position] if len(args) > position else kwargs.get(name))
    return _enter(CollectiveCall(kind, nbytes))


@fenced("collectives")
def _begin_wait(work: Any) -> CollectiveCall | None:
    if not _is_ours():
        return None
    launched = _Calls.launched.pop(id(work), None)
    return _enter(CollectiveCall(launched.kind if launched else _CODES[CollectiveKind.OTHER], 0, is_wait=True))


def _enter(call: CollectiveCall) -> CollectiveCall:
    stream.record_anywhere(Tag.COLLECTIVE_BEGIN)
    _Calls.depth += 1
    return call


def _end(call: CollectiveCall, result: Any) -> None:
    _Calls.depth = 0
    _note_end(call, result)


@fenced("collectives")
def _note_end(call: CollectiveCall, result: Any) -> None:
    works = result if isinstance(result, list) else [result]
    works = [work for work in works if hasattr(work, "wait")]
    call.is_async = bool(works)
    stream.record_anywhere(Tag.COLLECTIVE_END, call)
    for work in works:
        if len(_Calls.launched) >= _MAX_LAUNCHED:
            _Calls.launched.clear()
        _Calls.launched[id(work)] = call
    if len(works) == 1 and stream.clock is None:
        _watch_end(call, works[0])


def _watch_end(call: CollectiveCall, work: Any) -> None:
    """Note when asynchronous work of a CPU backend ends; without a future it stays unknown."""
    try:
        future = work.get_future()
    except RuntimeError:  # sends have none
        return
    number = pending.add()

    def note_end(_done: Any) -> None:
        _note_collective_end(call)
        pending.discard(number)

    future.add_done_callback(note_end)


@fenced("collectives")
def _note_collective_end(call: CollectiveCall) -> None:
    call.ended_ns = perf_counter_ns()


def _num_bytes(message: Any) -> int:
    if isinstance(message, (list, tuple)):
        return sum(_num_bytes(part) for part in message)
    return int(message.numel()) * int(message.element_size()) if hasattr(message, "element_size") else 0

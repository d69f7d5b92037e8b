"""The stamp sites: where a training step is cut into phases. Everything here runs on the training thread.

Patches are on classes and functions, never on instances (an instance hook would be pickled into the user's
checkpoint). torch.compile must not trace this package: a traced hook cost 94-184 ms per iteration for the first
12 iterations (torch 2.13), so `attach` lists it in torch._dynamo.trace_rules.
"""

from collections.abc import Callable
from functools import wraps
from threading import get_ident
from typing import Any

from .batch_size import batch_size
from .stream import ForwardFacts, Tag, act_at_step_end, fenced, stream

_original = "_ddltop_original"


def is_patched(function: Any) -> bool:
    """Tell whether a function is one of ours already."""
    return hasattr(function, _original)


def mark_patched(patched: Any, original: Any) -> None:
    """Note what a function of ours stands for."""
    setattr(patched, _original, original)


# Input


def patch_loader(loader_class: type) -> None:
    """Stamp `DataLoader.__iter__`, in which the workers of an epoch start."""
    original = loader_class.__iter__  # type: ignore[attr-defined]
    if is_patched(original):
        return

    @wraps(original)
    def timed_iter(self: Any) -> Any:
        _begin_input(0)
        try:
            return original(self)
        finally:
            _end_input(None)

    mark_patched(timed_iter, original)
    loader_class.__iter__ = timed_iter  # type: ignore[attr-defined]


def patch_loader_iterator(iterator_class: type) -> None:
    """Stamp every `next()` of a DataLoader iterator class."""
    original = iterator_class.__next__  # type: ignore[attr-defined]
    if is_patched(original):
        return

    @wraps(original)
    def timed_next(self: Any) -> Any:
        _begin_input(getattr(self, "_num_yielded", None))
        try:
            batch = original(self)
        except StopIteration:
            _stop_input()
            raise
        except BaseException:
            _end_input(None)
            raise
        _end_input(batch)
        return batch

    mark_patched(timed_next, original)
    iterator_class.__next__ = timed_next  # type: ignore[attr-defined]


@fenced("loader")
def _begin_input(num_yielded: int | None) -> None:
    stream.record_begin(Tag.IO_BEGIN, num_yielded)


@fenced("loader")
def _end_input(batch: Any) -> None:
    stream.record(Tag.IO_END, None if batch is None else batch_size((batch,), {}))


@fenced("loader")
def _stop_input() -> None:
    stream.record(Tag.IO_STOP)


# Forward


class _Forward:
    """Which module's forward is the outermost one now."""

    owner: int | None = None
    has_been = False  # a training forward has been seen, so the training thread is known


def patch_forward(module_class: type, *, is_ddp: bool, on_first: Callable[[Any], None] | None = None) -> None:
    """Stamp the forward of a wrapper class; of nested ones the outermost, which `on_first` gets before."""
    original = module_class.forward  # type: ignore[attr-defined]
    if is_patched(original):
        return

    @wraps(original)
    def timed_forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        if on_first is not None and _Forward.owner is None:
            on_first(self)
        begin_forward(id(self), self, args, kwargs, is_ddp)
        try:
            return original(self, *args, **kwargs)
        finally:
            end_forward(id(self))

    mark_patched(timed_forward, original)
    module_class.forward = timed_forward  # type: ignore[attr-defined]


def is_in_forward() -> bool:
    """Tell whether a forward pass has begun and not ended."""
    return _Forward.owner is not None


@fenced("forward")
def begin_forward(owner: int, module: Any, args: Any, kwargs: Any, is_ddp: bool) -> None:
    """Stamp the begin of a forward pass unless it is inside another's; `owner` names it again at its end."""
    # Checkpointing runs forward again inside backward: that is backward.
    if stream.training_thread is None or _Backward.depth or _Forward.owner not in (None, owner):
        return
    is_training = bool(module.training) and _is_grad_enabled()
    if is_training and not _Forward.has_been:
        # The model may have been built on another thread than the one that trains it.
        _Forward.has_been = True
        stream.training_thread = get_ident()
    if get_ident() != stream.training_thread:
        return
    _Forward.owner = owner
    facts = ForwardFacts(
        is_training=is_training,
        is_synchronising=bool(getattr(module, "require_backward_grad_sync", True)),
        size=batch_size(args, kwargs),
        is_ddp=is_ddp,
    )
    if is_training:
        stream.record_begin(Tag.FORWARD_BEGIN, facts)
    else:
        stream.record(Tag.FORWARD_BEGIN, facts)


@fenced("forward")
def end_forward(owner: int) -> None:
    """Stamp the end of the forward pass that `owner` began."""
    if _Forward.owner == owner and get_ident() == stream.training_thread:
        _Forward.owner = None
        stream.record(Tag.FORWARD_END)


def _is_grad_enabled() -> bool:
    import torch

    return bool(torch.is_grad_enabled())


# Backward


class _Backward:
    """How deep in backward() the training thread is: checkpointing calls it inside itself."""

    depth = 0


def patch_backward(autograd: Any) -> None:
    """Stamp `torch.autograd.backward`, which `Tensor.backward` looks up at each call."""
    original = autograd.backward
    if is_patched(original):
        return

    @wraps(original)
    def timed_backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        # Another thread's backward is none of this step, and must not disturb its depth.
        if get_ident() != stream.training_thread:
            return original(tensors, *args, **kwargs)
        _Backward.depth += 1
        handle = _begin_backward(tensors) if _Backward.depth == 1 else None
        try:
            return original(tensors, *args, **kwargs)
        finally:
            _Backward.depth -= 1
            if _Backward.depth == 0:
                _end_backward(handle)

    mark_patched(timed_backward, original)
    autograd.backward = timed_backward


@fenced("backward")
def _begin_backward(tensors: Any) -> Any:
    """Stamp the begin and ask the engine for a call when all nodes have run; return the hook's handle."""
    _Forward.owner = None  # a forward that raised half-way through FSDP's hooks has ended here at the latest
    stream.record(Tag.BACKWARD_BEGIN)
    if not stream.is_detailed:
        return None
    roots = (tensors,) if hasattr(tensors, "register_hook") else tuple(tensors)
    root = next((t for t in roots if t.requires_grad), None)
    # No root that wants a gradient: torch will say so itself.
    return root.register_hook(_queue_computed_stamp) if root is not None else None


@fenced("backward")
def _queue_computed_stamp(_gradient: Any) -> None:
    # Queued at the first node, so it runs before the callback in which DDP waits for its buckets.
    from torch.autograd import Variable

    stream.autograd_thread = get_ident()
    Variable._execution_engine.queue_callback(_stamp_computed)


@fenced("backward")
def _stamp_computed() -> None:
    # On CUDA the engine runs this on a thread of its own; the training thread waits in backward().
    stream.autograd_thread = get_ident()
    stream.record_anywhere(Tag.BACKWARD_COMPUTED)


@fenced("backward")
def _end_backward(handle: Any) -> None:
    stream.autograd_thread = None
    stream.record(Tag.BACKWARD_END)
    if handle is not None:
        handle.remove()


# Update


class _Update:
    """Which optimizer's step is the outermost one now."""

    depth = 0
    owner: int | None = None
    on_first: Callable[[Any], None] | None = None  # a process that updates parameters trains: called once


def patch_optimizers(register_pre_hook: Any, register_post_hook: Any, on_first: Callable[[Any], None]) -> None:
    """Stamp the step of every torch Optimizer through torch's own global hooks."""
    _Update.on_first = on_first
    register_pre_hook(_before_update)
    register_post_hook(_after_update)


@fenced("update")
def _before_update(optimizer: Any, _args: Any, _kwargs: Any) -> None:
    if get_ident() != stream.training_thread:
        if stream.training_thread is None and _Update.on_first is not None:
            on_first, _Update.on_first = _Update.on_first, None
            on_first(optimizer)
        return
    if _Update.owner == id(optimizer):
        _Update.depth = 0  # its last step() raised: no post hook came
    _Update.depth += 1
    if _Update.depth == 1:
        _Update.owner = id(optimizer)
        stream.record(Tag.UPDATE_BEGIN, id(optimizer))


@fenced("update")
def _after_update(_optimizer: Any, _args: Any, _kwargs: Any) -> None:
    if get_ident() != stream.training_thread:
        return
    _Update.depth = max(0, _Update.depth - 1)
    if _Update.depth == 0 and _Update.owner is not None:
        _Update.owner = None
        stream.record_end(Tag.UPDATE_END)
        if stream.at_step_end is not None:
            act_at_step_end()


def patch_grad_scaler(scaler_class: type) -> None:
    """Stamp `GradScaler.update`: it ends a step even when the overflow check has skipped the optimizer."""
    original = scaler_class.update  # type: ignore[attr-defined]
    if is_patched(original):
        return

    @wraps(original)
    def timed_update(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return original(self, *args, **kwargs)
        finally:
            _stamp_scaler(self)

    mark_patched(timed_update, original)
    scaler_class.update = timed_update  # type: ignore[attr-defined]


@fenced("scaler")
def _stamp_scaler(scaler: Any) -> None:
    if get_ident() == stream.training_thread:
        stream.record_end(Tag.SCALER_UPDATE, id(scaler))


# Beside the step


def patch_save(serialization: Any) -> None:
    """Stamp `torch.save`: a checkpoint is neither input nor computing."""
    original = serialization.save
    if is_patched(original):
        return

    @wraps(original)
    def timed_save(*args: Any, **kwargs: Any) -> Any:
        _stamp_aside(Tag.ASIDE_BEGIN)
        try:
            return original(*args, **kwargs)
        finally:
            _stamp_aside(Tag.ASIDE_END)

    mark_patched(timed_save, original)
    serialization.save = timed_save


@fenced("save")
def _stamp_aside(tag: Tag) -> None:
    stream.record(tag)

"""Stamp models sharded by FSDP2 (`fully_shard`) and FSDP1: the root's forward, and waits for shards on a device.

On a CPU the collectives themselves block and are stamped in collectives.py. On a device they run on a stream of
their own: what a step waits for is where its own stream waits, and two class methods hold those places (torch
2.6-2.13; where one is missing, exposed communication is left unmeasured).
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

from ddltop.wire.collectives import COLLECTIVE_KINDS, CollectiveKind

from .stamps import begin_forward, end_forward, is_in_forward, is_patched, mark_patched
from .stream import CollectiveCall, Tag, fenced, stream

_WAITS = {"wait_for_unshard": CollectiveKind.ALL_GATHER, "finalize_backward": CollectiveKind.REDUCE_SCATTER}


def patch_state(state_class: Any, on_forward: Callable[[Any], None]) -> None:
    """Stamp the forward of FSDP2's outermost module; `on_forward` gets it before."""
    pre, post = state_class._pre_forward, state_class._post_forward
    if is_patched(pre):
        return

    @wraps(pre)
    def timed_pre_forward(self: Any, module: Any, args: Any, kwargs: Any) -> Any:
        if not is_in_forward():
            on_forward(module)
        begin_forward(id(self), module, args, kwargs, False)
        return pre(self, module, args, kwargs)

    @wraps(post)
    def timed_post_forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return post(self, *args, **kwargs)
        finally:
            end_forward(id(self))

    mark_patched(timed_pre_forward, pre)
    mark_patched(timed_post_forward, post)
    state_class._pre_forward = timed_pre_forward
    state_class._post_forward = timed_post_forward


def patch_waits(group_class: Any) -> None:
    """Stamp where the step's own stream waits for shards."""
    for name, kind in _WAITS.items():
        original = getattr(group_class, name)
        if not is_patched(original):
            setattr(group_class, name, _timed_wait(original, COLLECTIVE_KINDS.index(kind)))


def _timed_wait(original: Callable[..., Any], kind: int) -> Callable[..., Any]:
    @wraps(original)
    def timed_wait(self: Any, *args: Any, **kwargs: Any) -> Any:
        # Host time is measured at the calls themselves.
        if stream.clock is None:
            return original(self, *args, **kwargs)
        _stamp(Tag.COLLECTIVE_BEGIN, None)
        try:
            return original(self, *args, **kwargs)
        finally:
            _stamp(Tag.COLLECTIVE_END, CollectiveCall(kind, 0, is_wait=True))

    mark_patched(timed_wait, original)
    return timed_wait


@fenced("fsdp")
def _stamp(tag: Tag, payload: CollectiveCall | None) -> None:
    if stream.is_detailed:
        stream.record_anywhere(tag, payload)

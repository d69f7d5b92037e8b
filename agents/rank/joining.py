"""DDP's join(): ranks that run out of input early.

With `divide_by_initial_world_size=False` DDP divides by the ranks that still have input. A communication hook is not
told how many those are, so ours reads it where DDP's reducer does: in the all-reduce of ones that opens a forward.
"""

from functools import wraps
from typing import Any
from weakref import WeakKeyDictionary

from .stamps import is_patched, mark_patched
from .stream import fenced

_announcements: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()  # DDP -> work whose result is the number of ranks


def patch_join(join_class: Any) -> None:
    """Keep the last announcement of every model inside a join() context."""
    original = join_class.notify_join_context
    if is_patched(original):
        return

    @wraps(original)
    def notify_join_context(joinable: Any) -> Any:
        work = original(joinable)
        _note_announcement(joinable, work)
        return work

    mark_patched(notify_join_context, original)
    join_class.notify_join_context = staticmethod(notify_join_context)


@fenced("join")
def _note_announcement(joinable: Any, work: Any) -> None:
    if work is None:
        _announcements.pop(joinable, None)
    else:
        _announcements[joinable] = work


def present_ranks(ddp: Any) -> int | None:
    """Give the number of ranks that DDP divides by; None when it is all of them."""
    if not ddp._join_config.enable or getattr(ddp, "_divide_by_initial_world_size", True):
        return None
    work = _announcements.get(ddp)
    if work is None:
        return None
    # DDP's reducer waits for it at this place too.
    work.wait()
    return int(work.get_future().value()[0].item())

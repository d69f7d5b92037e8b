"""What the training thread writes down: stamps, in one bounded stream.

Nothing here locks, prints or waits (19 of 60 forked children hung on a queue.Queue). One thread appends, the sender
thread pops; deque makes both atomic.
"""

from collections import deque
from collections.abc import Callable
from enum import IntEnum
from functools import wraps
from threading import get_ident
from time import perf_counter_ns
from typing import Any, NamedTuple, Protocol

from .sampling import DetailSampler

# 2**16 stamps hold over 2,000 steps of 12 stamps and 16 buckets: minutes of a stopped sender.
STREAM_LENGTH = 2**16
# A loop that updates more often than this between two fetches of a batch does not begin its steps with one.
MAX_ENDS_PER_FETCH = 16


class Tag(IntEnum):
    """What a stamp marks."""

    IO_BEGIN = 0  # payload: batches the iterator has given before
    IO_END = 1  # payload: BatchSize
    IO_STOP = 2  # the iterator is exhausted
    FORWARD_BEGIN = 3  # payload: ForwardFacts
    FORWARD_END = 4
    BACKWARD_BEGIN = 5
    BACKWARD_COMPUTED = 6  # the engine has run all nodes; DDP has not yet waited for its buckets
    BACKWARD_END = 7
    UPDATE_BEGIN = 8  # payload: identity of the optimizer
    UPDATE_END = 9
    SCALER_UPDATE = 10  # payload: identity of the scaler
    BUCKET = 11  # payload: BucketStamp
    COLLECTIVE_BEGIN = 12
    COLLECTIVE_END = 13  # payload: CollectiveCall
    ASIDE_BEGIN = 14  # a checkpoint is written
    ASIDE_END = 15
    PHASE_BEGIN = 16  # payload: phase that the script names itself
    PHASE_END = 17
    STEP = 18  # the script says itself where a step ends
    COARSE = 19  # this step is not measured in detail, see sampling.py
    SESSION = 20  # from here on this process is another rank, or trains another way; payload: Session


# What is recorded of a step that is not measured in detail: enough to tell where it ends and how long input took.
_COARSE_TAGS = frozenset(
    {
        Tag.IO_BEGIN,
        Tag.IO_END,
        Tag.IO_STOP,
        Tag.FORWARD_BEGIN,
        Tag.UPDATE_BEGIN,
        Tag.UPDATE_END,
        Tag.SCALER_UPDATE,
        Tag.STEP,
        Tag.COARSE,
    }
)


class BatchSize(NamedTuple):
    """How much a batch holds; None where its tensors do not tell."""

    num_samples: int | None
    num_tokens: int | None


class ForwardFacts(NamedTuple):
    """How a forward pass was called."""

    is_training: bool
    is_synchronising: bool  # False inside no_sync()
    size: BatchSize
    is_ddp: bool = True  # its backward waits for buckets after the last node has run


class BucketStamp:
    """One DDP bucket of one backward; the end is filled in by the communication thread."""

    __slots__ = ("dtype", "end_mark", "end_ns", "index", "nbytes", "ready_mark", "ready_ns")

    def __init__(self, index: int, nbytes: int, ready_ns: int, dtype: str = "") -> None:
        self.index = index
        self.nbytes = nbytes
        self.ready_ns = ready_ns
        self.dtype = dtype
        self.end_ns: int | None = None
        self.ready_mark: Mark | None = None
        self.end_mark: Mark | None = None


class CollectiveCall:
    """One call of torch.distributed, or one wait for such a call; see docs/glossary.md for the kinds."""

    __slots__ = ("ended_ns", "is_async", "is_wait", "kind", "nbytes")

    def __init__(self, kind: int, nbytes: int, *, is_wait: bool = False) -> None:
        self.kind = kind
        self.nbytes = nbytes
        self.is_wait = is_wait  # for work that was launched before
        self.is_async = False  # the call only launched the work
        self.ended_ns: int | None = None  # of asynchronous work, when it is known


class Mark:
    """A point on the device's own time line: known some steps later, or never."""

    __slots__ = ("at_ns", "event", "is_settled")

    def __init__(self, event: Any) -> None:
        self.event = event
        self.at_ns: int | None = None
        self.is_settled = False


class Clock(Protocol):
    """A device's clock; see device_clock.py."""

    def mark(self) -> Mark | None:
        """Mark the present on the stream in use; None when this step is not timed on the device."""

    def turn(self, *, is_detailed: bool) -> None:
        """Begin a step."""

    def is_on_main_stream(self) -> bool:
        """Tell whether this thread uses the stream that the training computes on."""

    def finish(self) -> None:
        """Settle every mark."""


class Stamp(NamedTuple):
    """One stamp: host time in perf_counter nanoseconds, and the point on the device's time line if it has one."""

    tag: Tag
    at_ns: int
    payload: Any = None
    mark: Mark | None = None


class Stream:
    """Stamps of the training thread, oldest dropped when nobody reads them."""

    def __init__(self) -> None:
        self.stamps: deque[Stamp] = deque(maxlen=STREAM_LENGTH)
        self.training_thread: int | None = None  # None: not started, or ended
        self.autograd_thread: int | None = None  # runs backward on its behalf while it waits (CUDA)
        self.num_recorded = 0
        self.cost_ns = 0  # our own time on the training thread
        self.failures: dict[str, str] = {}  # hook -> what went wrong in it; it is silent from then on
        self.sampler = DetailSampler()
        self.clock: Clock | None = None
        self.is_detailed = True
        self.at_step_end: Callable[[], None] | None = None  # run once an optimizer step has ended
        self._is_armed = False  # an update has ended: the next begin event turns the step
        self._saw_loader = False
        self._uses_loader = False
        self._ends_since_fetch = 0

    def record(self, tag: Tag, payload: Any = None) -> None:
        """Append one stamp if this is the training thread."""
        now = perf_counter_ns()
        if get_ident() != self.training_thread or not (self.is_detailed or tag in _COARSE_TAGS):
            return
        self._append(tag, now, payload)
        self.cost_ns += perf_counter_ns() - now

    def record_begin(self, tag: Tag, payload: Any = None) -> None:
        """Append a stamp at which a step may begin: a batch is fetched, or a training forward starts."""
        now = perf_counter_ns()
        if get_ident() != self.training_thread:
            return
        is_turn = self._is_armed and (tag == Tag.IO_BEGIN or not self._uses_loader)
        if tag == Tag.IO_BEGIN:
            self._saw_loader = self._uses_loader = True
            self._ends_since_fetch = 0
        if is_turn:
            self._turn(now)
        self._append(tag, now, payload)
        if is_turn and not self.is_detailed:
            self.stamps.append(Stamp(Tag.COARSE, now))
            self.num_recorded += 1
        self.cost_ns += perf_counter_ns() - now

    def record_step(self, payload: Any = None) -> None:
        """Append a stamp at which the script itself says that a step ends and the next begins."""
        now = perf_counter_ns()
        if get_ident() != self.training_thread:
            return
        self._turn(now)
        self._append(Tag.STEP, now, payload)
        if not self.is_detailed:
            self.stamps.append(Stamp(Tag.COARSE, now))
            self.num_recorded += 1
        self.cost_ns += perf_counter_ns() - now

    def record_session(self, session: Any) -> None:
        """Append the change of what this process measures; any thread may."""
        self.stamps.append(Stamp(Tag.SESSION, perf_counter_ns(), session))
        self.num_recorded += 1

    def record_end(self, tag: Tag, payload: Any = None) -> None:
        """Append a stamp after which the next begin event starts a step."""
        self.record(tag, payload)
        self._is_armed = True
        self._ends_since_fetch += 1
        if self._ends_since_fetch > MAX_ENDS_PER_FETCH:
            self._uses_loader = False

    def record_anywhere(self, tag: Tag, payload: Any = None) -> None:
        """Append one stamp; the autograd thread may, as the training thread waits for it."""
        thread = get_ident()
        if thread == self.training_thread or (thread == self.autograd_thread and self.training_thread is not None):
            now = perf_counter_ns()
            self._append(tag, now, payload)
            self.cost_ns += perf_counter_ns() - now

    def record_bucket(self, bucket: BucketStamp) -> None:
        """Append a bucket; the autograd thread calls this while the training thread waits in backward."""
        if self.training_thread is not None:
            if self.clock is not None:
                bucket.ready_mark = self.clock.mark()
            self.stamps.append(Stamp(Tag.BUCKET, bucket.ready_ns, bucket))
            self.num_recorded += 1

    def fail(self, site: str, error: BaseException) -> None:
        """Silence one hook for good and say why."""
        self.failures.setdefault(site, f"its hook failed: {error!r}"[:200])

    def _append(self, tag: Tag, now: int, payload: Any) -> None:
        mark = self.clock.mark() if self.clock is not None else None
        self.stamps.append(Stamp(tag, now, payload, mark))
        self.num_recorded += 1

    def _turn(self, now: int) -> None:
        self._is_armed = False
        self._uses_loader, self._saw_loader = self._saw_loader, False
        self.is_detailed = self.sampler.turn(now, self.cost_ns)
        if self.clock is not None:
            self.clock.turn(is_detailed=self.is_detailed)


stream = Stream()


def fenced(site: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Keep whatever goes wrong in a hook of ours inside it: the hook falls silent, and `failures` says why."""

    def fence(hook: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(hook)
        def call(*args: Any) -> Any:
            if site in stream.failures:
                return None
            try:
                return hook(*args)
            except Exception as error:  # noqa: BLE001
                stream.fail(site, error)
                return None

        return call

    return fence


@fenced("on demand")
def act_at_step_end() -> None:
    """Do what a viewer has asked for, now that an optimizer step has ended."""
    action = stream.at_step_end
    if action is not None:
        action()

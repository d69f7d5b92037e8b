"""A device's own time line: events from a fixed pool, recorded at the stamps, read some steps later without waiting.

Rules (CUDA): events are recorded, queried and read on the training thread (and on the autograd thread while the
training thread waits for it), never from the sender thread, as a query from another thread breaks the capture of a
CUDA graph (pytorch issue 104487); nothing is recorded during a capture; no call here synchronises.
"""

from collections import deque
from typing import Any, Protocol

from .stream import Mark, stream

POOL_EVENTS = 4096
MAX_PENDING_STEPS = 64
STEPS_PER_LOOK = 2


class Events(Protocol):
    """What a device's events can do; CudaEvents is the real one."""

    def make(self) -> Any:
        """Make one event."""

    def record(self, event: Any) -> None:
        """Put the event on the stream that this thread uses now."""

    def is_done(self, event: Any) -> bool:
        """Tell, without waiting, whether the device has passed the event."""

    def elapsed_ns(self, begin: Any, end: Any) -> float:
        """Give the device's time between two events that are done, nanoseconds."""

    def is_capturing(self) -> bool:
        """Tell whether work is being captured into a graph rather than run."""

    def is_on_main_stream(self) -> bool:
        """Tell whether this thread uses the stream that the training computes on."""


class DeviceClock:
    """Marks on a device's time line, step by step; the pool never grows."""

    def __init__(self, events: Events, pool_events: int = POOL_EVENTS) -> None:
        self._events = events
        self._free = deque(events.make() for _ in range(pool_events))
        self._open: list[Mark] = []  # of the present step
        self._pending: deque[list[Mark]] = deque()  # steps whose marks are not read yet, oldest first
        self._base: Mark | None = None  # the newest mark that is known
        self._is_recording = False
        self._turns = False
        self.num_unmarked = 0  # stamps without a mark: the pool was empty, or a graph was being captured

    @property
    def num_free(self) -> int:
        """Number of events in the pool."""
        return len(self._free)

    def mark(self) -> Mark | None:
        """Mark the present on the stream in use; None when this step is not timed on the device."""
        # The begin of a step is also the end of the one before: either may want it.
        if not self._is_recording and not self._turns:
            return None
        self._turns = False
        if self._events.is_capturing():
            self.num_unmarked += 1
            return None
        try:
            event = self._free.popleft()
        except IndexError:
            self.num_unmarked += 1
            return None
        self._events.record(event)
        mark = Mark(event)
        self._open.append(mark)
        return mark

    def turn(self, *, is_detailed: bool) -> None:
        """Begin a step: the next mark ends the one before. Reads the marks of the oldest steps if they are there."""
        self._turns = self._is_recording or is_detailed
        self._is_recording = is_detailed
        if self._open:
            self._pending.append(self._open)
            self._open = []
        self._settle(STEPS_PER_LOOK)
        while len(self._pending) > MAX_PENDING_STEPS:
            self._give_up(self._pending.popleft())

    def finish(self) -> None:
        """Read what the device has passed, and give the rest up: the training has ended."""
        if self._open:
            self._pending.append(self._open)
            self._open = []
        self._settle(len(self._pending))
        while self._pending:
            self._give_up(self._pending.popleft())

    def is_on_main_stream(self) -> bool:
        """Tell whether this thread uses the stream that the training computes on."""
        return self._events.is_on_main_stream()

    def _settle(self, num_steps: int) -> None:
        if not self._pending or self._events.is_capturing():
            return
        for _ in range(min(num_steps, len(self._pending))):
            if not all(self._events.is_done(mark.event) for mark in reversed(self._pending[0])):
                return
            self._read(self._pending.popleft())

    def _read(self, marks: list[Mark]) -> None:
        base = self._base or marks[0]
        base_ns = base.at_ns or 0
        for mark in marks:
            mark.at_ns = base_ns + round(self._events.elapsed_ns(base.event, mark.event))
        for mark in (*([self._base] if self._base is not None else []), *marks[:-1]):
            self._return(mark)
        self._base = marks[-1]
        for mark in marks:
            mark.is_settled = True

    def _give_up(self, marks: list[Mark]) -> None:
        for mark in marks:
            self._return(mark)
            mark.is_settled = True

    def _return(self, mark: Mark) -> None:
        self._free.append(mark.event)
        mark.event = None


class CudaEvents:
    """Timing events of one CUDA device (torch.cuda.Event)."""

    def __init__(self, device: Any) -> None:
        import torch

        self._cuda = torch.cuda
        self._device = device
        self._main_stream = torch.cuda.current_stream(device)

    def make(self) -> Any:
        """Make one event; the driver's own object comes with its first record."""
        return self._cuda.Event(enable_timing=True)

    def record(self, event: Any) -> None:
        """Put the event on the present stream of the training's device."""
        event.record(self._cuda.current_stream(self._device))

    def is_done(self, event: Any) -> bool:
        """Ask cudaEventQuery."""
        return bool(event.query())

    def elapsed_ns(self, begin: Any, end: Any) -> float:
        """Ask cudaEventElapsedTime (milliseconds, resolution about half a microsecond)."""
        return float(begin.elapsed_time(end)) * 1e6

    def is_capturing(self) -> bool:
        """Ask cudaStreamIsCapturing of the present stream."""
        return bool(self._cuda.is_current_stream_capturing())

    def is_on_main_stream(self) -> bool:
        """Compare the present stream with the one at start."""
        return bool(self._cuda.current_stream(self._device) == self._main_stream)


def start_clock(device: str) -> None:
    """Give the stream a clock of this CUDA device, such as "cuda:0"."""
    import torch

    stream.clock = DeviceClock(CudaEvents(torch.device(device)))

"""From stamps to steps: which stamps form one optimizer step.

Pure. With a DataLoader a step goes from one fetch of a batch to the first fetch after an update, so that two
optimizers of one loop iteration make one step. Without one it goes from the end of an update to the end of the last
update before any optimizer updates for a second time: what lies between them, data and host work, leads the step.
A loop whose optimizer updates many times between two fetches (or never fetches again) is cut at every update.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from .stream import ForwardFacts, Mark, Stamp, Tag

# A loop without any optimizer (evaluation only) would gather stamps for ever.
MAX_STAMPS_PER_STEP = 200_000

# A critic that trains several times on a batch is part of one step; a loop that has left its loader behind is not.
MAX_UPDATES_PER_BATCH = 8

_ENDS = (Tag.UPDATE_END, Tag.SCALER_UPDATE, Tag.STEP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """The stamps of one step, and the moments it goes from and to."""

    stamps: list[Stamp]
    start: Stamp
    end: Stamp
    is_after_update: bool  # begins with the time between an update and whatever came next
    is_manual: bool  # the script says itself where its steps end

    @property
    def marks(self) -> Iterator[Mark | None]:
        """Give the marks of all stamps that have to be known before the step is."""
        yield self.start.mark
        for stamp in self.stamps:
            yield stamp.mark
            if stamp.tag == Tag.BUCKET:
                yield stamp.payload.ready_mark
        yield self.end.mark


class StepCutter:
    """Cut one rank's stamps into steps."""

    def __init__(self) -> None:
        self._stamps: list[Stamp] = []
        self._start: Stamp | None = None
        self._is_after_update = False
        self._is_armed = False  # an update has ended since the last begin event
        self._is_manual = False
        self._uses_loader = False
        self._saw_loader = False
        self._saw_forward = False
        self._is_loose = False  # fetching does not tell where steps end
        self._depth = 0  # in updates, whose closures run forward and backward
        self._updated: Counter[object] = Counter()
        self._cut_at: int | None = None  # index after the last stamp of a step that has perhaps ended

    def feed(self, stamps: Iterable[Stamp]) -> Iterator[Segment]:
        """Take stamps in order and give each step as it closes."""
        for stamp in stamps:
            if self._is_manual and stamp.tag != Tag.STEP:
                self._append(stamp)
            elif stamp.tag == Tag.STEP:
                yield from self._close_by_hand(stamp)
            else:
                yield from self._take(stamp)

    def finish(self) -> Iterator[Segment]:
        """Give the last step, which ends with its last update."""
        if self._start is not None and self._updated and not self._is_manual:
            last = max((i for i, stamp in enumerate(self._stamps) if stamp.tag in _ENDS), default=None)
            if last is not None:
                yield self._segment(self._stamps[: last + 1], self._stamps[last])
        self._start = None
        self._updated = Counter()

    def _take(self, stamp: Stamp) -> Iterator[Segment]:
        is_begin = self._is_begin(stamp)
        if is_begin and self._start is None:
            self._open(stamp, [], is_after_update=False)
        elif is_begin and self._is_armed and stamp.tag == Tag.IO_BEGIN:
            yield self._segment(self._stamps, stamp)
            self._open(stamp, [], is_after_update=False)
        elif is_begin and self._is_armed:
            self._cut_at = 1 + max(i for i, held in enumerate(self._stamps) if held.tag in _ENDS)
            self._is_armed = False
        elif self._uses_loader and stamp.tag == Tag.UPDATE_BEGIN:
            self._count_updates(stamp.payload)
        is_update = stamp.tag in (Tag.UPDATE_BEGIN, Tag.SCALER_UPDATE)
        if is_update and self._cut_at is not None and stamp.payload in self._updated and not self._uses_loader:
            ended, rest = self._stamps[: self._cut_at], self._stamps[self._cut_at :]
            yield self._segment(ended, ended[-1])
            self._open(ended[-1], rest, is_after_update=True)
        self._note(stamp)
        self._append(stamp)

    def _count_updates(self, optimizer: object) -> None:
        if self._updated[optimizer] >= MAX_UPDATES_PER_BATCH:
            self._is_loose = True
            self._uses_loader = self._saw_loader = False
            self._cut_at = 1 + max(i for i, held in enumerate(self._stamps) if held.tag in _ENDS)

    def _is_begin(self, stamp: Stamp) -> bool:
        if stamp.tag == Tag.IO_BEGIN:
            return True
        if self._uses_loader or self._depth > 0:
            return False
        if stamp.tag == Tag.FORWARD_BEGIN:
            return isinstance(stamp.payload, ForwardFacts) and stamp.payload.is_training
        # A model that is not wrapped shows no forward, a closure runs it inside the update.
        return stamp.tag in (Tag.BACKWARD_BEGIN, Tag.UPDATE_BEGIN) and not self._saw_forward

    def _open(self, start: Stamp, stamps: list[Stamp], *, is_after_update: bool) -> None:
        self._start = start
        self._stamps = stamps
        self._is_after_update = is_after_update
        self._is_armed = any(stamp.tag in _ENDS for stamp in stamps)
        self._updated = Counter(s.payload for s in stamps if s.tag in (Tag.UPDATE_BEGIN, Tag.SCALER_UPDATE))
        self._uses_loader, self._saw_loader = self._saw_loader, False
        self._saw_forward = any(stamp.tag == Tag.FORWARD_BEGIN for stamp in stamps)
        self._cut_at = None

    def _note(self, stamp: Stamp) -> None:
        if stamp.tag == Tag.IO_BEGIN:
            self._saw_loader = self._uses_loader = not self._is_loose
        elif stamp.tag == Tag.FORWARD_BEGIN:
            if stamp.payload.is_training:
                self._saw_forward |= self._depth == 0
            else:
                self._saw_loader = self._uses_loader = False  # it was the loader of an evaluation
        elif stamp.tag == Tag.UPDATE_BEGIN:
            self._depth = 1
            self._updated[stamp.payload] += 1
        elif stamp.tag in (Tag.UPDATE_END, Tag.SCALER_UPDATE):
            if stamp.tag == Tag.SCALER_UPDATE:
                self._updated[stamp.payload] += 1
            self._depth = 0
            self._is_armed = True
            self._saw_forward = False

    def _append(self, stamp: Stamp) -> None:
        if self._start is not None and len(self._stamps) < MAX_STAMPS_PER_STEP:
            self._stamps.append(stamp)

    def _close_by_hand(self, stamp: Stamp) -> Iterator[Segment]:
        if self._is_manual and self._start is not None:
            yield self._segment(self._stamps, stamp)
        self._is_manual = True
        self._start, self._stamps = stamp, []

    def _segment(self, stamps: list[Stamp], end: Stamp) -> Segment:
        assert self._start is not None
        return Segment(
            stamps=stamps,
            start=self._start,
            end=end,
            is_after_update=self._is_after_update and not self._is_manual,
            is_manual=self._is_manual,
        )


def without_evaluation(stamps: list[Stamp], start: Stamp) -> tuple[list[Stamp], Stamp]:
    """Cut an evaluation at the head of a step: it ends where the batch of the first training forward is fetched."""
    forwards = [i for i, stamp in enumerate(stamps) if stamp.tag == Tag.FORWARD_BEGIN]
    if not forwards or stamps[forwards[0]].payload.is_training:
        return stamps, start
    first_training = next((i for i in forwards if stamps[i].payload.is_training), None)
    if first_training is None:
        return stamps, start
    last_evaluation = max(i for i in forwards if i < first_training)
    for i in range(first_training, last_evaluation, -1):
        if stamps[i].tag == Tag.IO_STOP and i + 1 < first_training:
            return stamps[i + 1 :], stamps[i + 1]
    fetch = next((i for i in range(last_evaluation, first_training) if stamps[i].tag == Tag.IO_BEGIN), None)
    if fetch is not None:
        return stamps[fetch:], stamps[fetch]
    # No loader: what comes after the last forward of the evaluation is the step's own.
    ends = (i for i in range(last_evaluation, first_training) if stamps[i].tag == Tag.FORWARD_END)
    end = next(ends, first_training)
    return stamps[end + 1 :] if end < first_training else stamps[end:], stamps[end]

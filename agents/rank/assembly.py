"""From stamps to steps: which stamps form one optimizer step, and how long each phase of it took.

Pure: stamps in, `StepMeasure`s out. Runs on the sender thread, so the training thread only appends stamps.
A step goes from the first begin event after an optimizer update to the next one: zero_grad, logging and the
scheduler after the update belong to the step that ends.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import nan

from ddltop.wire.messages import StepFlag

from .stamps import BucketStamp, ForwardFacts, Stamp, Tag

# A loop without any optimizer (evaluation only) would gather stamps for ever.
MAX_STAMPS_PER_STEP = 200_000

_NS = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketTimes:
    """One bucket's all-reduce, seconds from the start of the step; NaN is not measured."""

    index: int
    nbytes: int
    ready: float
    start: float  # when the bucket before it has left the wire, or `ready`
    end: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StepMeasure:
    """One optimizer step of one rank; seconds, NaN is not measured."""

    step: int
    start_ns: int  # perf_counter
    t_iter: float
    t_io: float
    t_h2d: float
    t_f: float
    t_b: float
    t_c: float
    t_c_no: float
    t_u: float
    rest: float
    num_samples: float
    num_micro_steps: int
    flags: int
    backward_start: float
    backward_end: float
    buckets: tuple[BucketTimes, ...]


@dataclass(slots=True)
class _Sums:
    """What a walk over the stamps of one step adds up, nanoseconds."""

    io: int = 0
    forward: int = 0
    backward: int = 0
    update: int = 0
    exposed: int = 0
    evaluation: int = 0
    num_samples: int = 0
    num_micro_steps: int = 0
    flags: int = 0
    updated: bool = False
    backward_start_ns: int | None = None
    computed_ns: int | None = None
    comm: list[tuple[int, int]] = field(default_factory=list)
    buckets: list[BucketStamp] = field(default_factory=list)
    has_open_bucket: bool = False


class StepAssembler:
    """Cut one rank's stamps into steps.

    `is_host_clock`: the device works while the host waits for it (CPU). On a device that works asynchronously
    host stamps say only how long a step took and how long the loop waited for input; the rest is NaN.
    `has_peers`: gradients are exchanged (world size above 1).
    """

    def __init__(self, *, is_host_clock: bool, has_peers: bool) -> None:
        self._is_host_clock = is_host_clock
        self._has_peers = has_peers
        self._stamps: list[Stamp] = []
        self._start_ns: int | None = None
        self._is_armed = False  # an update has ended: the next begin event closes the step
        self._uses_loader = False
        self._saw_loader = False
        self._saw_forward = False
        self._depth = 0
        self._num_steps = 0

    def feed(self, stamps: Iterable[Stamp]) -> Iterator[StepMeasure]:
        """Take stamps in order and give each step as it closes."""
        for stamp in stamps:
            tag, now_ns, payload = stamp
            if self._is_begin(tag, payload):
                if self._is_armed and self._start_ns is not None:
                    yield self._close(now_ns)
                if self._start_ns is None or self._is_armed:
                    self._open(now_ns)
            self._note(tag, payload)
            if self._start_ns is not None and len(self._stamps) < MAX_STAMPS_PER_STEP:
                self._stamps.append(stamp)

    def finish(self) -> Iterator[StepMeasure]:
        """Give the last step, which ends with its update."""
        if self._is_armed and self._start_ns is not None and self._stamps:
            ends = [ns for tag, ns, _ in self._stamps if tag in (Tag.UPDATE_END, Tag.SCALER_UPDATE)]
            yield self._close(ends[-1])
            self._start_ns = None
            self._is_armed = False

    def _is_begin(self, tag: Tag, payload: object) -> bool:
        if self._depth > 0:
            return False
        if tag == Tag.IO_BEGIN:
            return True
        if tag == Tag.FORWARD_BEGIN:
            return isinstance(payload, ForwardFacts) and payload.is_training and not self._uses_loader
        return tag == Tag.UPDATE_BEGIN and not self._uses_loader and not self._saw_forward

    def _open(self, now_ns: int) -> None:
        self._stamps = []
        self._start_ns = now_ns
        self._is_armed = False
        self._uses_loader = self._saw_loader
        self._saw_loader = False
        self._saw_forward = False

    def _note(self, tag: Tag, payload: object) -> None:
        if tag == Tag.IO_BEGIN:
            self._saw_loader = True
            self._uses_loader = True
        elif tag == Tag.FORWARD_BEGIN:
            self._saw_forward |= self._depth == 0
        elif tag == Tag.UPDATE_BEGIN:
            self._depth += 1
        elif tag == Tag.UPDATE_END:
            self._depth = max(0, self._depth - 1)
            self._is_armed = True
        elif tag == Tag.SCALER_UPDATE:
            self._is_armed = True

    def _close(self, end_ns: int) -> StepMeasure:
        assert self._start_ns is not None
        stamps, start_ns = _without_evaluation(self._stamps, self._start_ns)
        sums = _walk(stamps)
        if start_ns != self._start_ns:
            sums.flags |= StepFlag.EVALUATION
        step = self._num_steps
        self._num_steps += 1
        return self._measure(step, start_ns, end_ns, sums)

    def _measure(self, step: int, start_ns: int, end_ns: int, sums: _Sums) -> StepMeasure:
        t_iter = (end_ns - start_ns - sums.evaluation) * _NS
        t_c, t_c_no = self._communication(sums)
        is_known = self._is_host_clock
        t_io, t_f, t_b, t_u = (ns * _NS for ns in (sums.io, sums.forward, sums.backward, sums.update))
        # Without a BACKWARD_COMPUTED stamp backward cannot be parted from the wait inside it.
        if sums.num_micro_steps and sums.computed_ns is None:
            t_b = nan
        rest = t_iter - (t_io + t_f + t_b + t_c_no + t_u)
        return StepMeasure(
            step=step,
            start_ns=start_ns,
            t_iter=t_iter,
            t_io=t_io,
            t_h2d=0.0 if is_known else nan,
            t_f=t_f if is_known else nan,
            t_b=t_b if is_known else nan,
            t_c=t_c if is_known else nan,
            t_c_no=t_c_no if is_known else nan,
            t_u=t_u if is_known else nan,
            rest=rest if is_known else nan,
            num_samples=float(sums.num_samples) if sums.num_samples else nan,
            num_micro_steps=sums.num_micro_steps,
            flags=sums.flags | (0 if sums.updated else StepFlag.SKIPPED),
            backward_start=_since(start_ns, sums.backward_start_ns) if is_known else nan,
            backward_end=_since(start_ns, sums.computed_ns) if is_known else nan,
            buckets=_bucket_times(sums.buckets, start_ns) if is_known else (),
        )

    def _communication(self, sums: _Sums) -> tuple[float, float]:
        """Give (t_c, t_c_no): from the buckets, else t_c_no alone from the wait at the end of backward."""
        if not self._has_peers:
            return 0.0, 0.0
        if sums.has_open_bucket:
            return nan, nan
        if sums.buckets:
            return _covered_ns(sums.comm) * _NS, sums.exposed * _NS
        return nan, sums.exposed * _NS


def _without_evaluation(stamps: list[Stamp], start_ns: int) -> tuple[list[Stamp], int]:
    """Cut an evaluation at the head of the step: it ends where the batch of the first training forward is fetched."""
    forwards = [i for i, (tag, _, _) in enumerate(stamps) if tag == Tag.FORWARD_BEGIN]
    if not forwards or stamps[forwards[0]][2].is_training:
        return stamps, start_ns
    first_training = next((i for i in forwards if stamps[i][2].is_training), None)
    if first_training is None:
        return stamps, start_ns
    last_evaluation = max(i for i in forwards if i < first_training)
    for i in range(first_training, last_evaluation, -1):
        if stamps[i][0] == Tag.IO_STOP and i + 1 < first_training:
            return stamps[i + 1 :], stamps[i + 1][1]
    fetch = next((i for i in range(last_evaluation, first_training) if stamps[i][0] == Tag.IO_BEGIN), first_training)
    return stamps[fetch:], stamps[fetch][1]


def _walk(stamps: list[Stamp]) -> _Sums:
    """Add up the phases of one step."""
    sums = _Sums()
    begun: dict[Tag, int] = {}
    facts: ForwardFacts | None = None
    forward_end: int | None = None
    pending: list[BucketStamp] = []
    nested = 0  # forward and backward inside a closure of the optimizer
    for tag, now, payload in stamps:
        if tag in _BEGINS:
            begun[tag] = now
        if tag == Tag.IO_BEGIN and payload == 0:
            sums.flags |= StepFlag.FIRST_BATCH
        elif tag == Tag.IO_END:
            sums.io += now - begun.pop(Tag.IO_BEGIN, now)
        elif tag == Tag.FORWARD_BEGIN:
            facts = payload
        elif tag == Tag.FORWARD_END:
            spent = now - begun.pop(Tag.FORWARD_BEGIN, now)
            forward_end = _end_forward(sums, facts, now, spent)
            nested += spent if Tag.UPDATE_BEGIN in begun else 0
        elif tag == Tag.BACKWARD_BEGIN:
            if forward_end is not None:
                sums.forward += now - forward_end  # the loss
                nested += now - forward_end if Tag.UPDATE_BEGIN in begun else 0
                forward_end = None
            pending = []
            begun.pop(Tag.BACKWARD_COMPUTED, None)
        elif tag == Tag.BUCKET:
            pending.append(payload)
        elif tag == Tag.BACKWARD_COMPUTED:
            begun[Tag.BACKWARD_COMPUTED] = now
        elif tag == Tag.BACKWARD_END:
            began = begun.pop(Tag.BACKWARD_BEGIN, now)
            _end_backward(sums, began, begun.get(Tag.BACKWARD_COMPUTED), now, pending, facts)
            nested += now - began if Tag.UPDATE_BEGIN in begun else 0
        elif tag == Tag.UPDATE_END:
            sums.update += now - begun.pop(Tag.UPDATE_BEGIN, now) - nested
            sums.updated = True
            nested = 0
    return sums


_BEGINS = frozenset({Tag.IO_BEGIN, Tag.FORWARD_BEGIN, Tag.BACKWARD_BEGIN, Tag.UPDATE_BEGIN})


def _end_forward(sums: _Sums, facts: ForwardFacts | None, now: int, spent: int) -> int | None:
    """Add a forward pass; give its end when a loss may follow, None after an evaluation."""
    if facts is None or not facts.is_training:
        sums.evaluation += spent
        sums.flags |= StepFlag.EVALUATION
        return None
    sums.forward += spent
    sums.num_samples += facts.num_samples or 0
    return now


def _end_backward(
    sums: _Sums,
    began: int,
    computed: int | None,
    now: int,
    pending: list[BucketStamp],
    facts: ForwardFacts | None,
) -> None:
    """Add one backward pass: its computation, and the communication that it does not hide."""
    sums.num_micro_steps += 1
    if computed is None:
        sums.computed_ns = None
        return
    sums.backward += computed - began
    sums.backward_start_ns, sums.computed_ns = began, computed
    if pending:
        ended = [(b.ready_ns, b.end_ns) for b in pending if b.end_ns is not None]
        sums.has_open_bucket |= len(ended) < len(pending)
        sums.comm += ended
        sums.exposed += _covered_ns([(max(ready, computed), end) for ready, end in ended if end > computed])
        sums.buckets = pending
    elif facts is None or facts.is_synchronising:
        sums.exposed += now - computed


def _covered_ns(intervals: list[tuple[int, int]]) -> int:
    """Length of the union: gloo runs two all-reduces at once, so a sum would count time twice."""
    covered, reach = 0, -1
    for begin, end in sorted(intervals):
        if end > reach:
            covered += end - max(begin, reach)
            reach = end
    return covered


def _bucket_times(buckets: list[BucketStamp], start_ns: int) -> tuple[BucketTimes, ...]:
    """Serialise the buckets of the last backward: one starts when it is ready and the one before has ended."""
    times = []
    free_ns = 0
    for bucket in buckets:
        end_ns = bucket.end_ns
        begin_ns = max(bucket.ready_ns, free_ns)
        if end_ns is not None:
            begin_ns = min(begin_ns, end_ns)
            free_ns = max(free_ns, end_ns)
        times.append(
            BucketTimes(
                index=bucket.index,
                nbytes=bucket.nbytes,
                ready=(bucket.ready_ns - start_ns) * _NS,
                start=(begin_ns - start_ns) * _NS if end_ns is not None else nan,
                end=_since(start_ns, end_ns),
            )
        )
    return tuple(times)


def _since(start_ns: int, at_ns: int | None) -> float:
    return nan if at_ns is None else (at_ns - start_ns) * _NS

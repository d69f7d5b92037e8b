"""From stamps to phases: how long each part of one optimizer step took.

Pure. Runs on the sender thread, so the training thread only appends stamps. Every moment of a step belongs to the
innermost thing that was going on then, so the parts add up whatever is nested in what.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import nan

from ddltop.wire.messages import StepFlag

from .cutting import Segment, StepCutter, without_evaluation
from .ledger import Ledger, Part
from .reading import read_segment
from .stream import BatchSize, BucketStamp, Mark, Stamp

_NS = 1e-9
# Which figures are wrong when a hook has failed: what it would have stamped is counted as something else.
_LOST_WITH = {
    "loader": ("t_io", "t_h2d", "rest"),
    "forward": ("t_f", "rest", "num_samples", "num_tokens"),
    "backward": ("t_f", "t_b", "t_c", "t_c_no", "rest"),
    "buckets": ("t_c", "t_c_no"),
    "collectives": ("t_c", "t_c_no"),
    "fsdp": ("t_c", "t_c_no", "t_b"),
    "save": ("rest",),
    "phase": ("t_io", "t_h2d", "t_f", "t_b", "t_c", "t_c_no", "t_u", "rest"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketTimes:
    """One bucket's all-reduce, seconds from the start of the step; NaN is not measured."""

    index: int
    nbytes: int
    ready: float
    start: float  # when the bucket before it has left the wire, or `ready`
    end: float
    dtype: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveSum:
    """Calls of one kind from one part of the step."""

    kind: int  # position in COLLECTIVE_KINDS
    place: int  # position in COLLECTIVE_PLACES
    num_calls: int
    nbytes: int
    exposed: float  # seconds that the step waited for them


@dataclass(frozen=True, slots=True, kw_only=True)
class StepMeasure:
    """One optimizer step of one rank; seconds, NaN is not measured."""

    step: int
    start_ns: int  # perf_counter
    t_iter: float
    t_io: float = nan
    t_h2d: float = nan
    t_f: float = nan
    t_b: float = nan
    t_c: float = nan
    t_c_no: float = nan
    t_u: float = nan
    rest: float = nan
    evaluation: float = 0.0  # beside the step, not in t_iter
    host_ahead: float = nan  # how far the host's stamps were ahead of the device, least of the step
    num_samples: float = nan
    num_tokens: float = nan
    num_micro_steps: int = 0
    flags: int = 0
    backward_start: float = nan
    backward_end: float = nan
    buckets: tuple[BucketTimes, ...] = ()
    collectives: tuple[CollectiveSum, ...] = ()


class StepAssembler:
    """Turn one rank's stamps into measured steps.

    `is_host_clock`: the device works while the host waits for it (CPU), so host stamps time it; else its own marks
    do, where there are any. `has_peers`: gradients are exchanged (world size above 1). `sees_all_comm`: a step in
    which no communication was seen had none; else it is not known. `failures`: hooks that have failed, which may
    grow while steps are taken.
    """

    def __init__(
        self,
        *,
        is_host_clock: bool,
        has_peers: bool,
        sees_all_comm: bool = True,
        failures: Mapping[str, str] | None = None,
    ) -> None:
        self._is_host_clock = is_host_clock
        self._sees_all_comm = sees_all_comm
        self._has_peers = has_peers
        self._failures = failures if failures is not None else {}
        self._cutter = StepCutter()
        self._unsettled: deque[Segment] = deque()
        self._num_steps = 0
        self._host_minus_device_ns: int | None = None

    def feed(self, stamps: Iterable[Stamp]) -> Iterator[StepMeasure]:
        """Take stamps in order and give each step once it is closed and its marks are known."""
        self._unsettled.extend(self._cutter.feed(stamps))
        yield from self._settled()

    def finish(self) -> Iterator[StepMeasure]:
        """Give the last step, which ends with its update; marks that are still unknown stay so."""
        self._unsettled.extend(self._cutter.finish())
        while self._unsettled:
            yield self._measure(self._unsettled.popleft())

    def _settled(self) -> Iterator[StepMeasure]:
        while self._unsettled and all(mark is None or mark.is_settled for mark in self._unsettled[0].marks):
            yield self._measure(self._unsettled.popleft())

    def _measure(self, segment: Segment) -> StepMeasure:
        step = self._num_steps
        self._num_steps += 1
        stamps, start = without_evaluation(segment.stamps, segment.start)
        host_s = (segment.end.at_ns - start.at_ns) * _NS
        evaluation = max(0, start.at_ns - segment.start.at_ns) * _NS
        on_device = None if self._is_host_clock else _to_device_time(stamps, start, segment.end)
        host_ahead = nan
        if on_device is not None:
            host_ahead = self._host_ahead(stamps, on_device[0])
            stamps, start, end = on_device
        else:
            end = segment.end
        is_timed = self._is_host_clock or on_device is not None
        ledger = read_segment(
            stamps,
            start,
            end,
            is_after_update=segment.is_after_update,
            is_host_clock=self._is_host_clock,
        )
        inside = ledger.spent[Part.EVALUATION] * _NS
        evaluation += inside
        ledger.flags |= StepFlag.EVALUATION if evaluation else 0
        if segment.is_manual and isinstance(segment.end.payload, BatchSize):
            ledger.num_samples, ledger.num_tokens = (count or 0 for count in segment.end.payload)
        ledger.is_comm_known &= self._sees_all_comm or bool(ledger.comm)
        ledger.flags |= StepFlag.COARSE if ledger.is_coarse else 0
        ledger.flags |= StepFlag.SKIPPED if not ledger.updated and not segment.is_manual else 0
        t_iter = ((end.at_ns - start.at_ns) * _NS if is_timed else host_s) - inside
        figures = self._figures(ledger, t_iter, is_timed)
        is_full = is_timed and not ledger.is_coarse
        return StepMeasure(
            step=step,
            start_ns=segment.start.at_ns,
            evaluation=evaluation,
            host_ahead=host_ahead,
            num_micro_steps=ledger.num_micro_steps,
            flags=ledger.flags,
            backward_start=_since(start.at_ns, ledger.backward_start_ns) if is_full else nan,
            backward_end=_since(start.at_ns, ledger.computed_ns) if is_full else nan,
            buckets=_bucket_times(ledger.buckets, start.at_ns) if is_full else (),
            collectives=_collective_sums(ledger) if is_full else (),
            **figures,
        )

    def _figures(self, ledger: Ledger, t_iter: float, is_timed: bool) -> dict[str, float]:
        """Give the phases that are known, and how much was trained on."""
        figures = {
            "t_iter": t_iter,
            "num_samples": _or_nan(ledger.num_samples),
            "num_tokens": _or_nan(ledger.num_tokens),
        }
        if not is_timed or ledger.is_coarse:
            # Host stamps still tell how long the loop waited for input.
            if not is_timed and ledger.saw_loader:
                figures["t_io"] = ledger.io * _NS
            return figures
        t_c, t_c_no = ledger.communication(has_peers=self._has_peers, is_host_clock=self._is_host_clock)
        figures |= {
            "t_io": ledger.io * _NS if ledger.is_io_known else nan,
            # On a device without a loader, nothing tells the copy of a batch from the wait for it.
            "t_h2d": ledger.h2d * _NS if self._is_host_clock or ledger.saw_loader else nan,
            "t_f": ledger.forward * _NS,
            "t_b": ledger.backward * _NS if ledger.is_backward_known else nan,
            "t_c": t_c * _NS,
            "t_c_no": t_c_no * _NS,
            "t_u": ledger.update * _NS,
        }
        parts = ("t_io", "t_h2d", "t_f", "t_b", "t_c_no", "t_u")
        figures["rest"] = t_iter - sum(figures[part] for part in parts if figures[part] == figures[part])
        for site in tuple(self._failures):
            figures |= dict.fromkeys(_LOST_WITH.get(site, ()), nan)
        return figures

    def _host_ahead(self, stamps: list[Stamp], on_device: list[Stamp]) -> float:
        """Give the least lead of the host over the device in a step, seconds; about 0 where the device waited.

        The two clocks have no common zero. The device cannot pass a mark before the host has put it there, so the
        smallest difference ever seen is taken as none at all; it may grow by 10 us a step, as clocks drift.
        """
        differences = [
            device.at_ns - host.at_ns for host, device in zip(stamps, on_device, strict=True) if host.mark is not None
        ]
        if not differences:
            return nan
        least = min(differences)
        zero = self._host_minus_device_ns
        self._host_minus_device_ns = least if zero is None else min(least, zero + 10_000)
        return (least - self._host_minus_device_ns) * _NS


def _to_device_time(stamps: list[Stamp], start: Stamp, end: Stamp) -> tuple[list[Stamp], Stamp, Stamp] | None:
    """Move a step onto the device's time line; None when any of its stamps is not known there."""
    moved = []
    for stamp in (*stamps, start, end):
        bucket = stamp.payload if isinstance(stamp.payload, BucketStamp) else None
        at_ns = _device_ns(stamp.mark if bucket is None else bucket.ready_mark)
        if at_ns is None:
            return None
        if bucket is not None:
            bucket = BucketStamp(bucket.index, bucket.nbytes, at_ns, bucket.dtype)
            bucket.end_ns = _device_ns(stamp.payload.end_mark)
        moved.append(stamp._replace(at_ns=at_ns, payload=stamp.payload if bucket is None else bucket))
    return moved[:-2], moved[-2], moved[-1]


def _device_ns(mark: Mark | None) -> int | None:
    return mark.at_ns if mark is not None else None


def _bucket_times(buckets: list[BucketStamp], start_ns: int) -> tuple[BucketTimes, ...]:
    """Serialise the buckets of the last backward: one starts when it is ready and the one before has ended."""
    times = []
    free_ns = 0
    for bucket in buckets:
        ready_ns, end_ns = bucket.ready_ns, bucket.end_ns
        begin_ns = max(ready_ns, free_ns)
        if end_ns is not None:
            begin_ns = min(begin_ns, end_ns)
            free_ns = max(free_ns, end_ns)
        times.append(
            BucketTimes(
                index=bucket.index,
                nbytes=bucket.nbytes,
                dtype=bucket.dtype,
                ready=(ready_ns - start_ns) * _NS,
                start=(begin_ns - start_ns) * _NS if end_ns is not None else nan,
                end=_since(start_ns, end_ns),
            )
        )
    return tuple(times)


def _collective_sums(ledger: Ledger) -> tuple[CollectiveSum, ...]:
    return tuple(
        CollectiveSum(kind=kind, place=place, num_calls=calls, nbytes=nbytes, exposed=exposed * _NS)
        for (kind, place), (calls, nbytes, exposed) in sorted(ledger.collectives.items())
    )


def _or_nan(count: int) -> float:
    return float(count) if count else nan


def _since(start_ns: int, at_ns: int | None) -> float:
    return nan if at_ns is None else (at_ns - start_ns) * _NS

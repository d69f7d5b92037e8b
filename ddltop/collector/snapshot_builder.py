"""Make the immutable snapshot that viewers get out of the collector's state."""

import math

import numpy as np

from ddltop.collector.diagnosis import WARM_UP_STEPS
from ddltop.collector.ingest import Ingest
from ddltop.collector.roster import RankEntry
from ddltop.collector.snapshot import (
    History,
    NodeLine,
    Quality,
    RankLine,
    RunFacts,
    RunState,
    Snapshot,
)
from ddltop.model.assess import assess
from ddltop.model.assessment import Assessment
from ddltop.model.wait import arrivals
from ddltop.model.window import Floats, Window
from ddltop.wire.phases import Phase

LIVE_WINDOW_STEPS = 200
HISTORY_STEPS = 240
MAX_HISTORY_RANKS = 64
MIN_STEPS = 3
# No rank completes a step for ten of its usual steps, and at least this long.
STALLED_AFTER_S = 5.0

_EMPTY_HISTORY = History(steps=(), t_iter=(), t_c_no=(), lateness={})


class SnapshotBuilder:
    """Build snapshots of one run; what depends on steps alone is kept until a new step is complete.

    `window_steps` is the number of newest steps to assess; None assesses all that memory holds.
    """

    def __init__(self, ingest: Ingest, *, window_steps: int | None = LIVE_WINDOW_STEPS) -> None:
        self._ingest = ingest
        self._window_steps = window_steps
        self._made_for: tuple[int, int] | None = None
        self._assessment: Assessment | None = None
        self._history = _EMPTY_HISTORY

    def build(self, now: float) -> Snapshot:
        """Give the picture at `now`, the collector's clock in seconds."""
        ingest = self._ingest
        self._refresh()
        started_at = ingest.started_at
        until = ingest.ended_at if ingest.ended_at is not None else now
        return Snapshot(
            at=now,
            state=self._state(now),
            run=self._facts(),
            num_steps=ingest.watermark + 1,
            duration_s=max(0.0, until - started_at) if started_at is not None else 0.0,
            assessment=self._assessment,
            ranks=tuple(_rank_line(ingest.roster.ranks[rank], now) for rank in sorted(ingest.roster.ranks)),
            nodes=tuple(
                NodeLine(node=entry.node, age_s=max(0.0, now - entry.seen_at), sample=entry.sample)
                for _, entry in sorted(ingest.roster.nodes.items())
            ),
            history=self._history,
            findings=ingest.diagnosis.findings,
            quality=self._quality(),
        )

    def _refresh(self) -> None:
        key = (self._ingest.roster.generation, self._ingest.watermark)
        if key == self._made_for:
            return
        self._made_for = key
        self._assessment, self._history = None, _EMPTY_HISTORY
        ring, last = self._ingest.ring, self._ingest.watermark
        if ring is None or last < 0:
            return
        ranks = self._ingest.roster.reporting_ranks()
        span = ring.num_slots if self._window_steps is None else self._window_steps
        first = max(0, last - span + 1)
        if last >= WARM_UP_STEPS + MIN_STEPS:
            first = max(first, WARM_UP_STEPS)
        window = ring.window(first, last, ranks)
        if window.num_steps >= MIN_STEPS:
            self._assessment = assess(window, num_workers=self._ingest.roster.world_size)
        self._history = _history(ring.window(last - HISTORY_STEPS + 1, last, ranks))

    def _state(self, now: float) -> RunState:
        ingest = self._ingest
        if ingest.exit_code is not None or ingest.roster.is_over:
            return RunState.ENDED
        if ingest.progress_at is None:
            return RunState.WAITING
        t_iter = self._assessment.phases.t_iter if self._assessment else None
        limit = max(STALLED_AFTER_S, 10 * (t_iter or 0.0))
        return RunState.STALLED if now - ingest.progress_at > limit else RunState.LIVE

    def _facts(self) -> RunFacts:
        ingest = self._ingest
        hellos = [entry.hello for _, entry in sorted(ingest.roster.ranks.items())]
        first = hellos[0] if hellos else None
        unmeasured: dict[str, str] = {}
        notes: dict[str, str] = {}
        for hello in hellos:
            unmeasured.update(hello.unmeasured)
            notes.update(hello.notes)
        return RunFacts(
            run_id=ingest.run_id,
            command=ingest.command,
            framework=f"{first.framework} {first.framework_version}".strip() if first else "",
            strategy=first.strategy if first else "",
            backend=first.backend if first else "",
            device=first.device if first else "",
            model=first.model if first else "",
            world_size=ingest.roster.world_size,
            num_nodes=len({hello.node for hello in hellos}),
            gradient_bytes=first.gradient_bytes if first else 0,
            started_at=ingest.started_at,
            exit_code=ingest.exit_code,
            settings=dict(first.settings) if first else {},
            bucket_timing=first.bucket_timing if first else "",
            unmeasured=unmeasured,
            notes=notes,
        )

    def _quality(self) -> Quality:
        roster = self._ingest.roster
        entries = roster.ranks.values()
        overheads = [entry.overhead_us for entry in entries if entry.last_step >= 0]
        return Quality(
            records=sum(entry.num_records for entry in entries),
            dropped=sum(entry.dropped for entry in entries),
            lost_batches=sum(node.lost_before + node.delivery.num_lost for node in roster.nodes.values()),
            rejected=sum(self._ingest.rejected.values()),
            missing_ranks=roster.missing_ranks(),
            overhead_us_per_step=max(overheads) if overheads else None,
        )


def _rank_line(entry: RankEntry, now: float) -> RankLine:
    hello = entry.hello
    return RankLine(
        rank=hello.rank,
        local_rank=hello.local_rank,
        node=hello.node,
        pid=hello.pid,
        gpu_uuid=hello.gpu_uuid,
        state=entry.state,
        last_step=entry.last_step,
        age_s=max(0.0, now - entry.seen_at),
    )


def _history(window: Window) -> History:
    if window.num_steps == 0:
        return _EMPTY_HISTORY
    lateness_SR = arrivals(window).lateness_SR
    lateness_R = _nanmean(lateness_SR, axis=0)
    latest = np.argsort(-np.nan_to_num(lateness_R), kind="stable")[:MAX_HISTORY_RANKS]
    return History(
        steps=tuple(int(step) for step in window.steps_S),
        t_iter=_floats(_nanmean(window.phase_SR(Phase.T_ITER), axis=1)),
        t_c_no=_floats(_nanmean(window.phase_SR(Phase.T_C_NO), axis=1)),
        lateness={window.ranks[i]: _floats(lateness_SR[:, i]) for i in latest},
    )


def _nanmean(values: Floats, axis: int) -> Floats:
    """Average what is measured; NaN where nothing is, without numpy's warning."""
    count = np.isfinite(values).sum(axis=axis)
    total = np.nansum(values, axis=axis)
    return np.where(count > 0, total / np.maximum(count, 1), math.nan)


def _floats(values: Floats) -> tuple[float, ...]:
    return tuple(float(value) for value in values)

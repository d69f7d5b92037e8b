"""When the diagnosis looks, and at which steps: a matter of steps alone, so that replay repeats it exactly."""

import numpy as np

from ddltop.collector.rings import StepRing
from ddltop.collector.roster import Roster
from ddltop.diagnose.engine import DiagnosisEngine
from ddltop.diagnose.evidence import Evidence
from ddltop.diagnose.finding import Finding
from ddltop.diagnose.policy import Policy
from ddltop.model.assess import assess
from ddltop.model.wait import arrivals
from ddltop.wire.phases import Phase

# Memory is allocated, caches fill and DDP rebuilds its buckets in the first steps.
WARM_UP_STEPS = 5
WINDOW_STEPS = 100
MIN_STRIDE_STEPS = 10
# A look costs some milliseconds: at most two per second of training.
MIN_STRIDE_S = 0.5


class Diagnosis:
    """Run the rules as the watermark moves."""

    def __init__(self) -> None:
        self._engine = DiagnosisEngine(Policy())
        self._looked_at = WARM_UP_STEPS - 1

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Give active findings first, gravest first, then past ones."""
        return self._engine.findings

    def restart(self) -> None:
        """Begin again with step 0 of a new generation; what was found stays."""
        self._looked_at = WARM_UP_STEPS - 1

    def advance(self, ring: StepRing, roster: Roster, watermark: int) -> None:
        """Look at every stride of steps up to the watermark."""
        ranks = roster.reporting_ranks()
        while watermark - self._looked_at >= MIN_STRIDE_STEPS:
            upto = self._next_look(ring, ranks, watermark)
            if upto is None:
                return
            self._look(ring, roster, ranks, upto)
            self._looked_at = upto

    def _next_look(self, ring: StepRing, ranks: list[int], watermark: int) -> int | None:
        """Give the first step at which 10 steps and half a second of training have passed since the last look."""
        window = ring.window(self._looked_at + 1, watermark, ranks)
        if window.num_steps == 0:
            return watermark
        t_iter_SR = window.phase_SR(Phase.T_ITER)
        elapsed_S = np.cumsum(np.nan_to_num(t_iter_SR).max(axis=1, initial=0.0))
        enough = np.flatnonzero((elapsed_S >= MIN_STRIDE_S) & (np.arange(window.num_steps) >= MIN_STRIDE_STEPS - 1))
        return int(window.steps_S[enough[0]]) if enough.size else None

    def _look(self, ring: StepRing, roster: Roster, ranks: list[int], upto: int) -> None:
        first = max(WARM_UP_STEPS, upto - WINDOW_STEPS + 1)
        window = ring.window(first, upto, ranks)
        if window.num_steps == 0:
            return
        world_size = roster.world_size
        any_rank = roster.ranks[ranks[0]].hello
        self._engine.evaluate(
            Evidence(
                window=window,
                arrivals=arrivals(window),
                assessment=assess(window, num_workers=world_size),
                rank_nodes={rank: roster.ranks[rank].hello.node for rank in ranks},
                world_size=world_size,
                backend=any_rank.backend,
                device=any_rank.device,
            )
        )

"""Who comes last, step by step, and which phase of that rank took longer than the others'.

Legend: S steps, R ranks.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ddltop.diagnose.evidence import Evidence
from ddltop.diagnose.policy import Policy
from ddltop.model.assessment import GapKind
from ddltop.model.averages import mean_over
from ddltop.model.window import Floats
from ddltop.wire.phases import Phase

STRAGGLER_PHASES = (Phase.T_IO, Phase.T_F, Phase.T_B)


@dataclass(frozen=True, slots=True, kw_only=True)
class Straggler:
    """A rank that comes last again and again."""

    rank: int
    phase: Phase | None  # the one whose excess explains the lateness; None when none does
    votes: float  # share of the steps in which it was last, and late enough to matter
    lateness_s: float  # median over the steps
    excess_s: float  # of `phase` over the other ranks, median over the steps
    cost_share: float  # of t_iter that the others lose to it
    since_step: int  # from which on most steps of the window vote for it


def is_decidable(evidence: Evidence, policy: Policy) -> bool:
    """Tell whether enough steps have the arrival of every rank."""
    if evidence.window.num_ranks < 2:
        return False
    known_S = np.isfinite(evidence.arrivals.lateness_SR).all(axis=1)
    return int(known_S.sum()) >= policy.straggler_min_steps


def find_straggler(evidence: Evidence, policy: Policy) -> Straggler | None:
    """Give the rank that most steps vote for, if it has the votes; evidence must be decidable."""
    lateness_SR = evidence.arrivals.lateness_SR
    known_S = np.isfinite(lateness_SR).all(axis=1)
    lateness_SR = lateness_SR[known_S]
    t_iter_S = mean_over(evidence.window.phase_SR(Phase.T_ITER), axis=1)[known_S]
    late_enough_S = np.maximum(policy.late_s, policy.late_ratio * t_iter_S)
    last_S = lateness_SR.argmax(axis=1)
    is_late_S = lateness_SR.max(axis=1) >= late_enough_S
    index = int(np.bincount(last_S[is_late_S], minlength=lateness_SR.shape[1]).argmax())
    votes_S = is_late_S & (last_S == index)
    votes = float(votes_S.mean())
    lateness = float(np.median(lateness_SR[:, index]))
    if votes < policy.late_votes or lateness < float(np.median(late_enough_S)):
        return None
    excess = {phase: _excess(evidence.window.phase_SR(phase)[known_S], index) for phase in STRAGGLER_PHASES}
    phase = max(excess, key=lambda p: excess[p])
    is_explained = policy.phase_explains * lateness <= excess[phase] <= policy.phase_exceeds * lateness
    return Straggler(
        rank=evidence.window.ranks[index],
        phase=phase if is_explained else None,
        votes=votes,
        lateness_s=lateness,
        excess_s=excess[phase],
        cost_share=_cost_share(evidence, index),
        since_step=int(evidence.window.steps_S[known_S][_begin(votes_S, policy.late_votes)]),
    )


def _begin(votes_S: NDArray[np.bool_], share: float) -> int:
    """Give the first step that votes and from which on at least this share of all steps does."""
    share_from_S = np.cumsum(votes_S[::-1])[::-1] / np.arange(votes_S.size, 0, -1)
    return int(np.flatnonzero(votes_S & (share_from_S >= max(share, 0.9 * float(share_from_S.max()))))[0])


def _excess(phase_SR: Floats, index: int) -> float:
    """How much longer a rank spends in a phase than the lower median of the others; 0 when not measured."""
    others_SR = np.delete(phase_SR, index, axis=1)
    others_SR = np.sort(others_SR, axis=1)
    usual_S = others_SR[:, (others_SR.shape[1] - 1) // 2]
    excess_S = phase_SR[:, index] - usual_S
    known = excess_S[np.isfinite(excess_S)]
    return float(np.median(known)) if known.size else 0.0


def _cost_share(evidence: Evidence, index: int) -> float:
    """Give the share of t_iter lost to late ranks: the gap's own figure, else the exposed waits of the others."""
    for part in evidence.assessment.gap:
        if part.part is GapKind.WAIT:
            return part.share
    waits_SR = np.delete(evidence.arrivals.exposed_wait_SR, index, axis=1)
    t_iter_SR = np.delete(evidence.window.phase_SR(Phase.T_ITER), index, axis=1)
    known_SR = np.isfinite(waits_SR) & np.isfinite(t_iter_SR)
    total = float(t_iter_SR[known_SR].sum())
    return float(waits_SR[known_SR].sum() / total) if total > 0 else 0.0

"""What a window holds beside the phases: other collectives, evaluation, skipped steps, a device without work."""

import numpy as np

from ddltop.model.assessment import CollectiveFigures
from ddltop.model.averages import mean_of
from ddltop.model.window import Window
from ddltop.wire.messages import StepFlag
from ddltop.wire.phases import Phase

# A device that is reached by its work within this time had none before: launching takes about 10 us.
DRY_S = 50e-6


def collective_figures(window: Window) -> tuple[CollectiveFigures, ...]:
    """Average the collectives of a window per step and rank, the one that costs most first."""
    figures = [
        CollectiveFigures(
            kind=sums.kind,
            place=sums.place,
            calls=mean_of(sums.calls_SR) or 0.0,
            nbytes=mean_of(sums.nbytes_SR) or 0.0,
            exposed_s=mean_of(sums.exposed_SR) or 0.0,
        )
        for sums in window.collectives
    ]
    return tuple(sorted(figures, key=lambda f: (-f.exposed_s, -f.nbytes, f.kind, f.place)))


def evaluation_share(window: Window) -> float | None:
    """Give the share of time (0..1) that went to evaluation, in no phase of any step."""
    evaluation_SR, t_iter_SR = window.evaluation_SR, window.phase_SR(Phase.T_ITER)
    known_SR = np.isfinite(evaluation_SR) & np.isfinite(t_iter_SR)
    total = float((evaluation_SR + t_iter_SR)[known_SR].sum())
    return float(evaluation_SR[known_SR].sum()) / total if total > 0 else None


def skipped_share(window: Window) -> float | None:
    """Give the share of steps (0..1) in which the optimizer did not update."""
    known_SR = np.isfinite(window.phase_SR(Phase.T_ITER))
    return float(((window.flags_SR & StepFlag.SKIPPED) != 0)[known_SR].mean()) if known_SR.any() else None


def device_waited_share(window: Window) -> float | None:
    """Give the share of detailed steps (0..1) in which the device waited for the host; None without a device."""
    ahead_SR = window.host_ahead_SR
    known_SR = np.isfinite(ahead_SR)
    return float((ahead_SR[known_SR] < DRY_S).mean()) if known_SR.any() else None

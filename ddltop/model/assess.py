"""From a window to an assessment: means, waits, network, prediction, speed-up and gap.

Legend: S steps, R ranks, B buckets; seconds.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ddltop.model.allreduce import Algorithm, AllReduceCost, algbw, allreduce_cost, busbw
from ddltop.model.aside import collective_figures, device_waited_share, evaluation_share, skipped_share
from ddltop.model.assessment import (
    Assessment,
    BaselineSource,
    BucketFigures,
    GapPart,
    NetworkSource,
    PhaseMeans,
    RankFigures,
    SpeedUp,
)
from ddltop.model.averages import mean_of, mean_over
from ddltop.model.fit import CostFit, fit_cost, given_cost
from ddltop.model.gap import Prediction, Wire, split_gap
from ddltop.model.iteration import t_iter_wfbp
from ddltop.model.overlap import wfbp_schedule
from ddltop.model.speedup import deviation, scaling_efficiency, speedup
from ddltop.model.typical import typical_ranks
from ddltop.model.wait import Arrivals, arrivals
from ddltop.model.window import Floats, Window
from ddltop.wire.phases import PHASES, Phase

# A step counts as led by its last rank only when that is later than noise.
LATE_S = 1e-3
LATE_RATIO = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """t_iter(1) as measured elsewhere, seconds."""

    t_iter: float
    source: BaselineSource


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """The cost of an all-reduce as known before the run."""

    cost: AllReduceCost
    source: NetworkSource


def assess(
    window: Window,
    *,
    num_workers: int,
    network: Network | None = None,
    link_bytes_per_s: float | None = None,
    baseline: Baseline | None = None,
) -> Assessment:
    """Assess a window of at least one step and one rank.

    `network` beats the fit to the window's own buckets, which beats a ring over `link_bytes_per_s`.
    """
    waits = arrivals(window)
    is_typical_R = typical_ranks(window)
    everyone = np.ones(window.num_ranks, dtype=bool)
    means = _phase_means(window, waits, everyone)
    typical = _phase_means(window, waits, is_typical_R)
    transfers = _transfers(waits)
    fit = _network(network, window.bucket_nbytes_B, transfers.middle_B, num_workers, link_bytes_per_s)
    t_iter_1, source = _baseline(baseline, typical)
    predicted = _predict(window, is_typical_R, fit, transfers, num_workers)
    speed = _speedup(num_workers, means, typical, t_iter_1, source, fit, predicted)
    gap: tuple[GapPart, ...] = ()
    if t_iter_1 is not None and means.t_iter is not None and num_workers > 1:
        gap = split_gap(
            t_iter_n=means.t_iter,
            t_iter_1=t_iter_1,
            typical=typical,
            on_the_wire=_wire(waits, is_typical_R),
            predicted=predicted,
        )
    batch = mean_of(window.num_samples_SR)
    tokens = mean_of(window.num_tokens_SR)
    t_iter = mean_of(window.phase_SR(Phase.T_ITER))
    return Assessment(
        first_step=int(window.steps_S[0]),
        last_step=int(window.steps_S[-1]),
        num_steps=window.num_steps,
        num_detailed=int(window.is_detailed_SR.all(axis=1).sum()),
        phases=means,
        typical=typical,
        ranks=tuple(_rank_figures(window, waits, i) for i in range(window.num_ranks)),
        buckets=_bucket_figures(window, waits, transfers.middle_B, num_workers),
        collectives=collective_figures(window),
        speedup=speed,
        gap=gap,
        steps_per_s=1.0 / t_iter if t_iter else None,
        samples_per_s=batch * num_workers / t_iter if batch is not None and t_iter else None,
        batch_per_rank=batch,
        tokens_per_s=tokens * num_workers / t_iter if tokens is not None and t_iter else None,
        evaluation_share=evaluation_share(window),
        skipped_share=skipped_share(window),
        device_waited_share=device_waited_share(window),
    )


def _phase_means(window: Window, waits: Arrivals, chosen_R: NDArray[np.bool_]) -> PhaseMeans:
    values = {phase.value: mean_of(window.phase_SR(phase)[:, chosen_R]) for phase in PHASES}
    # Of the steps that are measured in detail, so that the parts add up to it.
    t_iter = mean_of(np.where(window.is_detailed_SR, window.phase_SR(Phase.T_ITER), np.nan)[:, chosen_R])
    values[Phase.T_ITER.value] = t_iter if t_iter is not None else values[Phase.T_ITER.value]
    wait = mean_of(waits.exposed_wait_SR[:, chosen_R])
    # The split is of the same exposed communication that the probe measured, so that the parts agree.
    exposed = values[Phase.T_C_NO.value]
    if wait is not None and exposed is not None:
        wait = min(wait, exposed)
    transfer = exposed - wait if wait is not None and exposed is not None else None
    others = mean_of(waits.collectives_SR[:, chosen_R])
    collectives = min(others or 0.0, transfer) if transfer is not None else None
    return PhaseMeans(exposed_transfer=transfer, exposed_wait=wait, exposed_collectives=collectives, **values)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Transfers:
    """Quartiles over the steps of each bucket's transfer, seconds; NaN when never measured."""

    low_B: Floats
    middle_B: Floats
    high_B: Floats


def _transfers(waits: Arrivals) -> _Transfers:
    columns = [column[np.isfinite(column)] for column in waits.transfer_SB.T]
    quartiles_B3 = np.array(
        [np.quantile(column, (0.25, 0.5, 0.75)) if column.size else (np.nan,) * 3 for column in columns]
    ).reshape(-1, 3)
    return _Transfers(
        low_B=quartiles_B3[:, 0],
        middle_B=quartiles_B3[:, 1],
        high_B=quartiles_B3[:, 2],
    )


def _wire(waits: Arrivals, is_typical_R: NDArray[np.bool_]) -> Wire | None:
    if waits.transfer_SB.shape[1] == 0:
        return None
    transfer = mean_of(waits.transfer_SB.sum(axis=1))
    wait = mean_of(waits.wait_SRB[:, is_typical_R].sum(axis=2))
    return Wire(transfer=transfer, wait=wait) if transfer is not None and wait is not None else None


def _network(
    given: Network | None, nbytes_B: Floats, transfer_B: Floats, num_workers: int, link_bytes_per_s: float | None
) -> CostFit | None:
    if given is None:
        fitted = fit_cost(nbytes_B, transfer_B) if nbytes_B.size else None
        if fitted is not None or link_bytes_per_s is None or nbytes_B.size == 0:
            return fitted
        ring = allreduce_cost(Algorithm.RING, num_workers, alpha=0.0, beta=1.0 / link_bytes_per_s)
        given = Network(cost=ring, source=NetworkSource.NOMINAL)
    return given_cost(given.cost, given.source, nbytes_B, transfer_B)


def _spread(fit: CostFit, nbytes_B: Floats, transfers: _Transfers) -> tuple[Floats, Floats, Floats]:
    """Give low, middle and high transfer times per bucket, seconds."""
    middle_B = fit.times(nbytes_B)
    if fit.source in (NetworkSource.LIVE_FIT, NetworkSource.LIVE_ONE_SIZE):
        return transfers.low_B, middle_B, transfers.high_B
    return middle_B / (1 + fit.relative_error), middle_B, middle_B * (1 + fit.relative_error)


def _baseline(given: Baseline | None, typical: PhaseMeans) -> tuple[float | None, BaselineSource]:
    """Give t_iter(1): measured elsewhere, else this run without its communication, max(input, computing)."""
    if given is not None:
        return given.t_iter, given.source
    computing = (typical.t_f, typical.t_b, typical.t_u)
    if any(part is None for part in computing):
        return None, BaselineSource.ESTIMATE
    reading = (typical.t_io or 0.0) + (typical.t_h2d or 0.0)
    return max(reading, sum(part for part in computing if part is not None)), BaselineSource.ESTIMATE


def _predict(
    window: Window, is_typical_R: NDArray[np.bool_], fit: CostFit | None, transfers: _Transfers, num_workers: int
) -> Prediction | None:
    """Schedule the buckets as they became ready on the typical ranks over the network of the fit."""
    if num_workers == 1:
        return Prediction(t_c=0.0, t_c_no=0.0, t_c_no_low=0.0, t_c_no_high=0.0)
    if fit is None:
        return None
    since_SRB = window.bucket_ready_SRB - window.backward_start_SR[:, :, None]
    ready_B = mean_over(mean_over(since_SRB[:, is_typical_R], axis=1), axis=0)
    backward = mean_of((window.backward_end_SR - window.backward_start_SR)[:, is_typical_R])
    if backward is None or not np.isfinite(ready_B).all():
        return None
    low, middle, high = (
        wfbp_schedule(ready_B, times_B, backward) for times_B in _spread(fit, window.bucket_nbytes_B, transfers)
    )
    return Prediction(t_c=middle.t_c, t_c_no=middle.t_c_no, t_c_no_low=low.t_c_no, t_c_no_high=high.t_c_no)


def _speedup(
    num_workers: int,
    means: PhaseMeans,
    typical: PhaseMeans,
    t_iter_1: float | None,
    source: BaselineSource,
    fit: CostFit | None,
    predicted: Prediction | None,
) -> SpeedUp:
    measured = expected = low = high = None
    if num_workers == 1:
        # One worker is its own baseline.
        t_iter_1 = means.t_iter if means.t_iter is not None else t_iter_1
    if t_iter_1 is not None and means.t_iter is not None:
        measured = speedup(num_workers, t_iter_1, means.t_iter)
    if t_iter_1 is not None and predicted is not None:
        expected, low, high = (
            speedup(num_workers, t_iter_1, _t_iter_predicted(typical, exposed, t_iter_1))
            for exposed in (predicted.t_c_no, predicted.t_c_no_high, predicted.t_c_no_low)
        )
    return SpeedUp(
        ideal=float(num_workers),
        predicted=expected,
        predicted_low=low,
        predicted_high=high,
        measured=measured,
        deviation=deviation(measured, expected) if measured is not None and expected else None,
        efficiency=scaling_efficiency(num_workers, t_iter_1, means.t_iter) if t_iter_1 and means.t_iter else None,
        t_iter_1=t_iter_1,
        baseline_source=source,
        network_source=fit.source if fit is not None else None,
        network_a=fit.cost.a if fit is not None else None,
        network_b=fit.cost.b if fit is not None else None,
    )


def _t_iter_predicted(typical: PhaseMeans, t_c_no: float, t_iter_1: float) -> float:
    """(4) with the predicted exposed communication; never below t_iter(1)."""
    t_iter = t_iter_wfbp(
        t_io=typical.t_io or 0.0,
        t_h2d=typical.t_h2d or 0.0,
        t_f=typical.t_f or 0.0,
        t_b=typical.t_b or 0.0,
        t_c_no=t_c_no,
        t_u=typical.t_u or 0.0,
    )
    return max(t_iter, t_iter_1)


def _rank_figures(window: Window, waits: Arrivals, index: int) -> RankFigures:
    chosen_R = np.zeros(window.num_ranks, dtype=bool)
    chosen_R[index] = True
    phases = _phase_means(window, waits, chosen_R)
    batch = mean_of(window.num_samples_SR[:, index])
    return RankFigures(
        rank=window.ranks[index],
        phases=phases,
        lateness_s=mean_of(waits.lateness_SR[:, index]),
        last_share=_last_share(window, waits, index),
        samples_per_s=batch / phases.t_iter if batch is not None and phases.t_iter else None,
    )


def _last_share(window: Window, waits: Arrivals, index: int) -> float | None:
    """Give the share of steps in which this rank came last, later than noise."""
    lateness_SR = waits.lateness_SR
    known_S = np.isfinite(lateness_SR).all(axis=1)
    if not known_S.any():
        return None
    late_S = lateness_SR[known_S, index]
    threshold_S = np.maximum(LATE_S, LATE_RATIO * mean_over(window.phase_SR(Phase.T_ITER), axis=1)[known_S])
    is_last_S = (late_S >= lateness_SR[known_S].max(axis=1)) & (late_S >= threshold_S)
    return float(is_last_S.mean())


def _bucket_figures(window: Window, waits: Arrivals, transfer_B: Floats, num_workers: int) -> tuple[BucketFigures, ...]:
    exposed_B = mean_over(mean_over(waits.exposed_SRB, axis=1), axis=0)
    figures = []
    for i, nbytes in enumerate(window.bucket_nbytes_B):
        transfer = float(transfer_B[i])
        is_known = np.isfinite(transfer) and transfer > 0
        figures.append(
            BucketFigures(
                index=i,
                nbytes=int(nbytes),
                transfer_s=transfer if np.isfinite(transfer) else None,
                algbw=algbw(float(nbytes), transfer) if is_known else None,
                busbw=busbw(float(nbytes), transfer, num_workers) if is_known else None,
                exposed_s=float(exposed_B[i]) if np.isfinite(exposed_B[i]) else None,
                dtype=window.bucket_dtypes_B[i],
            )
        )
    return tuple(figures)

"""Who came last and how long the others waited, equation (12) of docs/model.md; no clock is compared.

Legend: S steps, R ranks, B buckets; seconds, NaN is not measured. Every rank leaves an all-reduce only after
the last one has entered it, so the shortest stay of any rank is the transfer itself, and what another rank
stays longer is its wait. The same holds for all collectives that keep the ranks together (all-gather, barrier, ...),
of which a step has one sum per kind and place.
"""

import warnings
from dataclasses import dataclass

import numpy as np

from ddltop.model.window import Floats, Window


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Arrivals:
    """The waits and transfers of a window."""

    transfer_SB: Floats
    wait_SRB: Floats
    exposed_SRB: Floats  # part of a bucket's all-reduce after the rank's own backward
    exposed_wait_SR: Floats
    exposed_transfer_SR: Floats
    collectives_SR: Floats  # part of exposed_transfer_SR beside the buckets; 0 where there is none
    lateness_SR: Floats  # how much later than the first rank this one has its last bucket ready; 0 is the first


def arrivals(window: Window) -> Arrivals:
    """Split every all-reduce of the window into wait and transfer."""
    start, end = window.bucket_start_SRB, window.bucket_end_SRB
    duration_SRB = end - start
    transfer_SB = _over_ranks(np.nanmin, duration_SRB)
    # One rank alone tells nothing of the others: its stay may be all wait.
    transfer_SB[np.isfinite(duration_SRB).sum(axis=1) < min(2, window.num_ranks)] = np.nan
    transfer_SRB = np.broadcast_to(transfer_SB[:, None, :], duration_SRB.shape)
    wait_SRB = np.maximum(0.0, duration_SRB - transfer_SRB)
    after = window.backward_end_SR[:, :, None]
    exposed_SRB = np.maximum(0.0, end - np.maximum(start, after))
    waited_to = end - transfer_SRB
    exposed_wait_SRB = np.maximum(0.0, waited_to - np.maximum(start, after))
    other_wait_SR, other_transfer_SR = _beside_buckets(window)
    return Arrivals(
        transfer_SB=transfer_SB,
        wait_SRB=wait_SRB,
        exposed_SRB=exposed_SRB,
        exposed_wait_SR=_with_buckets(exposed_wait_SRB, other_wait_SR),
        exposed_transfer_SR=_with_buckets(exposed_SRB - exposed_wait_SRB, other_transfer_SR),
        collectives_SR=np.nan_to_num(other_transfer_SR),
        lateness_SR=_lateness(window),
    )


def _beside_buckets(window: Window) -> tuple[Floats, Floats]:
    """Split what the step waited for other collectives into wait and transfer, shape [S, R]; NaN is not measured.

    Of several calls under one sum the least of all ranks is an upper bound of the transfer: the wait is never
    overstated. Calls that not all ranks made alike are all transfer.
    """
    wait_SR = np.full((window.num_steps, window.num_ranks), np.nan)
    transfer_SR = wait_SR.copy()
    for sums in window.collectives:
        least_S = sums.exposed_SR.min(axis=1, initial=np.inf)
        is_alike_S = (sums.calls_SR == sums.calls_SR[:, :1]).all(axis=1) & np.isfinite(least_S)
        own_SR = sums.exposed_SR - np.where(is_alike_S, least_S, 0.0)[:, None]
        waited_SR = np.where(is_alike_S[:, None] & sums.is_synchronising & (window.num_ranks > 1), own_SR, 0.0)
        waited_SR[np.isnan(sums.exposed_SR)] = np.nan
        wait_SR = _joined(wait_SR, waited_SR)
        transfer_SR = _joined(transfer_SR, sums.exposed_SR - waited_SR)
    return wait_SR, transfer_SR


def _with_buckets(buckets_SRB: Floats, other_SR: Floats) -> Floats:
    """Add the buckets to the rest, where there are buckets; NaN when one of them is not measured."""
    total: Floats = _total(buckets_SRB) + np.nan_to_num(other_SR) if buckets_SRB.shape[2] else other_SR
    return total


def _joined(first_SR: Floats, second_SR: Floats) -> Floats:
    """Add two columns; what is not measured in one counts as none, in both as not measured."""
    is_known_SR = np.isfinite(first_SR) | np.isfinite(second_SR)
    return np.where(is_known_SR, np.nan_to_num(first_SR) + np.nan_to_num(second_SR), np.nan)


def _lateness(window: Window) -> Floats:
    """Give how much later than the first rank each one had its last bucket ready: both saw it end at one time.

    The last bucket, because a rank that catches up before it costs the others nothing. Not the sum of the waits:
    that counts the time in which the others were still computing themselves.
    """
    if window.num_buckets == 0:
        return _lateness_without_buckets(window)
    stay_SR = window.bucket_end_SRB[:, :, -1] - window.bucket_ready_SRB[:, :, -1]
    longest_S = _over_ranks(np.nanmax, stay_SR)
    return longest_S[:, None] - stay_SR


def _lateness_without_buckets(window: Window) -> Floats:
    """Give how much less than the longest waiting rank each one waited in the step's collectives."""
    stay_SR = np.full((window.num_steps, window.num_ranks), np.nan)
    for sums in window.collectives:
        if sums.is_synchronising:
            stay_SR = _joined(stay_SR, sums.exposed_SR)
    longest_S = _over_ranks(np.nanmax, stay_SR)
    lateness_SR: Floats = longest_S[:, None] - stay_SR
    return lateness_SR


def _total(values_SRB: Floats) -> Floats:
    """Add up the buckets; NaN when a rank has none measured, or one of them is missing."""
    total: Floats = values_SRB.sum(axis=2)
    return total


def _over_ranks(reduce: "np.ufunc | object", values: Floats) -> Floats:
    """Apply a NaN-ignoring reduction over the ranks (axis 1); NaN where no rank is measured."""
    if values.shape[1] == 0:
        return np.full(values.shape[:1] + values.shape[2:], np.nan)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return np.asarray(reduce(values, axis=1), dtype=np.float64)  # type: ignore[operator]

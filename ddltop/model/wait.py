"""Who came last and how long the others waited, equation (12) of docs/model.md; no clock is compared.

Legend: S steps, R ranks, B buckets; seconds, NaN is not measured. Every rank leaves an all-reduce only after
the last one has entered it, so the shortest stay of any rank is the transfer itself, and what another rank
stays longer is its wait.
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
    return Arrivals(
        transfer_SB=transfer_SB,
        wait_SRB=wait_SRB,
        exposed_SRB=exposed_SRB,
        exposed_wait_SR=_total(exposed_wait_SRB),
        exposed_transfer_SR=_total(exposed_SRB - exposed_wait_SRB),
        lateness_SR=_lateness(window),
    )


def _lateness(window: Window) -> Floats:
    """Give how much later than the first rank each one had its last bucket ready: both saw it end at one time.

    The last bucket, because a rank that catches up before it costs the others nothing. Not the sum of the waits:
    that counts the time in which the others were still computing themselves.
    """
    if window.num_buckets == 0:
        return np.full((window.num_steps, window.num_ranks), np.nan)
    stay_SR = window.bucket_end_SRB[:, :, -1] - window.bucket_ready_SRB[:, :, -1]
    longest_S = _over_ranks(np.nanmax, stay_SR)
    return longest_S[:, None] - stay_SR


def _total(values_SRB: Floats) -> Floats:
    """Add up the buckets; NaN when a rank has none measured, or one of them is missing."""
    if values_SRB.shape[2] == 0:
        return np.full(values_SRB.shape[:2], np.nan)
    total: Floats = values_SRB.sum(axis=2)
    return total


def _over_ranks(reduce: "np.ufunc | object", values: Floats) -> Floats:
    """Apply a NaN-ignoring reduction over the ranks (axis 1); NaN where no rank is measured."""
    if values.shape[1] == 0:
        return np.full(values.shape[:1] + values.shape[2:], np.nan)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return np.asarray(reduce(values, axis=1), dtype=np.float64)  # type: ignore[operator]

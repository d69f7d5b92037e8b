"""Fit T(M) = a + b M to measured all-reduces, robustly and with an interval.

Legend: K measurements. Relative least squares (a 64 MiB message must not decide the latency), re-weighted by
Huber's rule so that one odd size does not carry the line away; a and b are never negative.
"""

from dataclasses import dataclass

import numpy as np

from ddltop.model.allreduce import AllReduceCost, size_ratio
from ddltop.model.assessment import NetworkSource
from ddltop.model.window import Floats

# Below this spread of sizes a and b cannot be told apart.
MIN_SIZE_RATIO = 2.0
_NUM_REWEIGHTINGS = 20
_HUBER = 1.345  # standard deviations; 95 % efficiency on normal errors


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CostFit:
    """A fitted line, the measured table beside it, and how far the line misses single measurements.

    A straight line missed single sizes by -79..+50 % on gloo, so inside the table `times` interpolates; a and b
    are for reading, for other sizes and for other networks.
    """

    cost: AllReduceCost
    source: NetworkSource
    relative_error: float  # median of |measured / line - 1|
    table_nbytes: Floats  # increasing; empty when the cost was given
    table_seconds: Floats

    def times(self, nbytes_B: Floats) -> Floats:
        """Give the time of each message, shape [B], seconds: from the table inside it, from the line outside."""
        line_B = self.cost.times(nbytes_B)
        if self.table_nbytes.size == 0:
            return line_B
        inside_B = (nbytes_B >= self.table_nbytes[0]) & (nbytes_B <= self.table_nbytes[-1])
        return np.where(inside_B, np.interp(nbytes_B, self.table_nbytes, self.table_seconds), line_B)


def fit_cost(nbytes_K: Floats, seconds_K: Floats) -> CostFit | None:
    """Fit a (s) and b (s/byte) to sizes and times, shape [K] each; None without any usable measurement."""
    usable = np.isfinite(seconds_K) & (seconds_K > 0) & (nbytes_K > 0)
    nbytes, seconds = nbytes_K[usable], seconds_K[usable]
    if nbytes.size == 0:
        return None
    if size_ratio(nbytes) < MIN_SIZE_RATIO:
        cost, source = AllReduceCost(a=0.0, b=float(seconds.sum() / nbytes.sum())), NetworkSource.LIVE_ONE_SIZE
    else:
        cost, source = _robust_line(nbytes, seconds), NetworkSource.LIVE_FIT
    errors = np.abs(seconds / cost.times(nbytes) - 1)
    sizes, position = np.unique(nbytes, return_inverse=True)
    return CostFit(
        cost=cost,
        source=source,
        relative_error=float(np.median(errors)),
        table_nbytes=sizes,
        table_seconds=np.bincount(position, weights=seconds) / np.bincount(position),
    )


def given_cost(cost: AllReduceCost, source: NetworkSource, nbytes_K: Floats, seconds_K: Floats) -> CostFit:
    """Take a cost from elsewhere; the measurements, shape [K], only tell how far it misses them."""
    usable = np.isfinite(seconds_K) & (seconds_K > 0)
    errors = np.abs(seconds_K[usable] / cost.times(nbytes_K[usable]) - 1)
    return CostFit(
        cost=cost,
        source=source,
        relative_error=float(np.median(errors)) if errors.size else 0.0,
        table_nbytes=np.empty(0),
        table_seconds=np.empty(0),
    )


def _robust_line(nbytes: Floats, seconds: Floats) -> AllReduceCost:
    """Minimise the relative errors with Huber weights."""
    weight = np.ones_like(seconds)
    cost = _relative_line(nbytes, seconds, weight)
    for _ in range(_NUM_REWEIGHTINGS):
        errors = seconds / cost.times(nbytes) - 1
        scale = max(1e-9, float(np.median(np.abs(errors))) / 0.6745)
        weight = np.minimum(1.0, _HUBER * scale / np.maximum(np.abs(errors), 1e-12))
        cost = _relative_line(nbytes, seconds, weight)
    return cost


def _relative_line(nbytes: Floats, seconds: Floats, weight: Floats) -> AllReduceCost:
    """Weighted least squares of (a + b M) / T = 1; on the edge a = 0 or b = 0 when it leaves a, b >= 0."""
    root = np.sqrt(weight)
    one, size = root / seconds, root * nbytes / seconds
    # Two unknowns: if the free solution has a negative one, the best is on that edge.
    matrix = np.array([[one @ one, one @ size], [one @ size, size @ size]])
    try:
        a, b = np.linalg.solve(matrix, np.array([one @ root, size @ root]))
    except np.linalg.LinAlgError:
        a, b = -1.0, -1.0
    if b < 0:
        return AllReduceCost(a=float((one @ root) / (one @ one)), b=0.0)
    if a < 0:
        # The latency is below what can be seen: keep the total time of all messages.
        return AllReduceCost(a=0.0, b=float((weight * seconds).sum() / (weight * nbytes).sum()))
    return AllReduceCost(a=float(a), b=float(b))

"""Means that skip what is not measured, without numpy's warnings."""

import numpy as np

from ddltop.model.window import Floats


def mean_over(values: Floats, axis: int) -> Floats:
    """Average the finite values along an axis; NaN where there are none."""
    is_finite = np.isfinite(values)
    count = is_finite.sum(axis=axis)
    total = np.where(is_finite, values, 0.0).sum(axis=axis)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def mean_of(values: Floats) -> float | None:
    """Average all finite values; None when there are none."""
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if finite.size else None

"""Bars and sparklines as runs of cells; no colour, no terminal."""

import itertools
import math
from collections.abc import Sequence

SPARKS = "▁▂▃▄▅▆▇█"
ASCII_SPARKS = "_.-=+*%#"


def allot(values: Sequence[float], width: int) -> list[int]:
    """Share `width` cells out in proportion to the values; they add up to `width`, and what is seen at all gets one.

    Largest remainder: no part is more than one cell off its share, except the ones that get their single cell.
    """
    total = sum(values)
    if total <= 0 or width <= 0:
        return [0] * len(values)
    exact = [value / total * width for value in values]
    cells = [max(int(share), 1 if value > 0.004 * total else 0) for share, value in zip(exact, values, strict=True)]
    by_remainder = sorted(range(len(values)), key=lambda i: exact[i] - cells[i], reverse=True)
    missing = width - sum(cells)
    for i in by_remainder[: max(0, missing)]:
        cells[i] += 1
    while sum(cells) > width:
        cells[max(range(len(cells)), key=lambda i: cells[i])] -= 1
    while sum(cells) < width:
        cells[max(range(len(cells)), key=lambda i: exact[i])] += 1
    return cells


def sparkline(values: Sequence[float], width: int, top: float, *, ascii_only: bool = False) -> str:
    """Draw the last values in `width` cells, several to a cell by their maximum; `top` is full height, NaN a space."""
    ramp = ASCII_SPARKS if ascii_only else SPARKS
    cells = downsample(values, width)
    return "".join(_spark(value, top, ramp) for value in cells).rjust(width)


def downsample(values: Sequence[float], width: int) -> list[float]:
    """Squeeze values into at most `width` cells by their maximum, so that one outlier stays visible."""
    if len(values) <= width or width <= 0:
        return list(values[-width:] if width > 0 else [])
    edges = [round(i * len(values) / width) for i in range(width + 1)]
    return [_maximum(values[a:b]) for a, b in itertools.pairwise(edges)]


def _maximum(values: Sequence[float]) -> float:
    finite = [value for value in values if math.isfinite(value)]
    return max(finite) if finite else math.nan


def _spark(value: float, top: float, ramp: str) -> str:
    if not math.isfinite(value):
        return " "
    level = 0 if top <= 0 else int(value / top * len(ramp))
    return ramp[min(len(ramp) - 1, max(0, level))]

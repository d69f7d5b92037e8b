"""A chart of recent steps with its scale: step time, and below it the part that communication adds."""

import math

from rich.text import Text

from ddltop.collector.snapshot import History
from ddltop.presentation.bars import downsample, sparkline
from ddltop.presentation.parts import Role
from ddltop.tui.canvas import heading, line
from ddltop.tui.look import Look
from ddltop.units import format_ms

AXIS_WIDTH = 9
INDENT = 12
_EIGHTHS = " ▁▂▃▄▅▆▇█"


def history_chart(history: History, width: int, height: int, look: Look) -> list[Text]:
    """Draw t_iter over the recent steps as bars from zero, exposed communication as their lower part."""
    room = width - AXIS_WIDTH - 1
    if room < 10 or height < 4 or not history.steps:
        return []
    t_iter = downsample(history.t_iter, room)
    exposed = downsample(history.t_c_no, room)
    finite = [value for value in t_iter if math.isfinite(value)]
    if not finite:
        return []
    top = _nice(max(finite))
    rows = height - 2
    title = line((" STEP TIME ", look.title), ("ms, ", look.dim))
    title.append("exposed comm ", look.roles[Role.WAIT])
    title.append("below", look.dim)
    lines = [title]
    for row in range(rows, 0, -1):
        label = format_ms(top) if row == rows else format_ms(top / 2) if row == (rows + 1) // 2 else ""
        text = line((f"{label:>{AXIS_WIDTH - 2}} {look.pick('┤', '|') if label else look.pick('│', '|')}", look.dim))
        for total, below in zip(t_iter, exposed, strict=True):
            text.append(*_cell(total, below, row, rows, top, look))
        lines.append(text)
    first, last = f"{history.steps[0]:,}", f"step {history.steps[-1]:,}"
    gap = max(1, len(t_iter) - len(first) - len(last))
    lines.append(line((" " * AXIS_WIDTH + first + " " * gap + last, look.dim)))
    return lines


def history_line(history: History, width: int, look: Look) -> list[Text]:
    """Draw t_iter over the recent steps as one line, from zero, with its largest value."""
    room = width - INDENT - 24
    finite = [value for value in history.t_iter if math.isfinite(value)]
    if room < 8 or not finite:
        return []
    top = max(finite)
    spark = sparkline(history.t_iter, min(room, len(history.t_iter)), top, ascii_only=look.ascii_only)
    return [
        line(
            heading("STEPS", look),
            (spark, look.roles[Role.COMPUTE]),
            (f"  {len(history.steps)} steps, max {format_ms(top)} ms", look.dim),
        )
    ]


def _cell(total: float, below: float, row: int, rows: int, top: float, look: Look) -> tuple[str, str]:
    """Draw one cell: row 1 is the lowest."""
    if not math.isfinite(total):
        return " ", "none"
    height = total / top * rows
    fill = min(1.0, max(0.0, height - (row - 1)))
    full = "#" if look.ascii_only else "█"
    glyph = (full if fill >= 0.5 else " ") if look.ascii_only else _EIGHTHS[round(fill * 8)]
    is_exposed = math.isfinite(below) and below / top * rows >= row - 0.5
    if is_exposed and glyph == full:
        glyph = look.glyph(Role.WAIT)
    return glyph, look.roles[Role.WAIT if is_exposed else Role.COMPUTE]


def _nice(value: float) -> float:
    """Round up to 1, 2, 3, 4, 5, 6 or 8 times a power of ten."""
    power = 10 ** math.floor(math.log10(value)) if value > 0 else 1.0
    return next(step * power for step in (1, 2, 3, 4, 5, 6, 8, 10) if step * power >= value * 0.999)

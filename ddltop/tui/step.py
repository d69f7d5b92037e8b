"""Where the seconds of a step go, and why it is longer than one worker's."""

from rich.text import Text

from ddltop.model.assessment import Assessment
from ddltop.presentation.bars import allot
from ddltop.presentation.parts import Part, Role, gap_parts, step_parts
from ddltop.presentation.words import collective_of
from ddltop.tui.canvas import heading, line, wrap_spans
from ddltop.tui.look import Look
from ddltop.units import format_ms, format_share, format_time

INDENT = 12
# A wait below this share of a step is nothing to look at: a healthy run looks calm.
NOTABLE_WAIT = 0.05


def step_lines(assessment: Assessment, width: int, look: Look, max_lines: int = 4) -> list[Text]:
    """Draw the typical rank's step as a bar of parts with their milliseconds; the largest parts when room is short."""
    typical = assessment.typical
    parts = step_parts(typical)
    if not parts:
        return [line(heading("STEP", look), (format_time(typical.t_iter), look.number))]
    cells = allot([part.seconds for part in parts], max(8, width - INDENT - 1))
    bar = line(heading("STEP", look))
    for part, count in zip(parts, cells, strict=True):
        bar.append(look.glyph(part.role) * count, look.roles[part.role])
    legend = wrap_spans([_item(part, look, look.text) for part in parts], width, INDENT)
    if len(legend) > max_lines - 1:
        largest = sorted(parts, key=lambda part: -part.seconds)
        legend = wrap_spans([_item(part, look, look.text) for part in largest], width, INDENT)[: max_lines - 1]
    total = f" {format_time(typical.t_iter)}"
    legend[0] = line((f"{total:<{INDENT}}", look.number)) + legend[0][INDENT:]
    return [bar, *legend]


def gap_lines(assessment: Assessment, width: int, look: Look, max_lines: int) -> list[Text]:
    """Draw the gap: a line per part when there is room, else the parts side by side, largest first."""
    parts = gap_parts(assessment.gap)
    if not parts:
        return []
    total = sum(part.seconds for part in assessment.gap)
    t_iter = assessment.phases.t_iter or total
    head = heading("OVER IDEAL", look)
    if max_lines >= len(parts) and len(parts) > 1:
        lines = _tall(parts, t_iter, width, look)
        lines[1] = line((f" {format_time(total):<{INDENT - 1}}", look.number)) + lines[1][INDENT:]
    else:
        items = [
            [(format_time(total), look.number)],
            *(_item(part, look, _weight(part, t_iter, look)) for part in parts),
        ]
        lines = wrap_spans(items, width, INDENT)[:max_lines]
    lines[0] = line(head) + lines[0][INDENT:]
    return lines


def collective_lines(assessment: Assessment, width: int, look: Look, max_lines: int) -> list[Text]:
    """Draw the collectives beside DDP's buckets, the costliest first; no line when there are none."""
    if not assessment.collectives or max_lines < 1:
        return []
    lines = wrap_spans([[(collective_of(sums), look.text)] for sums in assessment.collectives], width, INDENT)
    lines[0] = line(heading("COLLECTIVE", look)) + lines[0][INDENT:]
    return lines[:max_lines]


def _tall(parts: tuple[Part, ...], total: float, width: int, look: Look) -> list[Text]:
    longest = max(part.seconds for part in parts)
    room = max(4, min(width, 110) - INDENT - 37)
    lines = []
    for part in parts:
        cells = max(1, round(part.seconds / longest * room)) if longest > 0 and part.seconds > 0 else 0
        lines.append(
            line(
                (" " * INDENT, "none"),
                (f"{part.label:<21}", look.text),
                (f"{format_ms(part.seconds):>7} ms", _weight(part, total, look)),
                (f" {format_share(part.seconds / total if total else None):>5} ", look.dim),
                (look.glyph(part.role) * cells, look.roles[part.role]),
            )
        )
    return lines


def _weight(part: Part, t_iter: float, look: Look) -> str:
    return look.accent if part.role is Role.WAIT and part.seconds > NOTABLE_WAIT * t_iter else look.text


def _item(part: Part, look: Look, style: str) -> list[tuple[str, str]]:
    return [
        (f"{look.glyph(part.role)} ", look.roles[part.role]),
        (f"{part.label} ", look.dim),
        (format_ms(part.seconds), style),
    ]

"""The whole picture as lines: a pure function of the view and the size."""

from dataclasses import dataclass

from rich.text import Text

from ddltop.collector.snapshot import Snapshot
from ddltop.tui.canvas import beside, fence, fit, line
from ddltop.tui.chart import history_chart, history_line
from ddltop.tui.doubts import doubt_lines
from ddltop.tui.findings import finding_lines, findings_page, first_finding_height
from ddltop.tui.header import footer, header, is_disconnected
from ddltop.tui.help import help_page
from ddltop.tui.look import Look
from ddltop.tui.nodes import node_lines
from ddltop.tui.ranks import num_rows, rank_lines
from ddltop.tui.speed import speed_lines
from ddltop.tui.step import collective_lines, gap_lines, step_lines
from ddltop.tui.view import Page, View
from ddltop.tui.waiting import no_figures_page, waiting_page

# From this width on, the history of steps stands beside the figures.
WIDE = 112
LEFT = 80
READABLE = 110
TALL = 34
MIN_WIDTH, MIN_HEIGHT = 20, 5


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """The sections above the ranks, and the lines that are left for the ranks, the nodes and between sections."""

    above: list[Text]
    gap: int
    ranks: int
    nodes: int


def draw(view: View, width: int, height: int, look: Look) -> list[Text]:
    """Draw the page of the view: exactly `height` lines of exactly `width` cells."""
    if width < MIN_WIDTH or height < MIN_HEIGHT:
        lines = [line(("ddltop: too small", look.text))]
        return [fit(text, width) for text in (lines + [line()] * height)[:height]]
    body_height = height - 2
    body = _body(view, width, body_height, look)
    if view.page is not Page.OVERVIEW:
        first = max(0, min(view.scroll, len(body) - body_height))
        body = body[first : first + body_height]
    if is_disconnected(view):
        body = [line((text.plain, look.dim)) for text in body]
    body = (body + [line()] * body_height)[:body_height]
    return [fit(fence(text, look), width) for text in (header(view, width, look), *body, footer(view, width, look))]


def max_scroll(view: View, width: int, height: int, look: Look) -> int:
    """Give the furthest that the page can be scrolled, lines (ranks on the overview)."""
    if view.page is not Page.OVERVIEW:
        return max(0, len(_body(view, width, height - 2, look)) - (height - 2))
    if view.snapshot is None or view.snapshot.assessment is None:
        return 0
    num_ranks = len(view.snapshot.ranks)
    return num_ranks - num_rows(num_ranks, _arrange(view.snapshot, width, height - 2, look).ranks)


def _body(view: View, width: int, height: int, look: Look) -> list[Text]:
    if view.page is Page.HELP:
        return [line(), *help_page(width, look)]
    if view.snapshot is None:
        return waiting_page(look, "looking for the run ...")
    if view.page is Page.FINDINGS:
        return [line(), *findings_page(view.snapshot, min(width, READABLE), look)]
    if view.snapshot.assessment is None:
        return no_figures_page(view.snapshot, look)
    return _overview(view, width, height, look)


def _overview(view: View, width: int, height: int, look: Look) -> list[Text]:
    """Draw every section; the ranks, the nodes and the chart share what the others leave."""
    snapshot = view.snapshot
    assert snapshot is not None
    layout = _arrange(snapshot, width, height, look)
    ranks = rank_lines(view, width, look, layout.ranks)
    room = height - len(layout.above) - len(ranks)
    nodes = node_lines(snapshot, width, look, max(layout.nodes, min(room, 4 * len(snapshot.nodes))))
    room -= len(nodes) + layout.gap
    chart = history_chart(snapshot.history, width, min(room, 12), look) if width < WIDE and room >= 6 else []
    return [*layout.above, *ranks, *nodes, *([line()] * layout.gap if chart else []), *chart]


def _arrange(snapshot: Snapshot, width: int, height: int, look: Look) -> _Layout:
    """Give every section its lines: speed, step and gap always; then findings, ranks and nodes share the rest."""
    gap = 1 if height >= 21 else 0
    figures = _figures(snapshot, width, height, look)
    text_width = min(width, READABLE)
    doubts = doubt_lines(snapshot, text_width, look)[: 2 if height >= 30 else 1 if height >= 18 else 0]
    room = height - len(figures) - len(doubts) - gap
    nodes = _nodes_room(snapshot, room, height >= TALL)
    wanted_ranks = min(len(snapshot.ranks), 1 if room < 5 else 2 if room < 12 else 4) + 1
    # The gravest finding is shown whole: blank lines and nodes give way to its next step.
    needed = first_finding_height(snapshot, text_width, look)
    if needed > room - nodes - wanted_ranks - gap:
        room += gap
        gap = 0
        nodes = max(0, min(nodes, room - wanted_ranks - needed))
    findings = finding_lines(snapshot, text_width, look, max(1, room - nodes - wanted_ranks - gap))
    above = [*figures, *[line()] * gap, *findings, *doubts, *[line()] * gap]
    room = height - len(above) - nodes
    return _Layout(above=above, gap=gap, ranks=max(2, min(room, len(snapshot.ranks) + 1)), nodes=nodes)


def _figures(snapshot: Snapshot, width: int, height: int, look: Look) -> list[Text]:
    """Draw how fast the run is and where its seconds go, with the history beside it where there is room."""
    assessment = snapshot.assessment
    assert assessment is not None
    left_width = LEFT if width >= WIDE else width
    lines = speed_lines(assessment.speedup, left_width, look)
    lines += [line()] * (1 if height >= 21 else 0)
    lines += step_lines(assessment, left_width, look, 4 if height >= 18 else 3 if height >= 13 else 2)
    lines += [line()] * (1 if height >= TALL else 0)
    lines += gap_lines(assessment, left_width, look, 9 if height >= TALL else 2 if height >= 18 else 1)
    few = 1 if height >= 21 and not assessment.buckets else 0
    lines += collective_lines(assessment, left_width, look, 3 if height >= TALL else few)
    if width >= WIDE:
        chart = history_chart(snapshot.history, width - left_width - 2, max(8, len(lines)), look)
        return beside(lines, chart, left_width + 2, width - left_width - 2)
    return lines + (history_line(snapshot.history, width, look) if height >= 14 else [])


def _nodes_room(snapshot: Snapshot, room: int, is_tall: bool) -> int:
    if room < 8:
        return 0
    wanted = len(snapshot.nodes) * (3 if is_tall else 2)
    return min(wanted, max(2, room // 5))

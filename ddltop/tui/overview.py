"""The whole picture as lines: a pure function of the view and the size."""

from rich.text import Text

from ddltop.collector.snapshot import Snapshot
from ddltop.tui.canvas import beside, fit, line
from ddltop.tui.chart import history_chart, history_line
from ddltop.tui.findings import finding_lines, findings_page, first_finding_height
from ddltop.tui.header import footer, header
from ddltop.tui.help import help_page
from ddltop.tui.look import Look
from ddltop.tui.nodes import node_lines
from ddltop.tui.ranks import rank_lines
from ddltop.tui.speed import speed_lines
from ddltop.tui.step import gap_lines, step_lines
from ddltop.tui.view import Page, View

# From this width on, the history of steps stands beside the figures.
WIDE = 112
LEFT = 80
MIN_WIDTH, MIN_HEIGHT = 20, 5


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
    body = (body + [line()] * body_height)[:body_height]
    return [header(view, width, look), *(fit(text, width) for text in body), footer(view, width, look)]


def max_scroll(view: View, width: int, height: int, look: Look) -> int:
    """Give the furthest that the page can be scrolled, lines (ranks on the overview)."""
    if view.page is Page.OVERVIEW:
        return max(0, len(view.snapshot.ranks) - 1) if view.snapshot else 0
    return max(0, len(_body(view, width, height - 2, look)) - (height - 2))


def _body(view: View, width: int, height: int, look: Look) -> list[Text]:
    if view.page is Page.HELP:
        return [line(), *help_page(width, look)]
    if view.snapshot is None:
        return _waiting(look, "looking for the run ...")
    if view.page is Page.FINDINGS:
        return [line(), *findings_page(view.snapshot, min(width, 110), look)]
    if view.snapshot.assessment is None:
        return _no_figures(view.snapshot, look)
    return _overview(view, width, height, look)


def _overview(view: View, width: int, height: int, look: Look) -> list[Text]:
    """Give every section its lines: speed, step and gap always; then findings, ranks and nodes share the rest."""
    snapshot = view.snapshot
    assert snapshot is not None
    assert snapshot.assessment is not None
    left_width = LEFT if width >= WIDE else width
    is_tall = height >= 34
    gap = 1 if height >= 21 else 0
    top = speed_lines(snapshot.assessment.speedup, left_width, look)
    top += [line()] * gap + step_lines(snapshot.assessment, left_width, look)
    top += [line()] * (gap if is_tall else 0)
    top += gap_lines(snapshot.assessment, left_width, look, 9 if is_tall else 2 if height >= 18 else 1)
    if width < WIDE and height >= 14:
        top += history_line(snapshot.history, width, look)
    if width >= WIDE:
        chart = history_chart(snapshot.history, width - left_width - 2, len(top), look)
        top = beside(top, chart, left_width + 2, width - left_width - 2)
    room = height - len(top) - gap
    nodes_room = _nodes_room(snapshot, room, is_tall)
    wanted_ranks = min(len(snapshot.ranks), 2 if room < 12 else 4) + 1
    # The gravest finding is shown whole: blank lines and nodes give way to its next step.
    needed = first_finding_height(snapshot, min(width, 110), look)
    if needed > room - nodes_room - wanted_ranks - gap:
        room += gap
        gap = 0
        nodes_room = max(0, min(nodes_room, room - wanted_ranks - needed))
    findings = finding_lines(snapshot, min(width, 110), look, max(1, room - nodes_room - wanted_ranks - gap))
    room -= len(findings) + gap + nodes_room
    ranks = rank_lines(view, width, look, max(2, min(room, len(snapshot.ranks) + 1)))
    room -= len(ranks)
    nodes = node_lines(snapshot, width, look, nodes_room + min(max(0, room), 4 * len(snapshot.nodes)))
    room -= max(0, len(nodes) - nodes_room)
    chart = history_chart(snapshot.history, width, min(room - gap, 12), look) if width < WIDE and room > 5 else []
    if chart:
        nodes += [line()] * gap + chart
    return [*top, *[line()] * gap, *findings, *[line()] * gap, *ranks, *nodes]


def _nodes_room(snapshot: Snapshot, room: int, is_tall: bool) -> int:
    if room < 8:
        return 0
    wanted = len(snapshot.nodes) * (3 if is_tall else 2)
    return min(wanted, max(2, room // 5))


def _no_figures(snapshot: Snapshot, look: Look) -> list[Text]:
    if not snapshot.ranks:
        return _waiting(look, "no rank has reported yet")
    names = ", ".join(f"r{rank.rank}" for rank in snapshot.ranks[:16])
    return _waiting(
        look, f"{len(snapshot.ranks)} of {snapshot.run.world_size} ranks are here ({names}); first steps ..."
    )


def _waiting(look: Look, what: str) -> list[Text]:
    return [
        line(),
        line(("  Waiting: ", look.title), (what, look.text)),
        line(),
        line(("  A run reports by itself when it is started so:", look.dim)),
        line(("     ddltop run -- torchrun --nproc-per-node 8 train.py", look.number)),
        line(("  or when its script says", look.dim)),
        line(("     import ddltop; ddltop.instrument()", look.number)),
        line(),
        line(("  It measures every rank that builds a DistributedDataParallel model.", look.dim)),
    ]

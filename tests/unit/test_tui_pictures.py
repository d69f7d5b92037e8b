"""The pictures are pure functions: at every size, in every look, they keep their bounds and say what matters."""

from dataclasses import replace

import pytest
from rich.text import Text

from ddltop.collector.snapshot import RunState, Snapshot
from ddltop.presentation.parts import step_parts
from ddltop.tui.keys import KEYS
from ddltop.tui.look import THEMES, make_look
from ddltop.tui.overview import draw
from ddltop.tui.view import Page, Sort, View
from tests.unit.builders import make_snapshot, without_figures

SIZES = [(40, 10), (60, 16), (80, 24), (100, 30), (120, 40), (200, 60), (20, 5), (2, 2)]


def text_of(lines: list[Text]) -> str:
    return "\n".join(line.plain for line in lines)


def picture(snapshot: Snapshot | None, width: int = 80, height: int = 24, **changes: object) -> str:
    view = replace(View(snapshot=snapshot), **changes)  # type: ignore[arg-type]
    return text_of(draw(view, width, height, make_look("dark")))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("num_ranks", [1, 2, 16, 200])
@pytest.mark.parametrize("page", list(Page))
def test_every_line_is_exactly_as_wide_as_the_screen(size: tuple[int, int], num_ranks: int, page: Page) -> None:
    width, height = size
    late = 1 if num_ranks > 1 else None
    for snapshot in (make_snapshot(num_ranks, late_rank=late, has_gpus=num_ranks > 2), None):
        lines = draw(View(snapshot=snapshot, page=page), width, height, make_look("dark"))
        assert len(lines) == height
        assert {line.cell_len for line in lines} == {width}


def test_the_first_screen_says_how_far_below_the_model_why_who_and_what_next() -> None:
    shown = picture(make_snapshot(8, late_rank=5))
    for fact in ("measured", "predicted", "ideal 8x", "below", "wait for late ranks", "backward-straggler", "r5@node0"):
        assert fact in shown, fact
    assert "compare r5@node0 with its neighbours" in " ".join(shown.split())
    rows = [line for line in shown.splitlines() if line.startswith(" r")]
    assert rows[0].startswith(" r5@node0")  # the latest rank first


def test_ranks_that_do_not_fit_become_one_line() -> None:
    shown = picture(make_snapshot(200, late_rank=150))
    assert "r150@node18" in shown
    assert "more, none of them late" in shown


@pytest.mark.parametrize("size", SIZES)
def test_ascii_mode_has_only_ascii(size: tuple[int, int]) -> None:
    for page in Page:
        view = View(snapshot=make_snapshot(4, late_rank=1, has_gpus=True), page=page)
        text_of(draw(view, *size, make_look("dark", ascii_only=True))).encode("ascii")


def test_without_colour_no_style_names_a_colour() -> None:
    view = View(snapshot=make_snapshot(4, late_rank=1))
    for line in draw(view, 80, 24, make_look("dark", colour=False)):
        assert not [span.style for span in line.spans if "color" in str(span.style)]


@pytest.mark.parametrize("theme", THEMES)
def test_each_part_of_a_step_has_a_glyph_of_its_own_beside_its_neighbour(theme: str) -> None:
    look = make_look(theme)
    assessment = make_snapshot(4, late_rank=1).assessment
    assert assessment is not None
    roles = [part.role for part in step_parts(assessment.typical)]
    marks = [(look.glyph(role), look.roles[role]) for role in roles]
    assert len(set(marks)) == len(marks)


def test_strings_of_strangers_cannot_drive_the_terminal() -> None:
    snapshot = make_snapshot(2, late_rank=1)
    evil = "\x1b[2J\x1b]0;owned\x07\u202e"
    ranks = tuple(replace(rank, node=rank.node + evil) for rank in snapshot.ranks)
    nodes = tuple(replace(node, node=node.node + evil) for node in snapshot.nodes)
    findings = tuple(replace(finding, why=finding.why + evil) for finding in snapshot.findings)
    hostile = replace(
        snapshot, ranks=ranks, nodes=nodes, findings=findings, run=replace(snapshot.run, model="net" + evil)
    )
    for page in Page:
        shown = picture(hostile, page=page)
        assert not [c for c in shown if c != "\n" and not c.isprintable()]


def test_secrets_of_the_command_line_are_not_shown() -> None:
    nameless = make_snapshot(2)
    nameless = replace(nameless, run=replace(nameless.run, model=""))
    assert "secret" not in picture(nameless, 200, 60)
    assert "train.py" in picture(nameless, 200, 60)


def test_a_waiting_screen_says_how_to_start_a_run() -> None:
    assert "ddltop run -- torchrun" in picture(replace(without_figures(make_snapshot(2)), ranks=()))
    assert "2 of 2 ranks are here" in picture(without_figures(make_snapshot(2)))


def test_old_data_never_looks_live() -> None:
    live = make_snapshot(2)
    assert "live" in picture(live)
    assert "old" in picture(live, age_s=3.0)
    assert "DISCONNECTED" in picture(live, age_s=9.0)
    assert "PAUSED" in picture(live, is_paused=True)
    assert "STALLED" in picture(replace(live, state=RunState.STALLED))
    assert "ended, exit 0" in picture(make_snapshot(2, state=RunState.ENDED), age_s=9.0)
    assert "replay" in picture(live, is_replay=True)


def test_unmeasured_is_a_dash_and_never_a_zero() -> None:
    snapshot = make_snapshot(2)
    assert snapshot.assessment is not None
    figures = tuple(
        replace(f, lateness_s=None, phases=replace(f.phases, t_f=None, t_b=None, exposed_wait=None))
        for f in snapshot.assessment.ranks
    )
    shown = picture(replace(snapshot, assessment=replace(snapshot.assessment, ranks=figures)))
    row = next(line for line in shown.splitlines() if line.startswith(" r0@node0"))
    assert row.split()[1] == "-"


def test_sorting_by_rank_puts_rank_zero_first() -> None:
    shown = picture(make_snapshot(8, late_rank=5), sort=Sort.RANK)
    rows = [line for line in shown.splitlines() if line.startswith(" r") and "@" in line]
    assert rows[0].startswith(" r0@")


def test_help_lists_every_key() -> None:
    shown = picture(make_snapshot(2), 80, 30, page=Page.HELP)
    for key in KEYS:
        assert key.help in shown

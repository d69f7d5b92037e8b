"""What a screen meets in the wild: nothing measured, strangers' strings, a thousand ranks, a narrow terminal."""

import time
from dataclasses import fields, replace

import msgspec
import pytest

from ddltop.collector.snapshot import History, RunState, Snapshot
from ddltop.model.assessment import PhaseMeans
from ddltop.presentation.parts import Role
from ddltop.tui.look import make_look
from ddltop.tui.overview import draw, max_scroll
from ddltop.tui.ranks import rank_lines
from ddltop.tui.view import Page, Sort, View
from tests.unit.builders import make_snapshot, without_figures

SIZES = [(40, 10), (60, 16), (80, 24), (120, 40), (200, 60)]
DARK = make_look("dark")


def picture(snapshot: Snapshot, width: int = 80, height: int = 24, **changes: object) -> str:
    view = replace(View(snapshot=snapshot), **changes)  # type: ignore[arg-type]
    return "\n".join(text.plain for text in draw(view, width, height, DARK))


def unmeasured(snapshot: Snapshot) -> Snapshot:
    """Give the same run with every figure None."""
    assessment = snapshot.assessment
    assert assessment is not None
    none = PhaseMeans(**{field.name: None for field in fields(PhaseMeans)})
    ranks = tuple(
        replace(rank, phases=none, lateness_s=None, last_share=None, samples_per_s=None) for rank in assessment.ranks
    )
    speed = replace(
        assessment.speedup,
        predicted=None,
        predicted_low=None,
        predicted_high=None,
        measured=None,
        deviation=None,
        efficiency=None,
        t_iter_1=None,
        network_source=None,
    )
    empty = replace(
        assessment,
        phases=none,
        typical=none,
        ranks=ranks,
        buckets=(),
        speedup=speed,
        gap=(),
        steps_per_s=None,
        samples_per_s=None,
        batch_per_rank=None,
    )
    history = History(steps=(), t_iter=(), t_c_no=(), lateness={})
    return replace(snapshot, assessment=empty, history=history, nodes=(), findings=())


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("page", list(Page))
def test_nothing_measured_draws_dashes_and_no_zero(size: tuple[int, int], page: Page) -> None:
    shown = picture(unmeasured(make_snapshot(4, late_rank=1)), *size, page=page)
    if page is Page.OVERVIEW:
        row = next(line for line in shown.splitlines() if line.startswith(" r0@"))
        assert set(row.split()[1:]) == {"-"}


@pytest.mark.parametrize("values", [(float("nan"), float("nan")), (0.0, 0.0)])
@pytest.mark.parametrize("size", SIZES)
def test_a_history_without_heights_is_drawn(values: tuple[float, float], size: tuple[int, int]) -> None:
    history = History(steps=(1, 2), t_iter=values, t_c_no=values, lateness={0: values})
    assert "SPEED-UP" in picture(replace(make_snapshot(2), history=history), *size)


def test_no_string_of_a_driver_or_a_recording_reaches_the_terminal_as_it_is() -> None:
    evil = "\x1b]52;c;cm0gLXJm\x07\x9b2J\n\u202e"
    snapshot = make_snapshot(2, late_rank=1, has_gpus=False)
    sample = snapshot.nodes[0].sample
    assert sample is not None
    nics = tuple(msgspec.structs.replace(nic, name=evil) for nic in sample.nics)
    node = replace(snapshot.nodes[0], node=evil, sample=msgspec.structs.replace(sample, gpu_status=evil, nics=nics))
    finding = replace(snapshot.findings[0], evidence={evil: 1.0}, next_step=evil, nodes=(evil,))
    run = replace(snapshot.run, model=evil, backend=evil, unmeasured={evil: evil})
    hostile = replace(snapshot, nodes=(node,), findings=(finding,), run=run)
    for page in Page:
        shown = picture(hostile, 120, 40, page=page)
        assert not [c for c in shown if c != "\n" and not c.isprintable()]
        assert len(shown.splitlines()) == 40


def test_ascii_mode_has_only_ascii_whatever_hosts_are_called() -> None:
    snapshot = make_snapshot(2, late_rank=1)
    ranks = tuple(replace(rank, node="nœud-日本") for rank in snapshot.ranks)
    lines = draw(View(snapshot=replace(snapshot, ranks=ranks)), 80, 24, make_look("dark", ascii_only=True))
    assert all(line.plain.isascii() and line.cell_len == 80 for line in lines)


@pytest.mark.parametrize("size", SIZES)
def test_wide_characters_do_not_widen_a_line(size: tuple[int, int]) -> None:
    snapshot = make_snapshot(2, late_rank=1)
    ranks = tuple(replace(rank, node="計算機" * 9) for rank in snapshot.ranks)
    lines = draw(View(snapshot=replace(snapshot, ranks=ranks)), *size, DARK)
    assert {line.cell_len for line in lines} == {size[0]}


def test_a_thousand_ranks_are_drawn_in_a_blink_and_the_late_one_is_seen() -> None:
    snapshot = make_snapshot(1024, late_rank=700, has_gpus=True)
    begun = time.process_time()
    shown = picture(snapshot)
    # About 5 ms; the bound only catches a table that grows with the square of the ranks.
    assert time.process_time() - begun < 0.25
    assert "r700@node87" in shown
    assert "1,0" in next(line for line in shown.splitlines() if "more, none of them late" in line)


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
def test_scrolling_reaches_the_last_rank_and_each_press_moves_the_table(size: tuple[int, int]) -> None:
    snapshot = make_snapshot(40, late_rank=5)
    last = max_scroll(View(snapshot=snapshot), *size, DARK)
    tables = [picture(snapshot, *size, sort=Sort.RANK, scroll=scroll) for scroll in range(last + 1)]
    assert len(set(tables)) == len(tables)
    assert "r39@node4" in tables[-1]


def test_the_table_has_every_rank_once() -> None:
    snapshot = make_snapshot(9)
    seen: list[str] = []
    for scroll in range(7):
        view = View(snapshot=snapshot, sort=Sort.RANK, scroll=scroll)
        seen += [line.plain.split()[0] for line in rank_lines(view, 80, DARK, 5) if line.plain.startswith(" r")]
    assert set(seen) == {rank.label for rank in snapshot.ranks}


@pytest.mark.parametrize("has_gpus", [True, False])
def test_each_rank_has_its_recent_lateness_beside_it_at_80_columns(has_gpus: bool) -> None:
    shown = picture(make_snapshot(8, late_rank=5, has_gpus=has_gpus)).splitlines()
    row = next(line for line in shown if line.startswith(" r5@"))
    assert row.rstrip().endswith("█" * 12)
    head = next(line for line in shown if line.startswith(" RANK"))
    assert head.index("late") == row.index("40.")  # a number of four characters stands under its name
    assert "lateness" in head


def test_the_end_of_a_long_host_name_stays_for_hosts_differ_there() -> None:
    snapshot = make_snapshot(16, late_rank=5)
    ranks = tuple(replace(rank, node=f"gpu-a100-rack07-node{rank.rank // 8:02d}") for rank in snapshot.ranks)
    rows = [line for line in picture(replace(snapshot, ranks=ranks)).splitlines() if line.startswith(" r")]
    assert rows[0].split()[0].endswith("node00")


@pytest.mark.parametrize("size", [(40, 10), (60, 16)])
def test_a_narrow_screen_still_says_how_far_what_and_who(size: tuple[int, int]) -> None:
    shown = picture(make_snapshot(8, late_rank=5), *size)
    for fact in ("3.", "below", "backward-straggler", "r5@node0", "wait"):
        assert fact in shown, fact


def test_a_fact_is_shown_whole_or_not_at_all() -> None:
    for width in range(40, 120):
        lines = picture(make_snapshot(8, late_rank=5), width).splitlines()
        assert "12,4" not in lines[0] or "step 12,418" in lines[0]
        head = next(line for line in lines if "backward-straggler" in line)
        assert "since" not in head or "since step 11,902" in head


def test_what_was_lost_is_counted_on_the_screen() -> None:
    snapshot = make_snapshot(8, late_rank=5)
    quality = replace(snapshot.quality, dropped=1_200, lost_batches=3, rejected=2, missing_ranks=(3, 7))
    shown = picture(replace(snapshot, quality=quality), 120, 40)
    for fact in ("missing r3, r7", "1,200 steps dropped", "3 batches lost", "2 frames refused"):
        assert fact in shown, fact
    assert "LOST" not in picture(snapshot, 120, 40)
    assert "missing r3, r7" in picture(replace(snapshot, quality=quality))


def test_what_is_not_measured_says_why() -> None:
    snapshot = make_snapshot(2)
    why = "buckets are not timed: a hook of its own"
    run = replace(snapshot.run, unmeasured={"t_c": why, "t_c_no": why})
    assert f"t_c, t_c_no: {why}" in picture(replace(snapshot, run=run), page=Page.FINDINGS)


def test_a_finding_on_many_ranks_names_the_first_and_counts_the_rest() -> None:
    snapshot = make_snapshot(64, late_rank=5)
    finding = replace(snapshot.findings[0], ranks=tuple(range(40)))
    shown = picture(replace(snapshot, findings=(finding,)))
    assert "r0@node0, r1@node0, r2@node0 and 37 more" in shown


def test_a_disconnected_picture_has_lost_its_colours() -> None:
    view = View(snapshot=make_snapshot(4, late_rank=1), age_s=9.0)
    header, *body, _ = draw(view, 80, 24, DARK)
    assert "DISCONNECTED" in header.plain
    assert {str(span.style) for text in body for span in text.spans} == {DARK.dim}
    paused = draw(replace(view, is_paused=True), 80, 24, DARK)
    assert {str(span.style) for text in paused[1:-1] for span in text.spans} > {DARK.dim}


def test_a_run_that_ended_before_its_first_steps_is_not_waited_for() -> None:
    dead = replace(without_figures(make_snapshot(2)), state=RunState.ENDED)
    shown = picture(replace(dead, run=replace(dead.run, exit_code=1)))
    assert "ended, exit 1" in shown
    assert "Waiting" not in shown


def test_without_colour_each_part_still_has_a_glyph_of_its_own() -> None:
    for ascii_only in (True, False):
        look = make_look("dark", colour=False, ascii_only=ascii_only)
        assert len({look.glyph(role) for role in Role}) == len(Role)


def test_without_colour_the_state_is_as_plain_as_the_header() -> None:
    lines = draw(View(snapshot=make_snapshot(2)), 80, 24, make_look("dark", colour=False))
    assert {str(span.style) for span in lines[0].spans} <= {"reverse", "bold reverse"}


def test_a_short_wait_is_no_alarm() -> None:
    lines = draw(View(snapshot=make_snapshot(2)), 80, 24, DARK)
    assert not [span for line in lines[1:-1] for span in line.spans if span.style == DARK.accent]

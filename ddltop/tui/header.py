"""The first line: what runs, how fast, and whether what you see is alive. The last line: the keys."""

from rich.cells import cell_len
from rich.text import Text

from ddltop.collector.snapshot import RunState, Snapshot
from ddltop.presentation.words import plain, state_of, title_of
from ddltop.tui.canvas import fit, line, spread
from ddltop.tui.keys import KEYS
from ddltop.tui.look import Look
from ddltop.tui.view import View
from ddltop.units import format_clock, format_number, format_time

# An age above this is shown: the data is older than the slowest healthy refresh.
OLD_S = 2.0
# The collector's silence, not the run's: the connection is gone.
DISCONNECTED_S = 5.0


def header(view: View, width: int, look: Look) -> Text:
    """Draw the first line."""
    snapshot = view.snapshot
    if snapshot is None:
        return fit(line((" ddltop", look.key), (" " * width, look.bar)), width)
    badge = _badge(view, look)
    name, *who = title_of(snapshot).split("  ")
    left = line((f" {name}", look.key))
    # A fact is shown whole or not at all: half a number is a wrong number.
    for fact, style in [(fact, look.key) for fact in who] + [(fact, look.bar) for fact in _facts(snapshot)]:
        if left.cell_len + 3 + cell_len(fact) <= width - badge.cell_len:
            left.append(f"  {fact}", style)
    left.append(" " * width, look.bar)
    return spread(left, badge, width)


def _facts(snapshot: Snapshot) -> list[str]:
    """Give step, pace and duration, the most important first."""
    facts = [f"step {snapshot.num_steps:,}"]
    assessment = snapshot.assessment
    if assessment is not None:
        facts.append(f"{format_number(assessment.steps_per_s)} it/s")
        facts.append(f"{format_number(assessment.samples_per_s)} smp/s")
    return [*facts, format_clock(snapshot.duration_s)]


def _badge(view: View, look: Look) -> Text:
    """Say what the picture is: live, paused, replay, stalled, ended, waiting or disconnected; and how old."""
    snapshot = view.snapshot
    assert snapshot is not None
    background = look.bar.partition(" on ")[2]
    on = f" on {background}" if background else " reverse"
    word, style = state_of(snapshot), (look.good + on).removeprefix("none ")
    if snapshot.state is RunState.STALLED:
        word, style = "STALLED", look.accent + on
    elif snapshot.state is not RunState.LIVE:
        style = look.key
    if view.is_replay:
        word, style = f"replay {word}" if snapshot.state is RunState.ENDED else "replay", look.warn + on
    if view.is_paused:
        word, style = "PAUSED", look.warn + on
    elif is_disconnected(view):
        word, style = f"DISCONNECTED {format_time(round(view.age_s))}", look.accent + on
    elif view.age_s > OLD_S and snapshot.state is not RunState.ENDED and not view.is_replay:
        word += f" {format_time(round(view.age_s))} old"
    dot = look.pick("● ", "* ")
    return line((f" {dot}{word} ", style))


def is_disconnected(view: View) -> bool:
    """Tell whether the source has gone silent: what is shown is the past, and must look it."""
    snapshot = view.snapshot
    if snapshot is None or view.is_replay or view.is_paused or snapshot.state is RunState.ENDED:
        return False
    return view.age_s > DISCONNECTED_S


def footer(view: View, width: int, look: Look) -> Text:
    """Draw the last line: the keys, or a message while there is one."""
    if view.message:
        return fit(line((f" {plain(view.message)} ", look.key), (" " * width, look.bar)), width)
    pace = line((f" every {view.refresh_s:g} s ", look.bar))
    text = Text("", end="", no_wrap=True)
    for key in KEYS:
        item = line((f" {key.shown.split()[0]}", look.key), (f" {key.footer} ", look.bar))
        if key.footer and text.cell_len + item.cell_len <= width - pace.cell_len:
            text.append_text(item)
    text.append(" " * width, look.bar)
    return spread(text, pace, width)

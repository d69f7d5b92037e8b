"""The speed-up: the first number a user looks for, as a line and as a bar with its scale."""

from rich.text import Text

from ddltop.model.assessment import SpeedUp
from ddltop.presentation.parts import Role
from ddltop.presentation.words import predicted_of, verdict_of
from ddltop.tui.canvas import heading, line
from ddltop.tui.look import Look
from ddltop.units import format_speedup

# Below this the distance to the prediction is worth the accent.
NOTABLE = -0.10


def speed_lines(speed: SpeedUp, width: int, look: Look) -> list[Text]:
    """Draw measured, predicted and ideal speed-up; where room is short, the verdict is the last thing to go."""
    is_bad = speed.deviation is not None and speed.deviation <= NOTABLE
    forms = (
        _words(speed, look, is_bad, predicted_of(speed)),
        _words(speed, look, is_bad, ""),
        _short(speed, look, is_bad),
    )
    words = next((form for form in forms if form.cell_len <= width), forms[-1])
    return [words, _bar(speed, width, look, is_bad)]


def _words(speed: SpeedUp, look: Look, is_bad: bool, predicted: str) -> Text:
    return line(
        heading("SPEED-UP", look),
        ("measured ", look.dim),
        (format_speedup(speed.measured), look.number),
        ("  predicted ", look.dim),
        (predicted or format_speedup(speed.predicted), look.text),
        ("  ideal ", look.dim),
        (f"{speed.ideal:.0f}x", look.text),
        (f"  {verdict_of(speed)}", look.accent if is_bad else look.good),
    )


def _short(speed: SpeedUp, look: Look, is_bad: bool) -> Text:
    return line(
        heading("SPEED-UP", look),
        (format_speedup(speed.measured), look.number),
        (" of ", look.dim),
        (format_speedup(speed.predicted), look.text),
        (f"  {verdict_of(speed)}", look.accent if is_bad else look.good),
    )


def _bar(speed: SpeedUp, width: int, look: Look, is_bad: bool) -> Text:
    end = f" {speed.ideal:.0f}x"
    room = max(4, width - 12 - 3 - len(end) - 1)
    scale = max(speed.ideal, speed.measured or 0.0)
    measured = round((speed.measured or 0.0) / scale * room)
    predicted = round(speed.predicted / scale * room) if speed.predicted is not None else None
    cells = line((" " * 12 + "0x ", look.dim))
    filled, gap, rest = look.pick("█", "#"), look.pick("░", "."), look.pick("·", " ")
    for i in range(room):
        if predicted is not None and i == min(room - 1, max(0, predicted - 1)):
            cells.append(look.pick("┃", "|"), look.marker)
        elif i < measured:
            cells.append(filled, look.roles[Role.COMPUTE])
        elif predicted is not None and i < predicted:
            cells.append(gap, look.accent if is_bad else look.dim)
        else:
            cells.append(rest, look.dim)
    cells.append(end, look.dim)
    return cells

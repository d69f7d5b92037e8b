"""Lines of styled text that keep to a width."""

from collections.abc import Iterable

from rich.cells import cell_len
from rich.text import Text

from ddltop.presentation.words import plain
from ddltop.tui.look import Look

Span = tuple[str, str]
"""(text, style)."""


def line(*spans: Span) -> Text:
    """Join spans into one line."""
    text = Text(no_wrap=True, overflow="crop", end="")
    for content, style in spans:
        text.append(content, style)
    return text


def fit(text: Text, width: int) -> Text:
    """Cut or pad a line to exactly `width` cells."""
    text = text.copy()
    text.truncate(width, overflow="crop", pad=True)
    return text


def fence(text: Text, look: Look) -> Text:
    """Replace, cell by cell, what a terminal would obey, and in ASCII mode what is not ASCII: the last look at a line.

    Strings of a run (hosts, models, drivers) come from the wire or from a recording of a stranger.
    """
    safe = plain(text.plain)
    if look.ascii_only:
        safe = safe.encode("ascii", "replace").decode("ascii")
    if safe == text.plain:
        return text
    # One character stands for one, so the spans keep their places.
    return Text(safe, spans=text.spans, style=text.style, no_wrap=True, overflow="crop", end="")


def spread(left: Text, right: Text, width: int) -> Text:
    """Set one text at the left and one at the right end of a line; the left one gives way."""
    room = width - right.cell_len
    if room < 8:
        return fit(left, width)
    return Text.assemble(fit(left, room), right, end="", no_wrap=True)


def beside(left: list[Text], right: list[Text], left_width: int, right_width: int) -> list[Text]:
    """Set two blocks side by side."""
    height = max(len(left), len(right))
    blank = Text("", end="")
    rows = []
    for i in range(height):
        a = left[i] if i < len(left) else blank
        b = right[i] if i < len(right) else blank
        rows.append(Text.assemble(fit(a, left_width), fit(b, right_width), end="", no_wrap=True))
    return rows


def wrap_spans(items: Iterable[list[Span]], width: int, indent: int) -> list[Text]:
    """Set items side by side, two cells apart, never breaking one; every line begins with `indent` cells."""
    lines: list[Text] = []
    used = width
    for item in items:
        length = sum(cell_len(content) for content, _ in item)
        if used + 2 + length > width or not lines:
            lines.append(line((" " * indent, "none")))
            used = indent
        else:
            lines[-1].append("  ")
            used += 2
        for content, style in item:
            lines[-1].append(content, style)
        used += length
    return lines


def wrap_words(text: str, width: int, style: str, first: Text, indent: int) -> list[Text]:
    """Wrap a sentence; it begins behind `first`, later lines behind `indent` cells."""
    lines = [first]
    for word in text.split():
        current = lines[-1]
        if current.cell_len + 1 + cell_len(word) > width and current.cell_len > indent:
            current = line((" " * indent, "none"))
            lines.append(current)
        elif current.cell_len > indent:
            current.append(" ")
        current.append(word, style)
    return lines


def heading(name: str, look: Look, width: int = 12) -> Span:
    """Give a section's name, padded to the left margin of its content."""
    return (f" {name:<{width - 1}}"[:width], look.title)

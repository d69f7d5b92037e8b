"""A picture of the screen without a terminal: for README and for looking at what we made."""

import io
import re

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import TerminalTheme

from ddltop.tui.look import background, make_look
from ddltop.tui.overview import draw
from ddltop.tui.view import View

# Without the web fonts of rich's own template: a picture asks no other host for anything.
_SELF_CONTAINED = (
    re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    .replace("Fira Code", "DejaVu Sans Mono, Menlo, Consolas")
    .replace("<svg ", '<svg xml:space="preserve" ', 1)
)
_ANSI = [(0, 0, 0), (205, 49, 49), (13, 188, 121), (229, 229, 16), (36, 114, 200), (188, 63, 188), (17, 168, 205)]


def picture_svg(
    view: View, *, width: int, height: int, theme: str = "dark", ascii_only: bool = False, colour: bool = True
) -> str:
    """Draw a view as an SVG of `width` x `height` cells."""
    console = Console(
        width=width, height=height, record=True, color_system="256", force_terminal=True, file=io.StringIO()
    )
    for text in draw(view, width, height, make_look(theme, colour=colour, ascii_only=ascii_only)):
        console.print(text, no_wrap=True, overflow="crop")
    return console.export_svg(title="ddltop", theme=_terminal_theme(theme), code_format=_SELF_CONTAINED)


def _terminal_theme(theme: str) -> TerminalTheme:
    dark = theme == "dark"
    colour = background(theme).lstrip("#")
    back = (int(colour[:2], 16), int(colour[2:4], 16), int(colour[4:], 16))
    return TerminalTheme(back, (208, 208, 208) if dark else (40, 40, 40), [*_ANSI, (229, 229, 229)])

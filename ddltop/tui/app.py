"""The Textual app around the pure pictures: a thread polls the source, keys change the view, one widget draws."""

import math
import os
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from ddltop.collector.snapshot import Snapshot
from ddltop.errors import DdltopError
from ddltop.sources.source import Source, SourceMode
from ddltop.tui.keys import KEYS
from ddltop.tui.look import Look, background, make_look
from ddltop.tui.overview import draw, max_scroll
from ddltop.tui.view import Page, Sort, View

INTERVALS_S = (0.5, 1.0, 2.0, 5.0)
CLOCK_S = 0.5
MESSAGE_S = 5.0


class Picture(Widget):
    """The whole screen; draws the app's view."""

    DEFAULT_CSS = "Picture { width: 100%; height: 100%; }"

    def __init__(self, look: Look, view: View) -> None:
        super().__init__()
        self.look = look
        self.view = view
        self._lines: list[Text] = []

    def show(self, view: View) -> None:
        """Draw another view; only the lines that differ are painted, a slow line carries no more."""
        self.view = view
        before, self._lines = self._lines, draw(view, *self.size, self.look)
        changed = [
            Region(0, y, self.size.width, 1)
            for y, text in enumerate(self._lines)
            if y >= len(before) or text != before[y] or text.spans != before[y].spans
        ]
        if changed:
            self.refresh(*changed)

    def on_resize(self) -> None:
        """Draw at the new size."""
        self._lines = draw(self.view, *self.size, self.look)
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """Give line `y` as a strip (Textual's line API)."""
        # NO_COLOR's filter crashes on a segment without a style (Textual 8.2), so every one gets one.
        if y >= len(self._lines):
            return Strip([Segment(" " * self.size.width, Style.null())], self.size.width)
        segments = [
            Segment(segment.text, segment.style or Style.null())
            for segment in self._lines[y].render(self.app.console)
            if segment.text != "\n"
        ]
        return Strip(segments, self.size.width)


class DdltopApp(App[int]):
    """Show one source."""

    ENABLE_COMMAND_PALETTE = False
    CSS = "Screen { layout: vertical; }"
    BINDINGS: ClassVar[list[BindingType]] = [Binding(key.keys, key.action, key.help, show=False) for key in KEYS]

    class Arrived(Message):
        """A snapshot came from the source."""

        def __init__(self, snapshot: Snapshot) -> None:
            super().__init__()
            self.snapshot = snapshot

    class Failed(Message):
        """The source cannot go on."""

        def __init__(self, error: DdltopError) -> None:
            super().__init__()
            self.error = error

    def __init__(
        self,
        source: Source,
        *,
        theme: str = "dark",
        ascii_only: bool = False,
        colour: bool = True,
        refresh_s: float = INTERVALS_S[0],
    ) -> None:
        super().__init__()
        self._source = source
        self._background = background(theme)
        view = View(snapshot=None, is_replay=source.mode is SourceMode.REPLAY, refresh_s=refresh_s)
        self._picture = Picture(make_look(theme, colour=colour, ascii_only=ascii_only), view)
        self._arrived_at = time.monotonic()
        self._message_until = 0.0
        self._leaving = threading.Event()
        self._going = threading.Event()
        self._going.set()
        self._poller = threading.Thread(target=self._poll, name="ddltop-viewer", daemon=True)

    @property
    def view(self) -> View:
        """What is shown."""
        return self._picture.view

    @property
    def look(self) -> Look:
        """How it is shown."""
        return self._picture.look

    def compose(self) -> ComposeResult:
        """One widget fills the screen."""
        yield self._picture

    def on_mount(self) -> None:
        """Start polling."""
        self.screen.styles.background = self._background
        self.set_interval(CLOCK_S, self._show_age)
        self._poller.start()

    def on_unmount(self) -> None:
        """Stop polling and wait for the thread: the source is closed next."""
        self._leaving.set()
        self._going.set()
        if self._poller.is_alive():
            self._poller.join(5.0)

    def _poll(self) -> None:
        """Run in a thread of its own: the source may block up to a second."""
        while not self._leaving.is_set():
            begun = time.monotonic()
            try:
                snapshot = self._source.poll(1.0)
            except DdltopError as error:
                self.post_message(self.Failed(error))
                return
            if snapshot is not None:
                self.post_message(self.Arrived(snapshot))
            self._leaving.wait(max(0.0, self._picture.view.refresh_s - (time.monotonic() - begun)))
            self._going.wait()

    def on_ddltop_app_arrived(self, message: Arrived) -> None:
        """Show a new snapshot, unless paused."""
        self._arrived_at = time.monotonic()
        if not self.view.is_paused:
            self._change(snapshot=message.snapshot, age_s=0.0)

    def on_ddltop_app_failed(self, message: Failed) -> None:
        """Say what went wrong in the footer; what was seen stays."""
        self._say(message.error.message, math.inf)

    def _show_age(self) -> None:
        now = time.monotonic()
        if self.view.message and now > self._message_until:
            self._change(message="")
        if self.view.snapshot is not None:
            self._change(age_s=now - self._arrived_at)

    def _say(self, message: str, seconds: float = MESSAGE_S) -> None:
        self._message_until = time.monotonic() + seconds
        self._change(message=message)

    def _change(self, **changes: object) -> None:
        self._picture.show(replace(self._picture.view, **changes))  # type: ignore[arg-type]

    def action_leave(self) -> None:
        """Leave with exit code 0."""
        self.exit(0)

    def action_show_help(self) -> None:
        """Show the help, or go back."""
        self._turn_to(Page.HELP)

    def action_show_findings(self) -> None:
        """Show all findings, or go back."""
        self._turn_to(Page.FINDINGS)

    def action_to_overview(self) -> None:
        """Go back to the overview."""
        self._change(page=Page.OVERVIEW, scroll=0, message="")

    def _turn_to(self, page: Page) -> None:
        self._change(page=Page.OVERVIEW if self.view.page is page else page, scroll=0, message="")

    def action_pause(self) -> None:
        """Hold the picture (and a replay), or go on."""
        is_paused = not self.view.is_paused
        if is_paused and self.view.is_replay:
            self._going.clear()
        else:
            self._going.set()
        self._change(is_paused=is_paused)

    def action_sort(self) -> None:
        """Take the next order of ranks."""
        orders = list(Sort)
        self._change(sort=orders[(orders.index(self.view.sort) + 1) % len(orders)], scroll=0)

    def action_scroll(self, lines: int) -> None:
        """Scroll the ranks or the page."""
        # Never further than there is anything: each press back must be seen.
        last = max_scroll(self.view, *self._picture.size, self.look)
        self._change(scroll=min(last, max(0, self.view.scroll + lines)))

    def action_interval(self) -> None:
        """Take the next refresh interval."""
        later = [s for s in INTERVALS_S if s > self.view.refresh_s]
        self._change(refresh_s=later[0] if later else INTERVALS_S[0])

    def action_export(self) -> None:
        """Save the screen as SVG and text in the current directory."""
        stem = Path(f"ddltop-{time.strftime('%Y%m%d-%H%M%S')}")
        width, height = self._picture.size
        try:
            stem.with_suffix(".svg").write_text(self.export_screenshot(title="ddltop"))
            text = "\n".join(line.plain.rstrip() for line in draw(self.view, width, height, self.look))
            stem.with_suffix(".txt").write_text(text + "\n")
        except OSError as error:
            self._say(f"not saved: {error.strerror}")
            return
        self._say(f"saved {stem}.svg and .txt")


def run(source: Source, *, theme: str, ascii_only: bool, colour: bool) -> int:
    """Show a source until the user leaves; give the exit code."""
    # Textual takes COLORTERM at its word even where TERM says that there is nothing to colour.
    colour = colour and os.environ.get("TERM") not in ("dumb", "unknown")
    app = DdltopApp(source, theme=theme, ascii_only=ascii_only, colour=colour)
    # No mouse: the terminal's own selection keeps working, which people paste from.
    code = app.run(mouse=False)
    return code if code is not None else (app.return_code or 0)

"""The app around the pictures: every key does what the help says, and the source is polled in a thread of its own."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from textual.pilot import Pilot

from ddltop.collector.snapshot import Snapshot
from ddltop.errors import NoRunError
from ddltop.sources.source import SourceMode
from ddltop.tui.app import INTERVALS_S, DdltopApp, run
from ddltop.tui.keys import KEYS
from ddltop.tui.look import make_look
from ddltop.tui.view import Page, Sort
from tests.unit.builders import make_snapshot


class Steady:
    """A source that gives one snapshot again and again."""

    mode = SourceMode.LIVE

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.threads: set[int] = set()

    def poll(self, timeout_s: float) -> Snapshot | None:
        self.threads.add(threading.get_ident())
        return self.snapshot

    def close(self) -> None:
        pass


def drive(app: DdltopApp, act: Callable[[Pilot[int]], Awaitable[None]], size: tuple[int, int] = (80, 24)) -> None:
    async def run() -> None:
        async with app.run_test(size=size) as pilot:
            for _ in range(200):
                if app.view.snapshot is not None:
                    break
                await pilot.pause(0.02)
            await act(pilot)

    asyncio.run(run())


def test_every_key_on_the_help_has_an_effect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    app = DdltopApp(Steady(make_snapshot(64, late_rank=5)))
    effects: dict[str, tuple[str, Callable[[], bool]]] = {
        "show_help": ("question_mark", lambda: app.view.page is Page.HELP),
        "to_overview": ("escape", lambda: app.view.page is Page.OVERVIEW),
        "scroll(1)": ("j", lambda: app.view.scroll == 1),
        "scroll(-1)": ("k", lambda: app.view.scroll == 0),
        "show_findings": ("d", lambda: app.view.page is Page.FINDINGS),
        "sort": ("s", lambda: app.view.sort is Sort.RANK),
        "interval": ("r", lambda: app.view.refresh_s == INTERVALS_S[1]),
        "pause": ("p", lambda: app.view.is_paused),
        "export": ("E", lambda: len(list(tmp_path.glob("ddltop-*"))) == 2),
    }
    assert {key.action for key in KEYS} == {*effects, "leave"}

    async def act(pilot: Pilot[int]) -> None:
        for name, (key, has_effect) in effects.items():
            await pilot.press(key)
            await pilot.pause()
            assert has_effect(), name
        await pilot.press("q")

    drive(app, act)
    assert app.return_value == 0
    text = next(tmp_path.glob("*.txt")).read_text()
    assert "backward-straggler" in text
    assert next(tmp_path.glob("*.svg")).read_text().startswith("<svg")


def test_a_paused_screen_keeps_its_picture_and_a_going_one_does_not() -> None:
    source = Steady(make_snapshot(2))
    app = DdltopApp(source, refresh_s=0.05)

    async def act(pilot: Pilot[int]) -> None:
        await pilot.press("space")
        held = app.view.snapshot
        source.snapshot = make_snapshot(4)
        await pilot.pause(0.3)
        assert app.view.snapshot is held
        await pilot.press("space")
        await pilot.pause(0.3)
        assert app.view.snapshot is source.snapshot

    drive(app, act)


def test_the_source_is_never_polled_by_the_thread_that_draws() -> None:
    source = Steady(make_snapshot(2))

    async def act(pilot: Pilot[int]) -> None:
        await pilot.pause()

    drive(DdltopApp(source), act)
    assert threading.get_ident() not in source.threads


def test_a_source_that_fails_is_said_so_and_the_picture_stays() -> None:
    class Failing(Steady):
        def poll(self, timeout_s: float) -> Snapshot | None:
            if self.threads:
                raise NoRunError("the collector refuses this viewer", "upgrade")
            return super().poll(timeout_s)

    app = DdltopApp(Failing(make_snapshot(2)), refresh_s=0.01)

    async def act(pilot: Pilot[int]) -> None:
        await pilot.pause(0.3)
        assert "refuses" in app.view.message
        assert app.view.snapshot is not None

    drive(app, act)


@pytest.mark.parametrize("size", [(40, 10), (200, 60), (2, 2)])
def test_resizing_redraws_at_the_new_size(size: tuple[int, int]) -> None:
    app = DdltopApp(Steady(make_snapshot(16, late_rank=3)))

    async def act(pilot: Pilot[int]) -> None:
        await pilot.resize_terminal(*size)
        await pilot.pause(0.1)
        assert app.size == size

    drive(app, act)


@pytest.mark.parametrize("theme", ["dark", "light"])
def test_the_no_color_variable_is_honoured(monkeypatch: pytest.MonkeyPatch, theme: str) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    app = DdltopApp(Steady(make_snapshot(4, late_rank=1)), colour=False, theme=theme)

    async def act(pilot: Pilot[int]) -> None:
        await pilot.press("question_mark", "d", "d")
        await pilot.pause(0.1)

    drive(app, act)
    assert app.view.snapshot is not None


@pytest.mark.parametrize("options", [{"theme": "light"}, {"ascii_only": True}, {"colour": False}])
def test_every_look_runs(options: dict[str, object]) -> None:
    app = DdltopApp(Steady(make_snapshot(4, late_rank=1)), **options)  # type: ignore[arg-type]

    async def act(pilot: Pilot[int]) -> None:
        await pilot.pause(0.1)
        assert "SPEED-UP" in app.export_screenshot().replace("&#160;", " ")

    drive(app, act)


def test_a_terminal_that_calls_itself_dumb_gets_no_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    seen: list[DdltopApp] = []

    def leave(app: DdltopApp, **_: object) -> int:
        seen.append(app)
        return 0

    monkeypatch.setattr(DdltopApp, "run", leave)
    assert run(Steady(make_snapshot(2)), theme="dark", ascii_only=False, colour=True) == 0
    assert seen[0].look == make_look("dark", colour=False)

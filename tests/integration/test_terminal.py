"""Real ranks on the real screen in a real terminal: tmux at 80x24 and 120x40."""

import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ddltop.tui.keys import KEYS
from tests.integration.conftest import Lab

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
Wait = Callable[[Callable[[], Any], float], Any]

# One key of each action as tmux names it, and what must be on the screen after it.
PRESSES = {
    "show_help": ("?", "ON THE SCREEN"),
    "to_overview": ("Escape", "SPEED-UP"),
    "scroll(1)": ("j", "SPEED-UP"),
    "scroll(-1)": ("k", "SPEED-UP"),
    "sort": ("s", "SPEED-UP"),
    "show_findings": ("d", "FINDINGS"),
    "pause": ("p", "PAUSED"),
    "interval": ("r", "every 1 s"),
    "export": ("E", "saved ddltop-"),
}


class Terminal:
    """One tmux session on a server of its own."""

    def __init__(self, lab: Lab, width: int, height: int, command: list[str]) -> None:
        self._lab = lab
        size = ["-x", str(width), "-y", str(height)]
        line = " ".join(f"'{word}'" for word in command)
        environ = [item for k, v in lab.environ.items() if k in ("HOME", "PATH") for item in ("-e", f"{k}={v}")]
        self._tmux("new-session", "-d", *size, *environ, "-c", str(lab.home), f"{line}; echo left with $?; sleep 60")

    def screen(self) -> str:
        return self._tmux("capture-pane", "-p")

    def press(self, key: str) -> None:
        self._tmux("send-keys", key)

    def close(self) -> None:
        self._tmux("kill-server")

    def _tmux(self, *words: str) -> str:
        socket = str(self._lab.home / "tmux.sock")
        done = subprocess.run(
            ["tmux", "-S", socket, "-f", "/dev/null", *words],
            env=dict(self._lab.environ, TERM="xterm-256color", LC_ALL="C.UTF-8"),
            capture_output=True,
            text=True,
            check=False,
            timeout=20,
        )
        return done.stdout


@pytest.fixture
def training(lab: Lab) -> "Iterator[subprocess.Popen[str]]":
    process = lab.start(lab.command("run", "--", *lab.torchrun("--model", "cnn", "--duration", "90")))
    yield process
    process.terminate()
    process.communicate(timeout=60)


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
def test_real_ranks_are_seen_live_and_every_key_works(
    lab: Lab, training: object, wait_for: Wait, size: tuple[int, int]
) -> None:
    wait_for(lambda: lab.run_dirs and (lab.run_dirs[0] / "collector.sock").exists(), 30)
    terminal = Terminal(lab, *size, lab.command())
    try:
        wait_for(lambda: "SPEED-UP" in terminal.screen(), 60)
        screen = terminal.screen()
        assert "live" in screen
        assert "CNN  ddp/gloo  2 ranks, 1 node" in screen
        assert re.search(r"^ r0@\S+ +\d", screen, re.MULTILINE)
        assert re.search(r"^ r1@\S+ +\d", screen, re.MULTILINE)
        wait_for(lambda: "no GPU" in terminal.screen(), 15)
        assert max(len(line) for line in screen.splitlines()) <= size[0]
        before = step_of(screen)
        wait_for(lambda: step_of(terminal.screen()) > before + 5, 30)
        assert {key.action for key in KEYS} == {*PRESSES, "leave"}
        for action, (key, expected) in PRESSES.items():
            terminal.press(key)
            wait_for(lambda e=expected: e in terminal.screen(), 15), action
        terminal.press("q")
        wait_for(lambda: "left with 0" in terminal.screen(), 15)
    finally:
        terminal.close()


def step_of(screen: str) -> int:
    found = re.search(r"step ([\d,]+)", screen)
    return int(found.group(1).replace(",", "")) if found else -1


def test_the_demo_shows_its_training_and_ends_it_with_the_screen(lab: Lab, wait_for: Wait) -> None:
    terminal = Terminal(lab, 80, 24, lab.command("demo", "--fault", "forward-delay:rank=1,ms=40"))
    try:
        wait_for(lambda: "forward-straggler" in terminal.screen(), 90)
        assert "r1@" in terminal.screen()
        terminal.press("q")
        wait_for(lambda: "left with 0" in terminal.screen(), 30)
    finally:
        terminal.close()


def test_a_replay_shows_the_finding_of_the_live_run(lab: Lab, wait_for: Wait) -> None:
    words = lab.torchrun("--model", "cnn", "--steps", "120", "--fault", "backward-delay:rank=0,ms=40")
    assert lab.ddltop("run", "--", *words, timeout=120).returncode == 0
    terminal = Terminal(lab, 80, 24, lab.command("replay", "--speed", "20"))
    try:
        wait_for(lambda: "backward-straggler" in terminal.screen(), 30)
        assert "replay" in terminal.screen()
        assert "r0@" in terminal.screen()
    finally:
        terminal.close()

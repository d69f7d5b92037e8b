"""Training must not depend on us: collector or agent killed with -9 in the middle, or never there."""

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from tests.integration.conftest import Lab
from tests.integration.test_watched_training import final_loss

Wait = Callable[[Callable[[], Any], float], Any]
ARGUMENTS = ("--model", "cnn", "--steps", "300", "--seed", "5")


def find_process(lab: Lab, module: str) -> int | None:
    """Give the process that serves this lab's run: its command line names the lab's home."""
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if module in words and any(str(lab.home) in word for word in words):
            return process.pid
    return None


def steps_so_far(lab: Lab) -> int:
    done = lab.ddltop("--once", timeout=40)
    found = re.search(r"step ([\d,]+)", done.stdout)
    return int(found.group(1).replace(",", "")) if found else 0


def test_killing_collector_and_agent_changes_neither_result_nor_exit_code(lab: Lab, wait_for: Wait) -> None:
    control = lab.execute(lab.torchrun(*ARGUMENTS))
    process = lab.start(lab.command("run", "--", *lab.torchrun(*ARGUMENTS)))
    collector = wait_for(lambda: find_process(lab, "collect"), 30)
    agent = wait_for(lambda: find_process(lab, "ddltop_agents.node"), 30)
    wait_for(lambda: steps_so_far(lab) > 10, 60)
    os.kill(collector, signal.SIGKILL)
    os.kill(agent, signal.SIGKILL)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == control.returncode == 0, errors
    assert final_loss(output) == final_loss(control.stdout)


def test_after_a_kill_a_collector_and_an_agent_are_back_and_the_run_is_seen_again(lab: Lab, wait_for: Wait) -> None:
    process = lab.start(lab.command("run", "--", *lab.torchrun("--model", "cnn", "--duration", "45")))
    try:
        first = {wait_for(lambda m=module: find_process(lab, m), 30) for module in ("collect", "ddltop_agents.node")}
        wait_for(lambda: steps_so_far(lab) > 10, 60)
        for pid in first:
            os.kill(pid, signal.SIGKILL)
        second = {
            wait_for(lambda m=module: _other_than(find_process(lab, m), first), 30)
            for module in ("collect", "ddltop_agents.node")
        }
        assert not first & second
        wait_for(lambda: steps_so_far(lab) > 30, 40)
    finally:
        process.terminate()
        process.communicate(timeout=60)


def _other_than(pid: int | None, known: set[int]) -> int | None:
    return pid if pid not in known else None


def test_without_a_place_for_its_files_the_command_runs_unwatched(lab: Lab) -> None:
    blocked = lab.home / ".ddltop"
    blocked.write_text("in the way")
    (lab.home / "run").mkdir()
    environ = dict(lab.environ, XDG_RUNTIME_DIR=str(lab.home / "run"))
    (lab.home / "run" / "ddltop").write_text("in the way too")
    done = Lab(home=lab.home, environ=environ).ddltop("run", "--", "sh", "-c", "echo trained; exit 5")
    assert done.returncode == 5
    assert "trained" in done.stdout
    assert "not watched" in done.stderr


def test_signals_reach_the_command(lab: Lab, wait_for: Wait) -> None:
    mark = lab.home / "ready"
    script = f"trap 'echo got TERM; exit 9' TERM; touch {mark}; while :; do sleep 0.1; done"
    process = lab.start(lab.command("run", "--", "sh", "-c", script))
    wait_for(mark.exists, 20)
    process.send_signal(signal.SIGTERM)
    output, _errors = process.communicate(timeout=30)
    assert "got TERM" in output
    assert process.returncode == 9


def test_nothing_is_left_behind_when_the_run_is_over(lab: Lab, wait_for: Wait) -> None:
    done = lab.ddltop("run", "--", *lab.torchrun("--model", "tiny", "--steps", "100"))
    assert done.returncode == 0
    wait_for(lambda: not lab.run_dirs, 20)
    wait_for(lambda: find_process(lab, "collect") is None, 20)
    recordings = list((Path(lab.home) / ".local" / "state" / "ddltop").iterdir())
    assert [path.suffix for path in recordings] == [".ddltop"]
    assert recordings[0].stat().st_mode & 0o777 == 0o600

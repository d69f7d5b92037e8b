"""Stacks and profiles of a live training: what comes back, what is refused, and that the training is the same."""

import gzip
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import ROOT, Lab
from tests.integration.recorded import recorded

STEPS = ("--model", "tiny", "--steps", "1500")
# A training that lasts as long as a test needs it, however slow the machine is.
ENDLESS = ("--model", "tiny", "--steps", "1000000")
Wait = Callable[[Callable[[], Any], float], Any]


def loss_of(output: str) -> list[str]:
    return re.findall(r"final loss (\S+)", output)


def is_stepping(lab: Lab) -> bool:
    done = lab.ddltop("--json")
    return done.returncode == 0 and json.loads(done.stdout)["run"]["steps"] > 0


def ended(run: "subprocess.Popen[str]") -> tuple[str, str]:
    out, err = run.communicate(timeout=120)
    assert run.returncode == 0, err
    return out, err


def test_a_profile_and_stacks_come_back_and_change_nothing(lab: Lab, wait_for: Wait) -> None:
    run = lab.start(lab.command("run", "--", *lab.torchrun(*STEPS)))
    wait_for(lambda: is_stepping(lab), 30)
    profile = lab.ddltop("profile", "--steps", "4", "-o", "traces")
    stacks = lab.ddltop("stacks")
    one = lab.ddltop("stacks", "--rank", "1")
    absent = lab.ddltop("stacks", "--rank", "7")
    out, _ = ended(run)

    assert profile.returncode == 0, profile.stderr
    for rank in (0, 1):
        trace = json.loads(gzip.decompress((lab.home / "traces" / f"trace-r{rank}.json.gz").read_bytes()))
        names = [event["name"] for event in trace["traceEvents"] if event.get("ph") == "X"]
        assert names.count("Optimizer.step#SGD.step") == 4
        assert "gloo:all_reduce" in names
        assert f"r{rank}@" in profile.stdout
    assert stacks.returncode == 0, stacks.stderr
    assert stacks.stdout.count("MainThread, trains") == 2
    assert "train.py" in stacks.stdout
    assert "ddltop-sender" not in stacks.stdout
    assert re.findall(r"=== r(\d)", one.stdout) == ["1"]
    assert absent.returncode == 2
    assert "r7" in absent.stderr
    assert loss_of(out) == loss_of(lab.execute(lab.torchrun(*STEPS)).stdout)
    # The profiled steps are steps like all others.
    assert {step.rank: step.step + 1 for step in recorded(lab).steps} == {0: 1500, 1: 1500}


def test_what_cannot_be_done_is_refused_with_its_reason(lab: Lab, wait_for: Wait) -> None:
    run = lab.start(lab.command("run", "--", *lab.torchrun(*STEPS)))
    wait_for(lambda: is_stepping(lab), 30)
    asking = [lab.start(lab.command("profile", "--steps", "100", "--rank", "0", "-o", f"traces{i}")) for i in range(3)]
    told = [(process.communicate(timeout=60)[1], process.returncode) for process in asking]
    ended(run)
    over = lab.ddltop("stacks")
    assert 0 in [code for _, code in told]
    assert any(code == 1 and "busy: another profile" in err for err, code in told), told
    assert over.returncode == 2
    assert lab.ddltop("profile", "--steps", "0").returncode == 2


def test_a_script_that_profiles_itself_keeps_its_profiler(lab: Lab, wait_for: Wait) -> None:
    script = lab.home / "own.py"
    script.write_text(
        "import time, torch\n"
        "m = torch.nn.Linear(8, 8); o = torch.optim.SGD(m.parameters(), lr=0.1)\n"
        "with torch.profiler.profile() as p:\n"
        "    for _ in range(300):\n"
        "        m(torch.randn(4, 8)).sum().backward(); o.step(); time.sleep(0.02)\n"
        "print('own', len(p.events()) > 300)\n"
    )
    run = lab.start(lab.command("run", "--", sys.executable, str(script)))
    wait_for(lambda: is_stepping(lab), 30)
    done = lab.ddltop("profile", "--steps", "2")
    out, _ = ended(run)
    assert done.returncode == 1
    assert "profiler of its own" in done.stderr
    assert "own True" in out


def test_a_training_that_ends_first_says_so(lab: Lab, wait_for: Wait) -> None:
    script = lab.home / "short.py"
    script.write_text(
        "import time, torch\n"
        "m = torch.nn.Linear(8, 8); o = torch.optim.SGD(m.parameters(), lr=0.1)\n"
        "for _ in range(80):\n"
        "    m(torch.randn(4, 8)).sum().backward(); o.step(); time.sleep(0.05)\n"
    )
    run = lab.start(lab.command("run", "--", sys.executable, str(script)))
    wait_for(lambda: is_stepping(lab), 30)
    done = lab.ddltop("profile", "--steps", "100")
    ended(run)
    assert done.returncode == 1
    assert "ended before" in done.stderr


def test_a_rank_that_is_stopped_is_given_up_and_answers_are_not_mixed_up(lab: Lab, wait_for: Wait) -> None:
    run = lab.start(lab.command("run", "--", *lab.torchrun(*ENDLESS)))
    wait_for(lambda: is_stepping(lab), 30)
    pids = {hello.rank: hello.pid for hello in _hellos(lab)}
    os.kill(pids[1], signal.SIGSTOP)
    try:
        done = lab.ddltop("stacks", timeout=40)
    finally:
        os.kill(pids[1], signal.SIGCONT)
    time.sleep(1)
    again = lab.ddltop("stacks")
    run.terminate()
    run.communicate(timeout=60)
    assert done.returncode == 1
    assert "=== r0" in done.stdout
    assert "r1: it does not answer" in done.stderr
    assert again.stdout.count("MainThread, trains") == 2


def _hellos(lab: Lab) -> list[Any]:
    """What the ranks have told of themselves, read from the live run's processes."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            environ = dict(item.split("=", 1) for item in (path / "environ").read_text().split("\0") if "=" in item)
            command = (path / "cmdline").read_text()
        except OSError:
            continue
        if environ.get("HOME") == str(lab.home) and "RANK" in environ and str(ROOT / "demo" / "train.py") in command:
            found.append(_Rank(int(environ["RANK"]), int(path.name)))
    return found


class _Rank:
    def __init__(self, rank: int, pid: int) -> None:
        self.rank, self.pid = rank, pid


@pytest.mark.parametrize("words", [("stacks", "tcp://127.0.0.1:1"), ("profile", "no-such-run")])
def test_a_run_that_is_not_there_is_an_error_that_says_what_to_do(lab: Lab, words: tuple[str, ...]) -> None:
    done = lab.ddltop(*words)
    assert done.returncode == 2
    assert done.stderr.startswith("ddltop: ")

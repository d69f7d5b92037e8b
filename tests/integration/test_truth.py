"""Our phases against timers written into the script, and against torch.profiler, on the same steps."""

import json
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.integration.conftest import Lab
from tests.integration.measured_script import STEPS, WARM_UP

SCRIPT = Path(__file__).with_name("measured_script.py")
PHASES = ("t_io", "t_f", "t_b", "t_c", "t_c_no", "t_u", "t_iter", "rest")


Steps = dict[str, np.ndarray]


def agree(ours: np.ndarray, theirs: np.ndarray) -> bool:
    """Step by step, in the median, within 5 % or 0.3 ms; a process put aside between two stamps is nobody's error."""
    return bool(abs(np.median(ours - theirs)) <= max(0.05 * np.median(theirs), 0.3e-3))


def steps_of(recording: Path, rank: int) -> Steps:
    """Our figures of the compared steps, straight from the recording's own table."""
    with sqlite3.connect(recording) as database:
        rows = database.execute(
            f"SELECT {', '.join(PHASES)} FROM steps WHERE rank = ? AND step >= ? AND step < ? ORDER BY step",
            (rank, WARM_UP, STEPS - 1),
        ).fetchall()
    assert len(rows) == STEPS - 1 - WARM_UP
    return dict(zip(PHASES, np.array(rows, dtype=float).T, strict=True))


def measure(lab: Lab, mode: str) -> Iterator[tuple[Steps, Steps, dict[str, float]]]:
    """Train once; give per rank, seconds: ours and the timers of the script step by step, the mean of the profiler."""
    out = lab.home / "measured"
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = lab.ddltop("run", "--", *words, str(SCRIPT), str(out), mode, timeout=180)
    assert done.returncode == 0, done.stderr
    recording = next((lab.home / ".local" / "state" / "ddltop").glob("*.ddltop"))
    for rank in range(2):
        theirs = json.loads(Path(f"{out}.rank{rank}").read_text())
        yield (
            steps_of(recording, rank),
            {name: np.array(values[WARM_UP : STEPS - 1]) for name, values in theirs["timers"].items()},
            {name: total / (STEPS - WARM_UP) for name, total in theirs["profiler"].items()},
        )


def test_phases_agree_with_the_timers_of_the_script(lab: Lab) -> None:
    for ours, timers, _ in measure(lab, "timers"):
        for phase in ("t_io", "t_f", "t_b", "t_c", "t_u"):
            assert agree(ours[phase], timers[phase]), (phase, ours[phase], timers[phase])


def test_phases_agree_with_the_profiler(lab: Lab) -> None:
    for ours, timers, profiled in measure(lab, "profiler"):
        assert agree(ours["t_f"], timers["t_f"])
        assert agree(ours["t_u"], timers["t_u"])
        mean = {phase: float(values.mean()) for phase, values in ours.items()}
        # The profiler's own recording of each operator is inside its events (and ours): they are compared loosely.
        assert mean["t_u"] == pytest.approx(profiled["t_u"], rel=0.12)
        assert mean["t_f"] >= profiled["ddp_forward"] * 0.95  # ours includes the loss
        # The profiler's all-reduce begins when a gloo thread picks it up, ours when the bucket is launched.
        assert profiled["t_c"] * 0.95 <= mean["t_c"] <= profiled["t_c"] * 1.25
        # backward() as the script sees it is our backward, the exposed communication, and DDP's copying back.
        whole = ours["t_b"] + ours["t_c_no"]
        assert np.median(timers["backward"] - ours["rest"] - whole) <= 0.05 * np.median(whole)
        assert np.median(whole - timers["backward"]) <= 0.05 * np.median(whole)

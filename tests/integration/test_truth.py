"""Our phases against timers written into the script, and against torch.profiler, on the same steps."""

import json
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.integration.conftest import Lab
from tests.integration.measured_script import STEPS, WARM_UP

SCRIPT = Path(__file__).with_name("measured_script.py")
PHASES = ("t_io", "t_f", "t_b", "t_c", "t_c_no", "t_u", "t_iter", "rest")


def agree(ours: float, theirs: float) -> bool:
    """Within 5 % or 0.3 ms per step, whichever is larger."""
    return abs(ours - theirs) <= max(0.05 * theirs, 0.3e-3)


def steps_of(recording: Path, rank: int) -> list[dict[str, float]]:
    """Our figures of the profiled steps, straight from the recording's own table."""
    with sqlite3.connect(recording) as database:
        rows = database.execute(
            f"SELECT {', '.join(PHASES)} FROM steps WHERE rank = ? AND step >= ? AND step < ? ORDER BY step",
            (rank, WARM_UP, STEPS - 1),
        ).fetchall()
    return [dict(zip(PHASES, row, strict=True)) for row in rows]


def measure(lab: Lab, mode: str) -> Iterator[tuple[dict[str, float], dict[str, float], dict[str, float]]]:
    """Train once; give per rank the mean seconds per step: ours, the script's timers', the profiler's."""
    out = lab.home / "measured"
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = lab.ddltop("run", "--", *words, str(SCRIPT), str(out), mode, timeout=180)
    assert done.returncode == 0, done.stderr
    recording = next((lab.home / ".local" / "state" / "ddltop").glob("*.ddltop"))
    count = STEPS - 1 - WARM_UP
    for rank in range(2):
        theirs = json.loads(Path(f"{out}.rank{rank}").read_text())
        rows = steps_of(recording, rank)
        assert len(rows) == count
        yield (
            {phase: sum(row[phase] for row in rows) / count for phase in PHASES},
            {name: sum(values[WARM_UP : STEPS - 1]) / count for name, values in theirs["timers"].items()},
            {name: total / (STEPS - WARM_UP) for name, total in theirs["profiler"].items()},
        )


def test_phases_agree_with_the_timers_of_the_script(lab: Lab) -> None:
    for ours, timers, _ in measure(lab, "timers"):
        for phase in ("t_io", "t_f", "t_b", "t_c", "t_u"):
            assert agree(ours[phase], timers[phase]), (phase, ours, timers)


def test_phases_agree_with_the_profiler(lab: Lab) -> None:
    for ours, timers, profiled in measure(lab, "profiler"):
        assert agree(ours["t_u"], profiled["t_u"]), (ours, profiled)
        assert agree(ours["t_f"], timers["t_f"]), (ours, timers)
        assert ours["t_f"] >= profiled["ddp_forward"] * 0.95  # ours includes the loss
        # The profiler's all-reduce begins when a gloo thread picks it up, ours when the bucket is launched.
        assert profiled["t_c"] * 0.95 <= ours["t_c"] <= profiled["t_c"] * 1.25
        # backward() as the script sees it is our backward, the exposed communication, and DDP's copying back.
        whole = ours["t_b"] + ours["t_c_no"]
        assert timers["backward"] - ours["rest"] <= whole * 1.05
        assert whole <= timers["backward"] * 1.05

"""What watching costs a training: whole steps with and without the probe, in turns, as a ratio of medians.

Two gloo ranks on this machine; a figure near 1.00 is within the machine's noise, so the spread is printed beside it.
"""

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROUNDS = 3
STEPS = 300
TRAIN = Path(__file__).resolve().parents[1] / "demo" / "train.py"


def step_time(model: str, *, watched: bool) -> float:
    """Median seconds per step of rank 0, by the script's own timers."""
    with tempfile.TemporaryDirectory() as directory:
        timers = Path(directory) / "timers"
        words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(TRAIN)]
        words += ["--model", model, "--steps", str(STEPS), "--timers", str(timers)]
        if watched:
            words = [sys.executable, "-m", "ddltop", "run", "--quiet", "--", *words]
        subprocess.run(words, check=True, capture_output=True)
        rows = [json.loads(line) for line in Path(f"{timers}.rank0").read_text().splitlines()]
    return statistics.median(sum(v for k, v in row.items() if k != "step") for row in rows[50:])


def main() -> None:
    for model in ("tiny", "cnn"):
        plain, watched = [], []
        for _ in range(ROUNDS):
            plain.append(step_time(model, watched=False))
            watched.append(step_time(model, watched=True))
        ratios = [b / a for a, b in zip(plain, watched, strict=True)]
        base = statistics.median(plain)
        print(
            f"{model:<5} step {base * 1e3:6.2f} ms plain; watched / plain {statistics.median(ratios):.3f} "
            f"({min(ratios):.3f}-{max(ratios):.3f})"
        )


main()

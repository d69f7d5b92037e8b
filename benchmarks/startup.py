"""How long `ddltop --help` takes against a Python that does nothing: a ratio, measured in turns in the same run."""

import statistics
import subprocess
import sys
import time

RUNS = 15
COMMANDS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "ddltop --version": [sys.executable, "-m", "ddltop", "--version"],
    "ddltop --help": [sys.executable, "-m", "ddltop", "--help"],
}


def main() -> None:
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(RUNS):
        for name, words in COMMANDS.items():
            begin = time.perf_counter()
            subprocess.run(words, stdout=subprocess.DEVNULL, check=True)
            times[name].append(time.perf_counter() - begin)
    base = statistics.median(times["python -c pass"])
    for name, values in times.items():
        median = statistics.median(values)
        print(f"{name:<18} median {median * 1e3:6.1f} ms   {median / base:5.2f} x python -c pass")


main()

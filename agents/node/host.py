"""CPU and memory of the node and of its ranks, from the kernel's own files.

Source: Linux Documentation/filesystems/proc.rst and proc(5). /proc/stat and /proc/PID/stat count clock ticks,
/proc/meminfo counts KiB. In a container these files show the whole machine, except the processes.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from ddltop.wire.messages import HostSample

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# Columns of the line "cpu" of /proc/stat. Guest time, after steal, is already inside user time.
_IDLE, _IOWAIT, _NUM_COLUMNS = 3, 4, 8
# Columns of /proc/PID/stat after the closing parenthesis of the command.
_STATE, _UTIME, _STIME, _STARTTIME, _RSS = 0, 11, 12, 19, 21


@dataclass(frozen=True, slots=True)
class _Process:
    """One reading of /proc/PID/stat."""

    at_s: float
    busy_ticks: int
    started_ticks: int
    rss_bytes: int


class HostSensor:
    """Samples of the host; ratios are over the time since the sample before, so the first sample has none."""

    def __init__(self, proc_root: Path = Path("/proc")) -> None:
        self._root = proc_root
        self._last_ticks: tuple[int, int] | None = None  # busy, all
        self._last_processes: dict[int, _Process] = {}  # by rank

    def sample(self, now_s: float, rank_pids: dict[int, int]) -> HostSample:
        """Sample at `now_s` (monotonic seconds); `rank_pids` maps rank to process id. Who is gone is left out."""
        cpu_lines = [line for line in self._read("stat").splitlines() if line.startswith("cpu")]
        last, self._last_ticks = self._last_ticks, _ticks(cpu_lines)
        memory = _memory(self._read("meminfo"))
        total, available = memory.get("MemTotal"), memory.get("MemAvailable")
        before, self._last_processes = self._last_processes, self._read_processes(now_s, rank_pids)
        after = self._last_processes
        ratios = {rank: _busy_cpus(before.get(rank), after[rank]) for rank in after}
        return HostSample(
            num_cpus=max(len(cpu_lines) - 1, 0) or os.cpu_count() or 1,
            cpu_ratio=_cpu_ratio(last, self._last_ticks),
            load_1m=_first_number(self._read("loadavg")),
            memory_used_bytes=total - available if total is not None and available is not None else None,
            memory_total_bytes=total,
            rank_cpu_ratio={rank: ratio for rank, ratio in ratios.items() if ratio is not None},
            rank_rss_bytes={rank: process.rss_bytes for rank, process in after.items()},
        )

    def _read_processes(self, now_s: float, rank_pids: dict[int, int]) -> dict[int, _Process]:
        processes = {rank: _process(self._read(f"{pid}/stat"), now_s) for rank, pid in rank_pids.items()}
        return {rank: process for rank, process in processes.items() if process is not None}

    def _read(self, name: str) -> str:
        try:
            return (self._root / name).read_text(errors="replace")
        except OSError:
            return ""


def _ticks(cpu_lines: list[str]) -> tuple[int, int] | None:
    """Give the ticks that all CPUs together were busy, and those of busy and idle, since boot."""
    try:
        columns = [int(word) for word in cpu_lines[0].split()[1 : 1 + _NUM_COLUMNS]]
        return sum(columns) - columns[_IDLE] - columns[_IOWAIT], sum(columns)
    except (IndexError, ValueError):
        return None


def _cpu_ratio(before: tuple[int, int] | None, after: tuple[int, int] | None) -> float | None:
    if before is None or after is None or after[1] <= before[1]:
        return None
    # The kernel lets iowait go back a little, which would make the ratio leave 0..1.
    return min(max((after[0] - before[0]) / (after[1] - before[1]), 0.0), 1.0)


def _process(text: str, now_s: float) -> _Process | None:
    """Read a /proc/PID/stat; None when the process is gone or a zombie. Its name may hold spaces and parentheses."""
    columns = text.rpartition(")")[2].split()
    try:
        if columns[_STATE] in "ZX":
            return None
        busy = int(columns[_UTIME]) + int(columns[_STIME])
        return _Process(now_s, busy, int(columns[_STARTTIME]), int(columns[_RSS]) * _PAGE_BYTES)
    except (IndexError, ValueError):
        return None


def _busy_cpus(before: _Process | None, after: _Process) -> float | None:
    """Give the CPUs that a process kept busy (1.0 is one CPU); None when the reading before is of another process."""
    if before is None or before.started_ticks != after.started_ticks or after.at_s <= before.at_s:
        return None
    return max(after.busy_ticks - before.busy_ticks, 0) / _TICKS_PER_S / (after.at_s - before.at_s)


def _memory(text: str) -> dict[str, int]:
    """Give the fields of /proc/meminfo, bytes."""
    words = (line.split() for line in text.splitlines())
    return {w[0].rstrip(":"): int(w[1]) * 1024 for w in words if len(w) == 3 and w[1].isdecimal() and w[2] == "kB"}


def _first_number(text: str) -> float | None:
    try:
        return float(text.split(maxsplit=1)[0])
    except (IndexError, ValueError):
        return None

"""CPU and memory of the node and of its ranks, from /proc.

Source: proc(5): /proc/stat line `cpu` (ticks, summed over CPUs), /proc/meminfo (KiB), /proc/loadavg,
/proc/PID/stat fields 14, 15 (utime, stime, ticks) and 24 (rss, pages).
"""

import os
from pathlib import Path

from ddltop.wire.messages import HostSample

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class HostSensor:
    """Samples of the host; ratios are over the time since the sample before."""

    def __init__(self, proc_root: Path = Path("/proc")) -> None:
        self._proc = proc_root
        self._last_cpu: tuple[int, int] | None = None  # busy and all ticks
        self._last_rank: dict[int, tuple[float, int]] = {}  # pid -> when, ticks

    def sample(self, now_s: float, rank_pids: dict[int, int]) -> HostSample:
        """Sample at `now_s` (monotonic seconds); `rank_pids` maps rank to process id."""
        used, total = self._memory()
        cpu_of_rank: dict[int, float] = {}
        rss_of_rank: dict[int, int] = {}
        for rank, pid in rank_pids.items():
            self._sample_rank(rank, pid, now_s, cpu_of_rank, rss_of_rank)
        for pid in self._last_rank.keys() - set(rank_pids.values()):
            del self._last_rank[pid]
        return HostSample(
            num_cpus=os.cpu_count() or 1,
            cpu_ratio=self._cpu_ratio(),
            load_1m=self._load(),
            memory_used_bytes=used,
            memory_total_bytes=total,
            rank_cpu_ratio=cpu_of_rank,
            rank_rss_bytes=rss_of_rank,
        )

    def _cpu_ratio(self) -> float | None:
        fields = (self._read("stat") or "").partition("\n")[0].split()
        if len(fields) < 5 or fields[0] != "cpu":
            return None
        try:
            ticks = [int(field) for field in fields[1:9]]  # guest time is part of user time
        except ValueError:
            return None
        idle = ticks[3] + (ticks[4] if len(ticks) > 4 else 0)
        now = (sum(ticks) - idle, sum(ticks))
        last, self._last_cpu = self._last_cpu, now
        if last is None or now[1] <= last[1]:
            return None
        return min(1.0, max(0.0, (now[0] - last[0]) / (now[1] - last[1])))

    def _load(self) -> float | None:
        try:
            return float((self._read("loadavg") or "").split()[0])
        except (IndexError, ValueError):
            return None

    def _memory(self) -> tuple[int | None, int | None]:
        """Give used (total less available) and total bytes."""
        sizes: dict[str, int] = {}
        for line in (self._read("meminfo") or "").splitlines():
            name, _, rest = line.partition(":")
            if name in ("MemTotal", "MemAvailable"):
                number = rest.split()[:1]
                if number and number[0].isdigit():
                    sizes[name] = int(number[0]) * 1024
        total, available = sizes.get("MemTotal"), sizes.get("MemAvailable")
        return (total - available if total is not None and available is not None else None), total

    def _sample_rank(
        self, rank: int, pid: int, now_s: float, cpu_of_rank: dict[int, float], rss_of_rank: dict[int, int]
    ) -> None:
        fields = (self._read(f"{pid}/stat") or "").rpartition(")")[2].split()
        try:
            ticks, pages = int(fields[11]) + int(fields[12]), int(fields[21])
        except (IndexError, ValueError):
            return
        rss_of_rank[rank] = pages * _PAGE_BYTES
        last = self._last_rank.get(pid)
        self._last_rank[pid] = (now_s, ticks)
        if last is not None and now_s > last[0] and ticks >= last[1]:
            cpu_of_rank[rank] = (ticks - last[1]) / _TICKS_PER_S / (now_s - last[0])

    def _read(self, name: str) -> str | None:
        try:
            return (self._proc / name).read_text(errors="replace")
        except OSError:
            return None

"""CPU and memory of the node and of its ranks, through psutil.

psutil reads /proc/stat, /proc/loadavg, /proc/meminfo (used = total less available, bytes) and /proc/PID/stat.
"""

import psutil

from ddltop.wire.messages import HostSample


class HostSensor:
    """Samples of the host; ratios are over the time since the sample before, so the first sample has none."""

    def __init__(self) -> None:
        self._has_sampled = False
        self._ranks: dict[int, psutil.Process] = {}  # pid -> process
        psutil.cpu_percent(None)

    def sample(self, rank_pids: dict[int, int]) -> HostSample:
        """Sample now; `rank_pids` maps rank to process id. A process that has gone is left out."""
        memory = psutil.virtual_memory()
        cpu_percent = psutil.cpu_percent(None)
        cpu_of_rank: dict[int, float] = {}
        rss_of_rank: dict[int, int] = {}
        for rank, pid in rank_pids.items():
            self._sample_rank(rank, pid, cpu_of_rank, rss_of_rank)
        for pid in self._ranks.keys() - set(rank_pids.values()):
            del self._ranks[pid]
        has_interval, self._has_sampled = self._has_sampled, True
        return HostSample(
            num_cpus=psutil.cpu_count() or 1,
            cpu_ratio=cpu_percent / 100 if has_interval else None,
            load_1m=psutil.getloadavg()[0],
            memory_used_bytes=int(memory.total - memory.available),
            memory_total_bytes=int(memory.total),
            rank_cpu_ratio=cpu_of_rank,
            rank_rss_bytes=rss_of_rank,
        )

    def _sample_rank(self, rank: int, pid: int, cpu_of_rank: dict[int, float], rss_of_rank: dict[int, int]) -> None:
        """Add one rank: CPUs kept busy (1.0 is one CPU) and resident memory, bytes."""
        try:
            process = self._ranks.get(pid)
            if process is None:
                process = self._ranks[pid] = psutil.Process(pid)
                process.cpu_percent(None)
            else:
                cpu_of_rank[rank] = process.cpu_percent(None) / 100
            rss_of_rank[rank] = int(process.memory_info().rss)
        except psutil.Error:
            self._ranks.pop(pid, None)

"""All sensors of the node at one time."""

import time
from pathlib import Path

from ddltop.wire.messages import NodeSample

from .gpu import GpuSensor
from .host import HostSensor
from .nic import NicSensor


class Sensors:
    """The sensors of this node; one thread samples them."""

    def __init__(self, sysfs_root: Path = Path("/sys"), proc_root: Path = Path("/proc")) -> None:
        self._nics = NicSensor(sysfs_root)
        self._host = HostSensor(proc_root)
        self._gpus = GpuSensor()

    def sample(self, rank_pids: dict[int, int]) -> NodeSample:
        """Sample everything; `rank_pids` maps rank to process id."""
        # A driver may take long to answer for its GPUs: the time is taken next to the counters it divides.
        at_us, now_s = time.time_ns() // 1000, time.monotonic()
        nics = self._nics.sample(now_s)
        host = self._host.sample(now_s, rank_pids)
        gpus, gpu_status = self._gpus.sample()
        return NodeSample(at_us=at_us, host=host, nics=nics, gpus=gpus, gpu_status=gpu_status)

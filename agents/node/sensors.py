"""All sensors of the node at one time."""

import time

from ddltop.wire.messages import NodeSample

from .gpu import GpuSensor
from .host import HostSensor
from .nic import NicSensor


class Sensors:
    """The sensors of this node; one thread samples them."""

    def __init__(self) -> None:
        self._nics = NicSensor()
        self._host = HostSensor()
        self._gpus = GpuSensor()

    def sample(self, rank_pids: dict[int, int]) -> NodeSample:
        """Sample everything; `rank_pids` maps rank to process id."""
        now_s = time.monotonic()
        gpus, gpu_status = self._gpus.sample()
        return NodeSample(
            at_us=time.time_ns() // 1000,
            host=self._host.sample(rank_pids),
            nics=self._nics.sample(now_s),
            gpus=gpus,
            gpu_status=gpu_status,
        )

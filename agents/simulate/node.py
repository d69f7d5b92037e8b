"""One imaginary node: real batches, real outbox, real socket; only its ranks and sensors are made up."""

import secrets
import time
from collections import deque
from collections.abc import Sequence
from random import Random
from typing import Any

import zmq

import ddltop
from ddltop.errors import WireError
from ddltop.wire.codec import decode_for_agent
from ddltop.wire.messages import (
    PROTOCOL,
    Ack,
    AgentHello,
    GpuSample,
    HostSample,
    NicSample,
    NodeSample,
    RankBye,
    RankHello,
    Welcome,
)

from ..node.outbox import Outbox, Record
from ..rank.assembly import StepMeasure
from ..rank.columns import pack_steps
from .physics import BUCKET_BYTES, Cluster

SPEED_BYTES_PER_S = 3.125e9
GPU_MEMORY_BYTES = 80 * 2**30


class SimulatedNode:
    """A node with ranks `ranks` of `cluster`."""

    def __init__(self, context: Any, endpoint: str, *, run_id: str, name: str, ranks: range, cluster: Cluster) -> None:
        self.name = name
        self.ranks = ranks
        self._cluster = cluster
        self._random = Random(name)
        self._hellos = tuple(_rank_hello(run_id, name, rank, rank - ranks.start, cluster.num_ranks) for rank in ranks)
        self._records: list[Record] = list(self._hellos)
        self._samples: deque[NodeSample] = deque(maxlen=60)
        self._seq = 0
        self._busy_share = 0.0
        hello = AgentHello(
            protocol=PROTOCOL,
            version=ddltop.__version__,
            run_id=run_id,
            node=name,
            epoch=secrets.token_hex(8),
            first_seq=1,
        )
        self._outbox = Outbox(hello)
        self._socket = context.socket(zmq.DEALER)
        for option, value in ((zmq.IMMEDIATE, 1), (zmq.SNDHWM, 64), (zmq.LINGER, 1000)):
            self._socket.setsockopt(option, value)
        self._socket.connect(endpoint)

    @property
    def is_delivered(self) -> bool:
        """Tell whether the collector has everything."""
        return self._outbox.is_empty and not self._records

    def add_steps(self, measures_of_rank: dict[int, list[StepMeasure]]) -> None:
        """Take the newest steps of this node's ranks."""
        self._seq += 1
        wall_minus_perf_ns = time.time_ns() - time.perf_counter_ns()
        for hello in self._hellos:
            measures = measures_of_rank.get(hello.rank)
            if not measures:
                continue
            self._busy_share = sum(m.t_c for m in measures) / sum(m.t_iter for m in measures)
            self._records.append(
                pack_steps(
                    measures,
                    epoch=hello.epoch,
                    rank=hello.rank,
                    seq=self._seq,
                    wall_minus_perf_ns=wall_minus_perf_ns,
                    dropped=0,
                    overhead_us=0.0,
                )
            )

    def add_sample(self) -> None:
        """Sample the made-up sensors."""
        rate = sum(BUCKET_BYTES) * 1.5 * self._busy_share * self._random.gauss(9.0, 0.3)
        rate = min(rate, SPEED_BYTES_PER_S * 0.97)
        self._samples.append(
            NodeSample(
                at_us=time.time_ns() // 1000,
                host=self._host(),
                nics=(
                    NicSample(
                        name="eth0",
                        rx_bytes_per_s=rate,
                        tx_bytes_per_s=rate * self._random.gauss(1.0, 0.01),
                        speed_bytes_per_s=SPEED_BYTES_PER_S,
                        operstate="up",
                    ),
                ),
                gpus=tuple(self._gpu(i) for i in range(len(self.ranks))),
            )
        )

    def say_goodbye(self) -> None:
        """Let every rank end."""
        self._records += [RankBye(epoch=hello.epoch, rank=hello.rank) for hello in self._hellos]

    def exchange(self, now: float, *, make_batch: bool) -> None:
        """Read the collector's answers and send what is due; never blocks."""
        for frame in _received(self._socket):
            self._take(frame, now)
        if make_batch and (self._records or self._samples):
            records, self._records = tuple(self._records), []
            samples = tuple(self._samples)
            self._samples.clear()
            self._outbox.put(records, samples, now)
        for frame in self._outbox.due(now, self._hellos):
            try:
                self._socket.send(frame, zmq.NOBLOCK)
            except zmq.Again:
                return

    def send_last(self, frame: bytes) -> None:
        """Send one frame outside the outbox."""
        self._socket.send(frame, zmq.NOBLOCK)

    @property
    def epoch(self) -> str:
        """Name of this agent process."""
        return self._outbox.epoch

    def close(self) -> None:
        """Close the socket once what it holds is sent."""
        self._socket.close()

    def _take(self, frame: bytes, now: float) -> None:
        try:
            message = decode_for_agent(frame)
        except WireError:
            return
        if isinstance(message, Welcome):
            self._outbox.welcome(message, now)
        elif isinstance(message, Ack):
            self._outbox.acknowledge(message, now)

    def _host(self) -> HostSample:
        busy = self._random.gauss(0.21, 0.02)
        return HostSample(
            num_cpus=64,
            cpu_ratio=max(0.0, busy),
            load_1m=64 * busy,
            memory_used_bytes=190 * 2**30,
            memory_total_bytes=512 * 2**30,
            rank_cpu_ratio={rank: self._random.gauss(1.1, 0.05) for rank in self.ranks},
        )

    def _gpu(self, index: int) -> GpuSample:
        return GpuSample(
            index=index,
            uuid=f"GPU-{self.name}-{index}",
            name="imaginary 80GB",
            utilization_ratio=min(1.0, self._random.gauss(0.97, 0.01)),
            memory_used_bytes=41 * 2**30,
            memory_total_bytes=GPU_MEMORY_BYTES,
            power_w=self._random.gauss(310, 8),
            power_limit_w=400.0,
            temperature_c=round(self._random.gauss(66, 1)),
            sm_clock_mhz=1965.0,
            sm_clock_max_mhz=1980.0,
        )


def _received(socket: Any) -> Sequence[bytes]:
    frames = []
    while True:
        try:
            frames.append(socket.recv(zmq.NOBLOCK))
        except zmq.Again:
            return frames


def _rank_hello(run_id: str, node: str, rank: int, local_rank: int, world_size: int) -> RankHello:
    return RankHello(
        run_id=run_id,
        epoch=secrets.token_hex(8),
        rank=rank,
        local_rank=local_rank,
        world_size=world_size,
        pid=0,
        node=node,
        framework="simulated",
        framework_version=ddltop.__version__,
        backend="ring",
        device=f"cuda:{local_rank}",
        gpu_uuid=f"GPU-{node}-{local_rank}",
        model="ResNet50",
        num_parameters=sum(BUCKET_BYTES) // 4,
        gradient_bytes=sum(BUCKET_BYTES),
        bucket_timing="on",
    )

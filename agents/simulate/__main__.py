"""`python -m ddltop_agents.simulate`: a cluster of imaginary ranks that reports to a real collector."""

import argparse
import os
import sys
import time
from collections import defaultdict
from pathlib import Path
from random import Random
from typing import Any

import zmq

from ddltop.wire.codec import encode
from ddltop.wire.endpoints import RunDir
from ddltop.wire.environment import ENV_RUN_DIR
from ddltop.wire.messages import AgentBye

from ..rank.assembly import StepMeasure
from .node import SimulatedNode
from .physics import Cluster, parse_fault, simulate_step

BATCH_PERIOD_S = 0.5
SAMPLE_PERIOD_S = 1.0
GOODBYE_LIMIT_S = 5.0


def main(arguments: list[str] | None = None) -> int:
    """Simulate until the duration is over; give the exit code."""
    options = _parse(arguments)
    endpoint = RunDir(Path(options.run_dir)).collector_endpoint
    cluster = Cluster(num_ranks=options.ranks, faults=tuple(options.fault))
    context: zmq.Context[Any] = zmq.Context()
    names = [f"node{i}" for i in range(options.nodes)]
    per_node = -(-options.ranks // options.nodes)
    nodes = [
        SimulatedNode(
            context,
            endpoint,
            run_id=Path(options.run_dir).name,
            name=name,
            ranks=range(i * per_node, min(options.ranks, (i + 1) * per_node)),
            cluster=cluster,
        )
        for i, name in enumerate(names)
    ]
    _simulate(nodes, cluster, options.duration, options.seed)
    _end(nodes)
    for node in nodes:
        node.close()
    context.term()
    return 0


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="ddltop demo --simulate", description="Imaginary ranks, real messages.")
    parser.add_argument("--run-dir", default=os.environ.get(ENV_RUN_DIR))
    parser.add_argument("--ranks", type=int, default=16)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--duration", type=float, default=30.0, help="seconds")
    parser.add_argument("--fault", type=parse_fault, action="append", default=[])
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    if not options.run_dir:
        parser.error(f"no run directory: give --run-dir or set {ENV_RUN_DIR}")
    if not 1 <= options.nodes <= options.ranks <= 16_384:
        parser.error("--nodes must be from 1 to --ranks, and --ranks at most 16384")
    return options


def _simulate(nodes: list[SimulatedNode], cluster: Cluster, duration_s: float, seed: int) -> None:
    random = Random(seed)
    begin = time.monotonic()
    step, step_at, batch_at, sample_at = 0, begin, begin, begin
    pending: dict[int, list[StepMeasure]] = defaultdict(list)
    while (now := time.monotonic()) - begin < duration_s:
        while step_at <= now:
            measures = simulate_step(cluster, random, step, time.perf_counter_ns())
            for rank, measure in enumerate(measures):
                pending[rank].append(measure)
            step_at += max(measure.t_iter for measure in measures)
            step += 1
        if now >= sample_at:
            sample_at = now + SAMPLE_PERIOD_S
            for node in nodes:
                node.add_sample()
        is_due = now >= batch_at
        if is_due:
            batch_at = now + BATCH_PERIOD_S
            for node in nodes:
                node.add_steps(pending)
            pending = defaultdict(list)
        for node in nodes:
            node.exchange(now, make_batch=is_due)
        time.sleep(0.02)


def _end(nodes: list[SimulatedNode]) -> None:
    """Say goodbye and wait until the collector has everything."""
    for node in nodes:
        node.say_goodbye()
    deadline = time.monotonic() + GOODBYE_LIMIT_S
    while time.monotonic() < deadline and not all(node.is_delivered for node in nodes):
        for node in nodes:
            node.exchange(time.monotonic(), make_batch=True)
        time.sleep(0.02)
    for node in nodes:
        node.send_last(encode(AgentBye(epoch=node.epoch, node=node.name)))


if __name__ == "__main__":
    sys.exit(main())

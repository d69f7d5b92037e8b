"""Frames as probes and agents send them, for tests of the collector."""

from collections.abc import Sequence
from typing import Any

import msgspec
from ddltop_agents.rank.assembly import BucketTimes, StepMeasure
from ddltop_agents.rank.columns import pack_steps

from ddltop.wire.codec import encode
from ddltop.wire.messages import PROTOCOL, AgentHello, NodeBatch, RankBye, RankHello, RankSteps

RUN = "train-1"


def agent_hello(node: str = "node0", epoch: str = "a1", **changes: Any) -> bytes:
    fields = {"protocol": PROTOCOL, "version": "0.1.0", "run_id": RUN, "node": node, "epoch": epoch, "first_seq": 1}
    return encode(AgentHello(**{**fields, **changes}))


def rank_hello(rank: int = 0, world_size: int = 2, node: str = "node0", epoch: str = "") -> RankHello:
    return RankHello(
        run_id=RUN,
        epoch=epoch or f"e{rank}",
        rank=rank,
        local_rank=rank,
        world_size=world_size,
        pid=100 + rank,
        node=node,
        backend="gloo",
    )


def measure(step: int, *, t_b: float = 0.020, other_t_b: float = 0.020) -> StepMeasure:
    """One step with one bucket, ready at the end of backward; the other rank needs `other_t_b`."""
    computed = 0.011 + t_b
    ended = 0.011 + max(t_b, other_t_b) + 0.004
    return StepMeasure(
        step=step,
        start_ns=step * 50_000_000,
        t_iter=ended + 0.003,
        t_io=0.001,
        t_h2d=0.0,
        t_f=0.010,
        t_b=t_b,
        t_c=ended - computed,
        t_c_no=ended - computed,
        t_u=0.002,
        rest=0.001,
        num_samples=32.0,
        num_micro_steps=1,
        flags=0,
        backward_start=0.011,
        backward_end=computed,
        buckets=(BucketTimes(index=0, nbytes=1_000_000, ready=computed, start=computed, end=ended),),
    )


def rank_steps(rank: int, steps: Sequence[int], epoch: str = "", **work: float) -> RankSteps:
    return pack_steps(
        [measure(step, **work) for step in steps],
        epoch=epoch or f"e{rank}",
        rank=rank,
        seq=1,
        wall_minus_perf_ns=0,
        dropped=0,
        overhead_us=20.0,
    )


def batch(
    seq: int, *records: RankHello | RankSteps | RankBye, node: str = "node0", epoch: str = "a1", first_seq: int = 1
) -> bytes:
    return encode(NodeBatch(epoch=epoch, node=node, seq=seq, first_seq=first_seq, records=records))


def changed(record: RankSteps, **fields: Any) -> RankSteps:
    return msgspec.structs.replace(record, **fields)

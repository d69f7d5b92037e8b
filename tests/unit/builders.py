"""Typed samples: windows that obey the physics of synchronous SGD, and snapshots made of them.

Nobody leaves an all-reduce before the last rank has entered it; every rank starts a step when the one before ends.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ddltop.collector.snapshot import (
    History,
    NodeLine,
    Quality,
    RankLine,
    RankState,
    RunFacts,
    RunState,
    Snapshot,
)
from ddltop.diagnose.evidence import Evidence
from ddltop.diagnose.finding import Code, Finding, Severity
from ddltop.model.assess import assess
from ddltop.model.wait import arrivals
from ddltop.model.window import Collectives, Window
from ddltop.wire.collectives import CollectiveKind, CollectivePlace
from ddltop.wire.messages import GpuSample, HostSample, NicSample, NodeSample
from ddltop.wire.phases import PHASE_INDEX, PHASES, Phase


@dataclass(frozen=True, kw_only=True)
class Work:
    """What one rank does in a step by itself, seconds."""

    t_io: float = 0.001
    t_h2d: float = 0.0
    t_f: float = 0.010
    t_b: float = 0.020
    t_u: float = 0.002
    rest: float = 0.001


def make_window(
    works: Sequence[Work],
    *,
    num_steps: int = 60,
    nbytes: Sequence[int] = (1_000_000, 2_000_000, 4_000_000),
    transfers: Sequence[float] = (0.001, 0.002, 0.004),
    noise: float = 0.0,
    seed: int = 0,
    delays: "np.ndarray | None" = None,
    collectives: tuple[Collectives, ...] = (),
) -> Window:
    """Make a window: rank r does `works[r]`; `delays` [S, R] adds seconds to t_b; noise is a ratio of each phase."""
    random = np.random.default_rng(seed)
    S, R, B = num_steps, len(works), len(nbytes)
    names = ("t_io", "t_h2d", "t_f", "t_b", "t_u", "rest")
    own = {name: np.array([[getattr(work, name) for work in works]] * S) for name in names}
    for name in names:
        own[name] = own[name] * np.maximum(0.2, 1 + noise * random.standard_normal((S, R)))
    if delays is not None:
        own["t_b"] = own["t_b"] + delays
    start = own["t_io"] + own["t_h2d"] + own["t_f"]
    computed = start + own["t_b"]
    ready = start[:, :, None] + own["t_b"][:, :, None] * (np.arange(B) + 1) / B
    end = np.zeros((S, R, B))
    free = np.full(S, -np.inf)
    for b in range(B):
        begin = np.maximum(free, ready[:, :, b].max(axis=1))
        free = begin + transfers[b] * np.maximum(0.2, 1 + noise * random.standard_normal(S))
        end[:, :, b] = free[:, None]
    before = np.concatenate([np.full((S, R, 1), -np.inf), end[:, :, :-1]], axis=2)
    begun = np.maximum(ready, before)
    exposed = np.maximum(0.0, end[:, :, -1] - computed) if B else np.zeros((S, R))
    phases = np.zeros((S, R, len(PHASES)))
    for name in names:
        phases[:, :, PHASE_INDEX[Phase(name)]] = own[name]
    phases[:, :, PHASE_INDEX[Phase.T_C]] = (end - begun).sum(axis=2)
    phases[:, :, PHASE_INDEX[Phase.T_C_NO]] = exposed
    phases[:, :, PHASE_INDEX[Phase.T_ITER]] = sum(own.values()) + exposed
    return Window(
        steps_S=np.arange(S),
        ranks=tuple(range(R)),
        phases_SRP=phases,
        num_samples_SR=np.full((S, R), 32.0),
        num_micro_steps_SR=np.ones((S, R)),
        num_tokens_SR=np.full((S, R), np.nan),
        evaluation_SR=np.zeros((S, R)),
        host_ahead_SR=np.full((S, R), np.nan),
        flags_SR=np.zeros((S, R), dtype=np.uint8),
        backward_start_SR=start,
        backward_end_SR=computed,
        bucket_nbytes_B=np.array(nbytes, dtype=float),
        bucket_ready_SRB=ready,
        bucket_start_SRB=begun,
        bucket_end_SRB=end,
        bucket_dtypes_B=("float32",) * B,
        collectives=collectives,
    )


def make_sharded_window(works: Sequence[Work], *, num_steps: int = 60, transfer: float = 0.004) -> Window:
    """Make a window of FSDP: no buckets; everybody waits for the last one in a reduce-scatter that ends backward."""
    window = make_window(works, num_steps=num_steps, nbytes=(), transfers=())
    computed_R = np.array([work.t_io + work.t_f + work.t_b for work in works])
    exposed_SR = np.tile(computed_R.max() - computed_R + transfer, (num_steps, 1))
    window.phases_SRP[:, :, [PHASE_INDEX[Phase.T_C], PHASE_INDEX[Phase.T_C_NO]]] = exposed_SR[:, :, None]
    window.phases_SRP[:, :, PHASE_INDEX[Phase.T_ITER]] += exposed_SR
    return replace(window, collectives=(make_collectives(exposed_SR, CollectiveKind.REDUCE_SCATTER),))


def make_collectives(
    exposed_SR: np.ndarray,
    kind: CollectiveKind = CollectiveKind.ALL_REDUCE,
    place: CollectivePlace = CollectivePlace.BACKWARD,
) -> Collectives:
    """Make one call a step of 1 MB each."""
    ones = np.ones_like(exposed_SR)
    return Collectives(kind=kind, place=place, calls_SR=ones, nbytes_SR=1e6 * ones, exposed_SR=exposed_SR)


def make_evidence(window: Window) -> Evidence:
    """Make what a rule sees; two ranks to a node."""
    R = window.num_ranks
    return Evidence(
        window=window,
        arrivals=arrivals(window),
        assessment=assess(window, num_workers=R),
        rank_nodes={rank: f"node{rank // 2}" for rank in window.ranks},
        world_size=R,
        backend="nccl",
        device="cuda:0",
    )


def make_snapshot(
    num_ranks: int = 2, *, late_rank: int | None = None, state: RunState = RunState.LIVE, has_gpus: bool = False
) -> Snapshot:
    """Make a plausible snapshot, with a backward straggler on request."""
    works = [Work(t_b=0.060 if rank == late_rank else 0.020) for rank in range(num_ranks)]
    metrics = make_collectives(np.full((60, num_ranks), 1e-4), place=CollectivePlace.BETWEEN)
    window = make_window(works, noise=0.02, collectives=(metrics,))
    assessment = assess(window, num_workers=num_ranks)
    lateness = arrivals(window).lateness_SR
    nodes = sorted({f"node{rank // 8}" for rank in range(num_ranks)})
    return Snapshot(
        at=1_000_000.0,
        state=state,
        run=RunFacts(
            run_id="train-1",
            command=("torchrun", "train.py", "--token", "secret"),
            framework="pytorch 2.13.0",
            strategy="ddp",
            backend="nccl",
            device="cuda:0",
            model="ResNet50",
            world_size=num_ranks,
            num_nodes=len(nodes),
            gradient_bytes=102_228_128,
            started_at=999_000.0,
            exit_code=0 if state is RunState.ENDED else None,
            settings={},
            bucket_timing="on",
            unmeasured={},
            notes={},
        ),
        num_steps=12_418,
        duration_s=1000.0,
        assessment=assessment,
        ranks=tuple(
            RankLine(
                rank=rank,
                local_rank=rank % 8,
                node=f"node{rank // 8}",
                pid=100 + rank,
                gpu_uuid=f"GPU-{rank}" if has_gpus else None,
                state=RankState.LIVE,
                last_step=12_417,
                age_s=0.3,
            )
            for rank in range(num_ranks)
        ),
        nodes=tuple(
            NodeLine(node=node, age_s=0.4, sample=_sample(i, num_ranks, has_gpus)) for i, node in enumerate(nodes)
        ),
        history=History(
            steps=tuple(range(12_358, 12_418)),
            t_iter=tuple(float(v) for v in window.phase_SR(Phase.T_ITER).mean(axis=1)),
            t_c_no=tuple(float(v) for v in window.phase_SR(Phase.T_C_NO).mean(axis=1)),
            lateness={rank: tuple(float(v) for v in lateness[:, rank]) for rank in range(min(64, num_ranks))},
        ),
        findings=(make_finding(late_rank),) if late_rank is not None else (),
        quality=Quality(
            records=120, dropped=0, lost_batches=0, rejected=0, missing_ranks=(), overhead_us_per_step=24.0
        ),
    )


def make_finding(rank: int = 1) -> Finding:
    """Make a straggler finding."""
    label = f"r{rank}@node{rank // 8}"
    return Finding(
        code=Code.BACKWARD_STRAGGLER,
        severity=Severity.WARNING,
        ranks=(rank,),
        nodes=(f"node{rank // 8}",),
        share_of_time=0.44,
        evidence={"last_share": 1.0, "lateness_s": 0.0401},
        why=f"{label} enters the all-reduce last in 100 % of steps, 40.1 ms late",
        next_step=f"compare {label} with its neighbours: clocks and temperature of its GPU",
        first_step=11_902,
        last_step=12_417,
    )


def without_figures(snapshot: Snapshot) -> Snapshot:
    """Give the same run before its first steps."""
    empty = History(steps=(), t_iter=(), t_c_no=(), lateness={})
    return replace(snapshot, assessment=None, history=empty, num_steps=0, findings=(), state=RunState.WAITING)


def _sample(node: int, num_ranks: int, has_gpus: bool) -> NodeSample:
    ranks = range(node * 8, min(num_ranks, node * 8 + 8))
    return NodeSample(
        at_us=1_000_000_000_000,
        host=HostSample(
            num_cpus=64,
            cpu_ratio=0.21,
            load_1m=13.0,
            memory_used_bytes=190 * 2**30,
            memory_total_bytes=512 * 2**30,
            rank_cpu_ratio=dict.fromkeys(ranks, 1.1),
        ),
        nics=(
            NicSample(
                name="eth0", rx_bytes_per_s=2.1e9, tx_bytes_per_s=2.2e9, speed_bytes_per_s=3.125e9, operstate="up"
            ),
        ),
        gpus=tuple(
            GpuSample(
                index=rank % 8,
                uuid=f"GPU-{rank}",
                name="GPU",
                utilization_ratio=0.97,
                power_w=310.0,
                temperature_c=66.0,
                sm_clock_mhz=1965.0,
            )
            for rank in ranks
        )
        if has_gpus
        else (),
        gpu_status="ok" if has_gpus else "no GPU",
    )

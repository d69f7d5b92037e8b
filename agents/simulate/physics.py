"""Steps of imaginary ranks that obey the physics of synchronous SGD: nobody leaves an all-reduce before all entered.

Pure: a random generator and a step number in, one `StepMeasure` per rank out.
"""

from argparse import ArgumentTypeError
from dataclasses import dataclass
from random import Random

from ..rank.assembly import BucketTimes, StepMeasure

# ResNet-50: 25.6 M fp32 gradients; DDP makes a first bucket of 1 MiB and others of 25 MiB.
BUCKET_BYTES = (1_048_576, 26_214_400, 26_214_400, 26_214_400, 22_536_704)
PHASE_OF_FAULT = {"loader-delay": "t_io", "forward-delay": "t_f", "backward-delay": "t_b"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A delay of `seconds` in one phase of one rank."""

    phase: str
    rank: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """What the imaginary ranks compute and over which network; seconds and bytes per second."""

    num_ranks: int
    t_io: float = 0.002
    t_h2d: float = 0.001
    t_f: float = 0.034
    t_b: float = 0.066
    t_u: float = 0.004
    rest: float = 0.001
    jitter_ratio: float = 0.02
    latency_s: float = 60e-6
    bandwidth: float = 3.1e9  # 25 Gb/s
    batch: int = 32
    faults: tuple[Fault, ...] = ()


def parse_fault(text: str) -> Fault:
    """Parse `backward-delay:rank=1,ms=40`; raise ArgumentTypeError with what is allowed."""
    kind, _, rest = text.partition(":")
    try:
        options = dict(part.split("=", 1) for part in rest.split(","))
        phase = PHASE_OF_FAULT[kind]
        return Fault(phase=phase, rank=int(options["rank"]), seconds=float(options["ms"]) / 1e3)
    except (KeyError, ValueError) as error:
        kinds = ", ".join(PHASE_OF_FAULT)
        raise ArgumentTypeError(f"{text!r} is no fault: write KIND:rank=R,ms=T, KIND one of {kinds}") from error


def simulate_step(cluster: Cluster, random: Random, step: int, start_ns: int) -> list[StepMeasure]:
    """Give one step of every rank; all begin it together, as the all-reduce before has left them."""
    draws = [_draw(cluster, random, rank) for rank in range(cluster.num_ranks)]
    ready = [_ready_times(draw) for draw in draws]
    ends = _all_reduce_ends(cluster, random, ready)
    return [_measure(cluster, step, start_ns, draw, ready_B, ends) for draw, ready_B in zip(draws, ready, strict=True)]


def _draw(cluster: Cluster, random: Random, rank: int) -> dict[str, float]:
    phases = ("t_io", "t_h2d", "t_f", "t_b", "t_u", "rest")
    draw = {name: getattr(cluster, name) * max(0.5, random.gauss(1.0, cluster.jitter_ratio)) for name in phases}
    for fault in cluster.faults:
        if fault.rank == rank:
            draw[fault.phase] += fault.seconds * max(0.5, random.gauss(1.0, cluster.jitter_ratio))
    return draw


def _ready_times(draw: dict[str, float]) -> list[float]:
    """Buckets fill evenly over backward, the last one with its end; seconds from the start of the step."""
    backward_start = draw["t_io"] + draw["t_h2d"] + draw["t_f"]
    num_buckets = len(BUCKET_BYTES)
    return [backward_start + draw["t_b"] * (i + 1) / num_buckets for i in range(num_buckets)]


def _all_reduce_ends(cluster: Cluster, random: Random, ready_RB: list[list[float]]) -> list[float]:
    """A bucket's ring all-reduce starts when the last rank is ready and the one before is done."""
    volume_ratio = 2 * (cluster.num_ranks - 1) / cluster.num_ranks
    free, ends = 0.0, []
    for bucket, nbytes in enumerate(BUCKET_BYTES):
        start = max(free, *(ready_B[bucket] for ready_B in ready_RB))
        transfer = cluster.latency_s * 2 * (cluster.num_ranks - 1) + volume_ratio * nbytes / cluster.bandwidth
        free = start + transfer * max(0.7, random.gauss(1.0, cluster.jitter_ratio))
        ends.append(free)
    return ends


def _measure(
    cluster: Cluster, step: int, start_ns: int, draw: dict[str, float], ready_B: list[float], ends_B: list[float]
) -> StepMeasure:
    computed = ready_B[-1]
    starts_B = [max(ready, before) for ready, before in zip(ready_B, [0.0, *ends_B[:-1]], strict=True)]
    busy = sum(end - start for start, end in zip(starts_B, ends_B, strict=True))
    exposed = max(0.0, ends_B[-1] - computed)
    parts = {name: draw[name] for name in ("t_io", "t_h2d", "t_f", "t_b", "t_u", "rest")}
    return StepMeasure(
        step=step,
        start_ns=start_ns,
        t_iter=sum(parts.values()) + exposed,
        t_c=busy,
        t_c_no=exposed,
        **parts,
        num_samples=float(cluster.batch),
        num_micro_steps=1,
        flags=0,
        collectives=(),
        backward_start=draw["t_io"] + draw["t_h2d"] + draw["t_f"],
        backward_end=computed,
        buckets=tuple(
            BucketTimes(index=i, nbytes=BUCKET_BYTES[i], ready=ready_B[i], start=starts_B[i], end=ends_B[i])
            for i in range(len(BUCKET_BYTES))
        ),
    )

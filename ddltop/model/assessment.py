"""What the model says of a window: means, speed-up against the prediction, and the gap in parts."""

from dataclasses import dataclass
from enum import StrEnum

from ddltop.wire.collectives import CollectiveKind, CollectivePlace


class GapKind(StrEnum):
    """Why an iteration on N workers takes longer than one on a single worker."""

    PREDICTED_COMM = "predicted exposed communication"
    SLOWER_TRANSFER = "slower transfer than predicted"
    WAIT = "wait for late ranks"
    LOST_OVERLAP = "lost overlap"
    OTHER_COMM = "other collectives"
    INPUT = "input"
    H2D = "host-to-device"
    SLOWER_COMPUTE = "slower computing"
    UPDATE = "update"
    UNEXPLAINED = "unexplained"


class BaselineSource(StrEnum):
    """Where t_iter(1) comes from, best first."""

    RECORDING = "recording of one worker"
    NO_SYNC = "this run without communication, backward from no_sync micro-steps"
    ESTIMATE = "this run without communication (upper bound)"


class NetworkSource(StrEnum):
    """Where the cost of an all-reduce comes from, best first."""

    CALIBRATION = "calibration"
    LIVE_FIT = "fit to this run's buckets"
    LIVE_ONE_SIZE = "this run's buckets (one size only)"
    NOMINAL = "nominal link speed, ring"
    GIVEN = "given"


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseMeans:
    """Mean seconds per step; None means not measured."""

    t_iter: float | None
    t_io: float | None
    t_h2d: float | None
    t_f: float | None
    t_b: float | None
    t_c: float | None
    t_c_no: float | None
    exposed_transfer: float | None
    exposed_wait: float | None
    exposed_collectives: float | None  # part of exposed_transfer beside DDP's buckets: metrics, FSDP, ...
    t_u: float | None
    rest: float | None

    @property
    def hidden_comm(self) -> float | None:
        """Communication that backward hides, seconds."""
        if self.t_c is None or self.t_c_no is None:
            return None
        return max(0.0, self.t_c - self.t_c_no)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankFigures:
    """One rank over the window."""

    rank: int
    phases: PhaseMeans
    lateness_s: float | None  # mean per step: how much later than the first rank it enters the all-reduces
    last_share: float | None  # share of steps (0..1) in which it is the last to arrive
    samples_per_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketFigures:
    """One DDP bucket over the window; bandwidths in bytes per second, as nccl-tests define them."""

    index: int
    nbytes: int
    transfer_s: float | None
    algbw: float | None
    busbw: float | None
    exposed_s: float | None
    dtype: str  # float32, bfloat16, ...; empty when not known


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveFigures:
    """Collectives of one kind from one part of the step, DDP's buckets apart; means per step and rank."""

    kind: CollectiveKind
    place: CollectivePlace
    calls: float
    nbytes: float
    exposed_s: float  # seconds that the step waited for them


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedUp:
    """Speed-up over one worker, weak scaling; None where it cannot be known yet."""

    ideal: float
    predicted: float | None
    predicted_low: float | None
    predicted_high: float | None
    measured: float | None
    deviation: float | None  # measured / predicted - 1
    efficiency: float | None  # measured / ideal, 0..1
    t_iter_1: float | None  # baseline, seconds
    baseline_source: BaselineSource
    network_source: NetworkSource | None
    network_a: float | None  # seconds per message
    network_b: float | None  # seconds per byte


@dataclass(frozen=True, slots=True, kw_only=True)
class GapPart:
    """One cause of t_iter(N) - t_iter(1), seconds; `share` is of t_iter(N)."""

    part: GapKind
    seconds: float
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """Everything the model derives from one window."""

    first_step: int
    last_step: int
    num_steps: int
    num_detailed: int  # of them, steps whose phases are measured on every rank, and not t_iter alone
    phases: PhaseMeans  # mean over ranks
    typical: PhaseMeans  # mean over the typical ranks, whose view the gap takes
    ranks: tuple[RankFigures, ...]  # by rank number
    buckets: tuple[BucketFigures, ...]  # launch order
    collectives: tuple[CollectiveFigures, ...]  # the one that costs most first
    speedup: SpeedUp
    gap: tuple[GapPart, ...]  # sums to t_iter(N) - t_iter(1)
    steps_per_s: float | None
    samples_per_s: float | None
    batch_per_rank: float | None
    tokens_per_s: float | None
    evaluation_share: float | None  # of the run's time, 0..1; it is in no phase and not in t_iter
    skipped_share: float | None  # of the steps, 0..1: the optimizer did not update (AMP overflow)
    device_waited_share: float | None  # of the detailed steps, 0..1: the device ran dry and waited for the host

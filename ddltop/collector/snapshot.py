"""The one immutable picture of a run that every viewer gets, live or replayed."""

from dataclasses import dataclass
from enum import StrEnum

import msgspec

from ddltop.diagnose.finding import Finding
from ddltop.errors import WireError
from ddltop.model.assessment import Assessment
from ddltop.wire.messages import NodeSample


class RunState(StrEnum):
    """What the run is doing."""

    WAITING = "waiting"  # no rank has reported a step yet
    LIVE = "live"
    STALLED = "stalled"  # ranks are alive but no step completes
    ENDED = "ended"


class RankState(StrEnum):
    """What a rank is doing."""

    LIVE = "live"
    SILENT = "silent"  # its node has sent nothing for a while
    ENDED = "ended"
    LOST = "lost"  # its process is gone without a word


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """What the run is; empty strings and None are not known yet."""

    run_id: str
    command: tuple[str, ...]
    framework: str
    strategy: str  # ddp, fsdp, fsdp2, or none: the script exchanges gradients itself, if at all
    backend: str
    device: str
    model: str
    world_size: int
    num_nodes: int
    gradient_bytes: int
    started_at: float | None  # wall clock of the collector, seconds since the epoch
    exit_code: int | None
    settings: dict[str, str]
    bucket_timing: str  # "on", or why buckets are not timed
    unmeasured: dict[str, str]  # figure -> why it is None
    notes: dict[str, str]  # figure -> how it was come by, where that is not plain


@dataclass(frozen=True, slots=True, kw_only=True)
class RankLine:
    """A rank's identity, state and recent history."""

    rank: int
    local_rank: int
    node: str
    pid: int
    gpu_uuid: str | None
    state: RankState
    last_step: int
    age_s: float  # since its last record arrived

    @property
    def label(self) -> str:
        """Name the rank as the screen does: r3@node1."""
        return f"r{self.rank}@{self.node}"


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Recent steps, oldest first, for charts; seconds, NaN is not measured. At most 240 steps."""

    steps: tuple[int, ...]
    t_iter: tuple[float, ...]  # mean over ranks
    t_c_no: tuple[float, ...]  # mean over ranks
    lateness: dict[int, tuple[float, ...]]  # rank -> lateness per step; at most the 64 latest ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLine:
    """A node with its newest sensor samples."""

    node: str
    age_s: float
    sample: NodeSample | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """How far the figures can be trusted."""

    records: int  # steps x ranks received
    dropped: int  # steps x ranks lost in a probe's buffer
    lost_batches: int  # node batches that no agent could hold until the collector took them
    rejected: int  # frames refused as malformed or foreign
    missing_ranks: tuple[int, ...]
    overhead_us_per_step: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A run at one time. `assessment` is None until enough steps are complete on all live ranks."""

    at: float  # wall clock, seconds since the epoch; the recorded time in a replay
    state: RunState
    run: RunFacts
    num_steps: int  # complete on all live ranks since the start
    duration_s: float  # of the run so far
    assessment: Assessment | None
    ranks: tuple[RankLine, ...]  # by rank number
    nodes: tuple[NodeLine, ...]
    history: History
    findings: tuple[Finding, ...]  # active ones first, gravest first
    quality: Quality


_decoder = msgspec.msgpack.Decoder(Snapshot)


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """Encode a snapshot as msgpack."""
    return msgspec.msgpack.encode(snapshot)


def decode_snapshot(frame: bytes) -> Snapshot:
    """Decode a snapshot; raise WireError when the collector is of another version."""
    try:
        return _decoder.decode(frame)
    except msgspec.DecodeError as error:
        raise WireError(
            f"the collector's snapshot cannot be read: {error}", "use the same ddltop version for viewer and collector"
        ) from error

"""Every message of the wire protocol, as msgspec Structs (docs/wire.md is the specification).

Legend of the columns in `RankSteps`: S steps, P phases (`PHASES` order), K bucket records and G records of other
collectives of all S steps, in step order. A column with a default may be empty: not sent. Columns are little-endian
blobs; NaN in a float column means not measured.
"""

import msgspec

PROTOCOL = 1
"""Version of this protocol. A peer of another version is refused with a message that names both."""


class Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """A message: encoded as a msgpack map whose `type` names it; unknown keys are ignored."""


# Probe (in a rank) to agent (on its node).


class RankHello(Message, frozen=True, kw_only=True, tag="rank_hello"):
    """A rank introduces itself; sent again after each reconnect and when its facts change."""

    run_id: str
    epoch: str  # random hex, one per process: tells a restarted rank from the old one
    rank: int
    local_rank: int
    world_size: int
    pid: int
    node: str
    attempt: int = 0
    framework: str = "pytorch"
    framework_version: str = ""
    backend: str = ""  # gloo, nccl, ...
    device: str = "cpu"  # cpu, cuda:0, ...
    gpu_uuid: str | None = None
    strategy: str = "ddp"  # ddp, fsdp, fsdp2, or none: the script exchanges gradients itself, if at all
    model: str = ""  # class name of the wrapped module
    num_parameters: int = 0
    gradient_bytes: int = 0
    bucket_timing: str = ""  # "on", or why buckets are not timed
    settings: dict[str, str] = {}  # DDP flags and the environment that shapes communication
    unmeasured: dict[str, str] = {}  # phase or figure -> why it is None
    notes: dict[str, str] = {}  # phase or figure -> how it was come by, where that is not plain


class RankSteps(Message, frozen=True, kw_only=True, tag="rank_steps"):
    """Measurements of S consecutive optimizer steps of one rank."""

    epoch: str
    rank: int
    seq: int
    steps: bytes  # u4 [S] optimizer step number, from 0
    start_us: bytes  # u8 [S] start of the step, wall-clock microseconds (labels only)
    phases: bytes  # f4 [S, P] seconds
    num_samples: bytes  # f4 [S] samples this rank trained on
    num_micro_steps: bytes  # u2 [S] backward passes in the step
    flags: bytes  # u1 [S] bits of `StepFlag`
    backward_start: bytes  # f4 [S] seconds from the start of the step, last synchronising backward
    backward_end: bytes  # f4 [S] end of backward computation, same origin
    bucket_counts: bytes  # u2 [S] buckets of each step; sums to K
    bucket_index: bytes  # u2 [K] DDP's bucket index
    bucket_nbytes: bytes  # u8 [K]
    bucket_ready: bytes  # f4 [K] seconds from the start of the step
    bucket_start: bytes  # f4 [K]
    bucket_end: bytes  # f4 [K]
    bucket_dtype: bytes = b""  # u1 [K] position in DTYPES
    num_tokens: bytes = b""  # f4 [S] tokens this rank trained on, padding included
    evaluation: bytes = b""  # f4 [S] seconds of evaluation before the step, in no phase of it
    host_ahead: bytes = b""  # f4 [S] least lead of the host over the device, seconds; about 0 where the device waited
    collective_counts: bytes = b""  # u2 [S] records of each step; sums to G
    collective_kind: bytes = b""  # u1 [G] position in COLLECTIVE_KINDS
    collective_place: bytes = b""  # u1 [G] position in COLLECTIVE_PLACES
    collective_calls: bytes = b""  # u2 [G]
    collective_nbytes: bytes = b""  # u8 [G]
    collective_exposed: bytes = b""  # f4 [G] seconds that the step waited for them
    dropped: int = 0  # steps this rank has lost so far, cumulative
    overhead_us: float = 0.0  # cost of our own code per step, microseconds


class RankBye(Message, frozen=True, kw_only=True, tag="rank_bye"):
    """A rank has ended: `reason` is "exit" (said so itself) or "lost" (its process is gone)."""

    epoch: str
    rank: int
    reason: str = "exit"


# Samples of a node. Rates are per second over the sampling interval; None means not measured.


class NicSample(msgspec.Struct, frozen=True, kw_only=True):
    """One interface of /sys/class/net."""

    name: str
    rx_bytes_per_s: float | None
    tx_bytes_per_s: float | None
    speed_bytes_per_s: float | None  # link speed; None when the driver gives none
    operstate: str
    rx_errors: int | None = None  # cumulative
    tx_errors: int | None = None
    rx_dropped: int | None = None
    tx_dropped: int | None = None


class GpuSample(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU, from NVML."""

    index: int
    uuid: str
    name: str
    utilization_ratio: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    temperature_c: float | None = None
    sm_clock_mhz: float | None = None
    sm_clock_max_mhz: float | None = None
    throttle_reasons: tuple[str, ...] = ()


class HostSample(msgspec.Struct, frozen=True, kw_only=True):
    """CPU and memory of the node."""

    num_cpus: int
    cpu_ratio: float | None  # 0..1, all CPUs together
    load_1m: float | None
    memory_used_bytes: int | None
    memory_total_bytes: int | None
    rank_cpu_ratio: dict[int, float] = {}  # rank -> CPUs kept busy (1.0 = one CPU)
    rank_rss_bytes: dict[int, int] = {}


class NodeSample(msgspec.Struct, frozen=True, kw_only=True):
    """All sensors of a node at one time."""

    at_us: int  # wall-clock microseconds of that node
    host: HostSample
    nics: tuple[NicSample, ...] = ()
    gpus: tuple[GpuSample, ...] = ()
    gpu_status: str = "ok"  # "ok", or why there are no GPU figures, e.g. "no GPU"


# Agent to collector.


class AgentHello(Message, frozen=True, kw_only=True, tag="agent_hello"):
    """An agent opens its conversation; sent until a `Welcome` or `Refused` comes."""

    protocol: int
    version: str
    run_id: str
    node: str
    epoch: str  # random hex, one per agent process
    first_seq: int  # oldest batch it still holds
    ranks: tuple[RankHello, ...] = ()  # present now: a collector that has just started knows none


class NodeBatch(Message, frozen=True, kw_only=True, tag="node_batch"):
    """What one node has gathered in 0.5-1 s: records of its ranks and samples of its sensors."""

    epoch: str
    node: str
    seq: int  # from 1, by one per batch
    first_seq: int  # oldest batch still in the replay ring: what is older and unseen is lost
    records: tuple[RankHello | RankSteps | RankBye, ...] = ()
    samples: tuple[NodeSample, ...] = ()


class AgentBye(Message, frozen=True, kw_only=True, tag="agent_bye"):
    """The agent ends: all its ranks are gone and everything is acknowledged."""

    epoch: str
    node: str


# Collector to agent.


class Welcome(Message, frozen=True, kw_only=True, tag="welcome"):
    """The collector accepts the agent and has everything before `next_seq` of this epoch."""

    protocol: int
    version: str
    run_id: str
    next_seq: int


class Ack(Message, frozen=True, kw_only=True, tag="ack"):
    """Everything up to and including `seq` of this agent epoch has arrived."""

    epoch: str
    seq: int


class Refused(Message, frozen=True, kw_only=True, tag="refused"):
    """The collector will not take this peer's messages; `reason` names both sides' values."""

    reason: str


# Viewer or `ddltop run` to collector, and back.


class SnapshotRequest(Message, frozen=True, kw_only=True, tag="snapshot_request"):
    """Ask for the current snapshot."""

    protocol: int = PROTOCOL


class SnapshotReply(Message, frozen=True, kw_only=True, tag="snapshot_reply"):
    """A snapshot, msgpack of `ddltop.collector.snapshot.Snapshot`."""

    snapshot: bytes


class RunStart(Message, frozen=True, kw_only=True, tag="run_start"):
    """`ddltop run` tells what it launched."""

    run_id: str
    command: tuple[str, ...]
    started_us: int


class RunEnd(Message, frozen=True, kw_only=True, tag="run_end"):
    """`ddltop run` tells that the command has ended."""

    run_id: str
    exit_code: int


# On demand: a viewer asks, the collector passes it on to the agents, an agent to its ranks; answers come back in parts.


class OnDemandRequest(Message, frozen=True, kw_only=True, tag="on_demand_request"):
    """Ask ranks for something that is not measured all the time."""

    id: str  # random hex, chosen by who asks
    kind: str  # "stacks": Python stacks of all threads, text; "profile": a Chrome trace, gzip
    ranks: tuple[int, ...] = ()  # empty: all that are alive
    num_steps: int = 0  # of a profile


class OnDemandReply(Message, frozen=True, kw_only=True, tag="on_demand_reply"):
    """One part of one rank's answer."""

    id: str
    rank: int
    node: str
    part: int = 0  # from 0
    num_parts: int = 1
    payload: bytes = b""
    error: str = ""  # why there is no answer; then this is the only part


class OnDemandAccepted(Message, frozen=True, kw_only=True, tag="on_demand_accepted"):
    """The collector has passed the request on to these ranks."""

    id: str
    ranks: tuple[int, ...]


class StepFlag:
    """Bits of `RankSteps.flags`."""

    SKIPPED = 1  # the optimizer step was skipped (AMP overflow)
    FIRST_BATCH = 2  # the step fetched the first batch of an epoch: its t_io includes worker start
    EVALUATION = 4  # an evaluation ran between this step and the one before; its time is not in the step
    INFERRED_IO = 8  # t_io is inferred from a gap, not measured at a DataLoader
    INFERRED_FORWARD = 16  # t_f is inferred: what led up to backward in a model that is not wrapped
    COARSE = 32  # the step was not measured in detail: only t_iter is known


ToRank = OnDemandRequest
ToAgent = RankHello | RankSteps | RankBye | OnDemandReply | Welcome | Ack | Refused | OnDemandRequest
ToCollector = AgentHello | NodeBatch | AgentBye | OnDemandReply | SnapshotRequest | OnDemandRequest | RunStart | RunEnd
ToViewer = SnapshotReply | OnDemandAccepted | OnDemandReply | Refused | Ack

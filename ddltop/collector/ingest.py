"""The sans-I/O heart of the collector: frames in, replies out, one run's bounded state inside.

Replay feeds it the recorded frames at their recorded times, so a recording gives the findings it gave live.
"""

from dataclasses import dataclass, field

import ddltop
from ddltop.collector.columns import unpack_steps
from ddltop.collector.diagnosis import Diagnosis
from ddltop.collector.rings import StepRing
from ddltop.collector.roster import NodeEntry, Roster
from ddltop.errors import WireError
from ddltop.model.window import Window
from ddltop.wire.codec import decode_for_collector
from ddltop.wire.messages import (
    PROTOCOL,
    Ack,
    AgentBye,
    AgentHello,
    Message,
    NodeBatch,
    OnDemandReply,
    OnDemandRequest,
    RankBye,
    RankHello,
    RankSteps,
    Refused,
    RunEnd,
    RunStart,
    SnapshotRequest,
    Welcome,
)

MAX_WORLD_SIZE = 65_536
# A rank cannot be further ahead than the ring of the slowest one: a step number beyond is no step number.
MAX_STEP_JUMP = 10_000_000


@dataclass(slots=True)
class Intake:
    """What a frame led to."""

    replies: list[Message] = field(default_factory=list)
    is_recordable: bool = False  # it changed the run: a recording keeps it
    wants_snapshot: bool = False
    agent_of: str = ""  # the node whose agent sent the frame
    request: OnDemandRequest | None = None
    answer: OnDemandReply | None = None


class Ingest:
    """State of one run. One thread owns it; `now` is the collector's clock, seconds since the epoch."""

    def __init__(self, run_id: str, *, command: tuple[str, ...] = (), started_at: float | None = None) -> None:
        self.run_id = run_id
        self.command = command
        self.started_at = started_at
        self.ended_at: float | None = None
        self.exit_code: int | None = None
        self.roster = Roster()
        self.ring: StepRing | None = None
        self.watermark = -1
        self.progress_at: float | None = None
        self.diagnosis = Diagnosis()
        self.rejected: dict[str, int] = {}
        self._recorded_to = -1

    def receive(self, frame: bytes, now: float) -> Intake:
        """Take one frame; a malformed one is counted, never raised."""
        try:
            intake = self._dispatch(decode_for_collector(frame), now)
        except WireError as error:
            self._reject(error.message)
            return Intake()
        self._advance(now)
        return intake

    def tick(self, now: float) -> None:
        """Let time pass: silent nodes, and the watermark that no longer waits for them."""
        self.roster.note_silence(now)
        self._advance(now)

    def take_completed(self) -> Window | None:
        """Give the steps that all ranks have completed since the last call; None when there are none."""
        if self.ring is None or self.watermark <= self._recorded_to:
            return None
        window = self.ring.window(self._recorded_to + 1, self.watermark, self.roster.reporting_ranks())
        self._recorded_to = self.watermark
        return window if window.num_steps else None

    @property
    def is_over(self) -> bool:
        """Tell whether the launcher has said so, or every rank has ended, and every agent has left."""
        agents_left = all(node.has_left for node in self.roster.nodes.values())
        if self.exit_code is not None:
            return agents_left
        return self.roster.is_over and agents_left

    def _dispatch(self, message: Message, now: float) -> Intake:
        if isinstance(message, NodeBatch):
            return self._take_batch(message, now)
        if isinstance(message, AgentHello):
            return self._take_agent_hello(message, now)
        if isinstance(message, OnDemandRequest):
            return Intake(request=message)
        if isinstance(message, OnDemandReply):
            return Intake(answer=message)
        if isinstance(message, SnapshotRequest):
            return self._take_snapshot_request(message)
        if isinstance(message, AgentBye):
            entry = self.roster.nodes.get(message.node)
            if entry is not None and entry.epoch == message.epoch:
                entry.has_left = True
            return Intake(is_recordable=True)
        if isinstance(message, RunStart):
            self.command, self.started_at = message.command, message.started_us / 1e6
            return Intake(replies=[Ack(epoch="", seq=0)], is_recordable=True)
        if isinstance(message, RunEnd):
            self.exit_code, self.ended_at = message.exit_code, now
            return Intake(replies=[Ack(epoch="", seq=0)], is_recordable=True)
        return Intake()

    def _take_snapshot_request(self, message: SnapshotRequest) -> Intake:
        if message.protocol != PROTOCOL:
            return Intake(replies=[_refuse_version("viewer", message.protocol, "")])
        return Intake(wants_snapshot=True)

    def _take_agent_hello(self, hello: AgentHello, now: float) -> Intake:
        if hello.protocol != PROTOCOL:
            self._reject(f"agent of {hello.node} speaks protocol {hello.protocol}")
            return Intake(replies=[_refuse_version(f"agent of {hello.node}", hello.protocol, hello.version)])
        if hello.run_id != self.run_id:
            self._reject(f"agent of {hello.node} belongs to run {hello.run_id}")
            return Intake(replies=[Refused(reason=f"this collector serves run {self.run_id}, not {hello.run_id}")])
        entry = self.roster.meet_agent(hello.node, hello.epoch, now)
        entry.delivery.give_up_before(hello.first_seq)
        for rank in hello.ranks:
            self._take_record(rank, hello.node, now)
        welcome = Welcome(
            protocol=PROTOCOL, version=ddltop.__version__, run_id=self.run_id, next_seq=entry.delivery.next_seq
        )
        return Intake(replies=[welcome], is_recordable=True, agent_of=hello.node)

    def _take_batch(self, batch: NodeBatch, now: float) -> Intake:
        entry = self.roster.nodes.get(batch.node)
        if entry is None or entry.epoch != batch.epoch:
            # Not introduced, or a frame of an agent that has been replaced: it will say hello again.
            self._reject(f"batch of an unknown agent of {batch.node}")
            return Intake()
        entry.seen_at = now
        entry.delivery.give_up_before(batch.first_seq)
        is_new = entry.delivery.accept(batch.seq)
        if is_new:
            self._take_records(entry, batch, now)
        reply = Ack(epoch=batch.epoch, seq=entry.delivery.next_seq - 1)
        return Intake(replies=[reply], is_recordable=is_new, agent_of=batch.node)

    def _take_records(self, entry: NodeEntry, batch: NodeBatch, now: float) -> None:
        for record in batch.records:
            try:
                self._take_record(record, batch.node, now)
            except WireError as error:
                self._reject(error.message)
        if batch.samples:
            entry.sample = batch.samples[-1]

    def _take_record(self, record: RankHello | RankSteps | RankBye, node: str, now: float) -> None:
        if isinstance(record, RankHello):
            self._take_rank_hello(record, node, now)
        elif isinstance(record, RankBye):
            self.roster.note_bye(record)
        else:
            self._take_steps(record, node, now)

    def _take_rank_hello(self, hello: RankHello, node: str, now: float) -> None:
        if not 0 < hello.world_size <= MAX_WORLD_SIZE or not 0 <= hello.rank < hello.world_size:
            raise _foreign(f"rank {hello.rank} of {hello.world_size}")
        if hello.node != node:
            raise _foreign(f"rank {hello.rank} of node {hello.node} in a batch of node {node}")
        is_restart = self.roster.meet_rank(hello, now)
        if is_restart or self.ring is None or self.ring.num_ranks != hello.world_size:
            self.ring = StepRing(hello.world_size)
            self.watermark = self._recorded_to = -1
            self.diagnosis.restart()

    def _take_steps(self, message: RankSteps, node: str, now: float) -> None:
        entry = self.roster.ranks.get(message.rank)
        if entry is None or self.ring is None or entry.hello.epoch != message.epoch:
            raise _foreign(f"steps of an unknown process of rank {message.rank}")
        if entry.hello.node != node:
            raise _foreign(f"steps of rank {message.rank} from node {node}")
        columns = unpack_steps(message)
        last_step = int(columns.steps_S[-1])
        if last_step > max(entry.last_step, 0) + MAX_STEP_JUMP:
            raise _foreign(f"step {last_step} of rank {message.rank}")
        self.ring.put(message.rank, columns)
        self.roster.note_steps(message, last_step, columns.steps_S.size, now)
        if self.started_at is None:
            self.started_at = now

    def _advance(self, now: float) -> None:
        if self.ring is None:
            return
        watermark = self.roster.watermark(now)
        if watermark > self.watermark:
            self.watermark = watermark
            self.progress_at = now
            self.diagnosis.advance(self.ring, self.roster, watermark)

    def _reject(self, reason: str) -> None:
        # By reason, bounded: a hostile peer must not grow the table.
        key = reason if reason in self.rejected or len(self.rejected) < 64 else "other"
        self.rejected[key] = self.rejected.get(key, 0) + 1


def _refuse_version(who: str, protocol: int, version: str) -> Refused:
    theirs = f"ddltop {version} (protocol {protocol})" if version else f"protocol {protocol}"
    return Refused(reason=f"the {who} speaks {theirs}, the collector ddltop {ddltop.__version__} (protocol {PROTOCOL})")


def _foreign(what: str) -> WireError:
    return WireError(f"refused: {what}", "run one job per run directory")

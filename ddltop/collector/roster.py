"""Who takes part in a run: ranks and nodes, when each was last heard, and up to which step all have come."""

from dataclasses import dataclass

from ddltop.collector.delivery import Delivery
from ddltop.collector.snapshot import RankState
from ddltop.wire.messages import NodeSample, RankBye, RankHello, RankSteps

SILENT_AFTER_S = 3.0
# A launcher starts its ranks within seconds of each other; after that the run is shown without the missing.
FIRST_STEP_GRACE_S = 20.0


@dataclass(slots=True)
class RankEntry:
    """One rank of the present generation."""

    hello: RankHello
    state: RankState
    seen_at: float
    last_step: int = -1
    num_records: int = 0
    dropped: int = 0
    overhead_us: float = 0.0


@dataclass(slots=True)
class NodeEntry:
    """One node and the agent process that speaks for it."""

    node: str
    epoch: str
    delivery: Delivery
    seen_at: float
    sample: NodeSample | None = None
    has_left: bool = False
    lost_before: int = 0  # batches lost by earlier agents of this node


class Roster:
    """Ranks and nodes of a run; times are the collector's clock, seconds."""

    def __init__(self) -> None:
        self.ranks: dict[int, RankEntry] = {}
        self.nodes: dict[str, NodeEntry] = {}
        self.generation = 0
        self._first_step_at: float | None = None

    @property
    def world_size(self) -> int:
        """Number of ranks that the ranks themselves name; 0 before the first hello."""
        return max((entry.hello.world_size for entry in self.ranks.values()), default=0)

    def meet_agent(self, node: str, epoch: str, now: float) -> NodeEntry:
        """Give the node's entry, with a new delivery record when its agent process is new."""
        entry = self.nodes.get(node)
        if entry is None:
            entry = self.nodes[node] = NodeEntry(node=node, epoch=epoch, delivery=Delivery(), seen_at=now)
        elif entry.epoch != epoch:
            entry.lost_before += entry.delivery.num_lost
            entry.epoch, entry.delivery, entry.has_left = epoch, Delivery(), False
        entry.seen_at = now
        return entry

    def meet_rank(self, hello: RankHello, now: float) -> bool:
        """Note a rank's hello; tell whether it starts a new generation (the job was restarted or resized)."""
        entry = self.ranks.get(hello.rank)
        if entry is not None and entry.hello.epoch == hello.epoch:
            entry.hello = hello
            entry.seen_at = now
            return False
        is_restart = entry is not None or (bool(self.ranks) and hello.world_size != self.world_size)
        if is_restart:
            self.ranks = {}
            self._first_step_at = None
        if is_restart or not self.ranks:
            self.generation += 1
        self.ranks[hello.rank] = RankEntry(hello=hello, state=RankState.LIVE, seen_at=now)
        return is_restart

    def note_steps(self, message: RankSteps, last_step: int, num_steps: int, now: float) -> None:
        """Note that steps of a rank have arrived."""
        entry = self.ranks[message.rank]
        entry.last_step = max(entry.last_step, last_step)
        entry.num_records += num_steps
        entry.dropped = max(entry.dropped, message.dropped)
        entry.overhead_us = message.overhead_us
        entry.seen_at = now
        if entry.state is RankState.SILENT:
            entry.state = RankState.LIVE
        if self._first_step_at is None:
            self._first_step_at = now

    def note_bye(self, bye: RankBye) -> None:
        """Note that a rank has ended."""
        entry = self.ranks.get(bye.rank)
        if entry is not None and entry.hello.epoch == bye.epoch:
            entry.state = RankState.LOST if bye.reason == "lost" else RankState.ENDED

    def note_silence(self, now: float) -> None:
        """Mark the ranks whose node has not been heard for a while, and those that are back."""
        for entry in self.ranks.values():
            node = self.nodes.get(entry.hello.node)
            is_silent = node is None or now - node.seen_at > SILENT_AFTER_S
            if entry.state is RankState.LIVE and is_silent:
                entry.state = RankState.SILENT
            elif entry.state is RankState.SILENT and not is_silent:
                entry.state = RankState.LIVE

    def reporting_ranks(self) -> list[int]:
        """Give the ranks that have reported a step, in order."""
        return sorted(rank for rank, entry in self.ranks.items() if entry.last_step >= 0)

    def missing_ranks(self) -> tuple[int, ...]:
        """Give the ranks of the world that have not reported any step."""
        reporting = set(self.reporting_ranks())
        return tuple(rank for rank in range(self.world_size) if rank not in reporting)

    def watermark(self, now: float) -> int:
        """Give the last step that every rank still taking part has completed; -1 before the first."""
        reporting = [e for e in self.ranks.values() if e.last_step >= 0]
        if not reporting or self._first_step_at is None:
            return -1
        if self.missing_ranks() and now - self._first_step_at < FIRST_STEP_GRACE_S:
            return -1
        live = [e.last_step for e in reporting if e.state is RankState.LIVE]
        ended = [e.last_step for e in reporting if e.state is not RankState.LOST]
        return min(live or ended or [e.last_step for e in reporting])

    @property
    def is_over(self) -> bool:
        """Tell whether every rank has ended."""
        over = (RankState.ENDED, RankState.LOST)
        return bool(self.ranks) and all(entry.state in over for entry in self.ranks.values())

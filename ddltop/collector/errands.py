"""Who has asked the ranks for what: requests find the agents, answers find back to the viewer. Sans-I/O.

A peer is whatever names a connection to the caller; nothing here looks into it. Times are the collector's clock.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from ddltop.collector.roster import Roster
from ddltop.collector.snapshot import RankState
from ddltop.wire.messages import Message, OnDemandAccepted, OnDemandReply, OnDemandRequest, Refused

MAX_ERRANDS = 16
# The longest profile, and some time to bring it home.
LIMIT_S = 900.0

Peer = TypeVar("Peer")


@dataclass(slots=True)
class _Errand(Generic[Peer]):
    viewer: Peer
    waiting_for: set[int]
    until: float


class Errands(Generic[Peer]):
    """The open requests of a run, a bounded number of them."""

    def __init__(self) -> None:
        self._agents: dict[str, Peer] = {}
        self._open: dict[str, _Errand[Peer]] = {}

    def meet_agent(self, node: str, peer: Peer) -> None:
        """Note on which connection a node's agent speaks."""
        self._agents[node] = peer

    def open(
        self, request: OnDemandRequest, viewer: Peer, roster: Roster, now: float
    ) -> Iterator[tuple[Peer, Message]]:
        """Take a request; give the messages that follow from it, each with the peer it goes to."""
        self._open = {key: errand for key, errand in self._open.items() if errand.until > now and errand.waiting_for}
        live = {rank: e.hello.node for rank, e in roster.ranks.items() if e.state in (RankState.LIVE, RankState.SILENT)}
        wanted = set(request.ranks) or set(live)
        refusal = self._refusal(request, wanted - set(live), wanted)
        if refusal:
            yield viewer, Refused(reason=refusal)
            return
        self._open[request.id] = _Errand(viewer=viewer, waiting_for=wanted, until=now + LIMIT_S)
        yield viewer, OnDemandAccepted(id=request.id, ranks=tuple(sorted(wanted)))
        for node in sorted({live[rank] for rank in wanted}):
            if node in self._agents:
                yield self._agents[node], request

    def answer(self, reply: OnDemandReply) -> Iterator[tuple[Peer, Message]]:
        """Take a part of an answer; give it to who asked. What nobody asked for goes nowhere."""
        errand = self._open.get(reply.id)
        if errand is None or reply.rank not in errand.waiting_for:
            return
        if reply.error or reply.part >= reply.num_parts - 1:
            errand.waiting_for.discard(reply.rank)
        yield errand.viewer, reply

    def _refusal(self, request: OnDemandRequest, absent: set[int], wanted: set[int]) -> str:
        if request.id in self._open:
            return f"the request {request.id} is under way already"
        if len(self._open) >= MAX_ERRANDS:
            return f"{MAX_ERRANDS} requests are under way: wait for one of them"
        if not wanted:
            return "no rank is running"
        if absent:
            names = ", ".join(f"r{rank}" for rank in sorted(absent)[:8])
            return f"not running in this job: {names}"
        return ""

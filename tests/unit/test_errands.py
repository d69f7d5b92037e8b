"""Requests find the agents of their ranks and answers find back, however odd the peers."""

from ddltop.collector.errands import LIMIT_S, MAX_ERRANDS, Errands
from ddltop.collector.roster import Roster
from ddltop.wire.messages import OnDemandAccepted, OnDemandReply, OnDemandRequest, RankBye, Refused
from tests.unit.frames import rank_hello


def roster() -> Roster:
    """Ranks 0 and 1 on node0, 2 on node1; rank 1 has ended."""
    made = Roster()
    for rank, node in ((0, "node0"), (1, "node0"), (2, "node1")):
        made.meet_rank(rank_hello(rank, 3, node), 0.0)
    made.note_bye(RankBye(epoch="e1", rank=1))
    return made


def errands() -> Errands[str]:
    made: Errands[str] = Errands()
    made.meet_agent("node0", "agent0")
    made.meet_agent("node1", "agent1")
    return made


def request(key: str = "a", *ranks: int) -> OnDemandRequest:
    return OnDemandRequest(id=key, kind="stacks", ranks=ranks)


def reply(key: str = "a", rank: int = 0, part: int = 0, num_parts: int = 1, error: str = "") -> OnDemandReply:
    return OnDemandReply(id=key, rank=rank, node="node0", part=part, num_parts=num_parts, error=error)


def test_a_request_goes_to_the_agents_of_the_ranks_that_live() -> None:
    sent = list(errands().open(request(), "viewer", roster(), 0.0))
    assert sent[0] == ("viewer", OnDemandAccepted(id="a", ranks=(0, 2)))
    assert [peer for peer, _ in sent[1:]] == ["agent0", "agent1"]


def test_a_request_for_one_rank_troubles_no_other_node() -> None:
    sent = list(errands().open(request("a", 2), "viewer", roster(), 0.0))
    assert [peer for peer, _ in sent] == ["viewer", "agent1"]


def test_a_rank_that_is_not_there_is_refused_by_name() -> None:
    ((peer, refused),) = errands().open(request("a", 1, 5), "viewer", roster(), 0.0)
    assert peer == "viewer"
    assert isinstance(refused, Refused)
    assert "r1, r5" in refused.reason
    ((_, refused),) = errands().open(request(), "viewer", Roster(), 0.0)
    assert isinstance(refused, Refused)


def test_answers_go_to_who_asked_until_the_last_part_and_nowhere_else() -> None:
    made = errands()
    list(made.open(request("a", 0), "first", roster(), 0.0))
    list(made.open(request("b", 0), "second", roster(), 0.0))
    assert [peer for peer, _ in made.answer(reply("b", num_parts=2))] == ["second"]
    assert [peer for peer, _ in made.answer(reply("b", part=1, num_parts=2))] == ["second"]
    assert list(made.answer(reply("b", part=1, num_parts=2))) == []
    assert list(made.answer(reply("a", rank=2))) == []
    assert list(made.answer(reply("stranger"))) == []
    assert [peer for peer, _ in made.answer(reply("a", error="busy"))] == ["first"]


def test_open_requests_are_bounded_and_grow_old() -> None:
    made = errands()
    for i in range(MAX_ERRANDS):
        assert len(list(made.open(request(f"k{i}"), "viewer", roster(), 0.0))) == 3
    ((_, refused),) = made.open(request("more"), "viewer", roster(), 1.0)
    assert isinstance(refused, Refused)
    assert len(list(made.open(request("more"), "viewer", roster(), LIMIT_S + 1))) == 3
    ((_, refused),) = made.open(request("more"), "viewer", roster(), LIMIT_S + 2)
    assert isinstance(refused, Refused)

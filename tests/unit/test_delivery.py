"""Batches arrive once, whatever ZeroMQ loses, repeats or reorders; what is given up is counted."""

from ddltop_agents.node.outbox import RESEND_AFTER_S, Outbox
from hypothesis import given
from hypothesis import strategies as st

from ddltop.collector.delivery import Delivery
from ddltop.wire.codec import decode_for_collector
from ddltop.wire.messages import PROTOCOL, Ack, AgentHello, NodeBatch, RankBye, Welcome


@given(st.permutations(range(1, 30)), st.lists(st.integers(1, 29), max_size=40))
def test_each_number_is_taken_exactly_once_in_any_order(order: list[int], repeats: list[int]) -> None:
    delivery = Delivery()
    taken = [seq for seq in [*order, *repeats] if delivery.accept(seq)]
    assert sorted(taken) == list(range(1, 30))
    assert delivery.next_seq == 30
    assert delivery.num_duplicates == len(repeats)
    assert delivery.num_lost == 0


@given(st.sets(st.integers(1, 50), max_size=50), st.integers(1, 51))
def test_what_the_agent_gives_up_is_counted_as_lost(arrived: set[int], first_seq: int) -> None:
    delivery = Delivery()
    for seq in arrived:
        delivery.accept(seq)
    delivery.give_up_before(first_seq)
    assert delivery.num_lost == len(set(range(1, first_seq)) - arrived)
    assert not any(delivery.accept(seq) for seq in range(1, first_seq))


def hello() -> AgentHello:
    return AgentHello(protocol=PROTOCOL, version="0", run_id="r", node="n", epoch="e", first_seq=1)


def welcome(next_seq: int = 1) -> Welcome:
    return Welcome(protocol=PROTOCOL, version="0", run_id="r", next_seq=next_seq)


def sent(outbox: Outbox, now: float) -> list[object]:
    return [decode_for_collector(frame) for frame in outbox.due(now, ())]


def seqs(messages: list[object]) -> list[int]:
    return [message.seq for message in messages if isinstance(message, NodeBatch)]


def put(outbox: Outbox, now: float, size: int = 1) -> None:
    outbox.put(tuple(RankBye(epoch="e", rank=i) for i in range(size)), (), now)


def test_nothing_but_a_greeting_leaves_before_the_collector_has_answered() -> None:
    outbox = Outbox(hello())
    put(outbox, 0.0)
    assert [type(message) for message in sent(outbox, 0.0)] == [AgentHello]
    assert sent(outbox, 0.1) == []  # one greeting a second
    outbox.welcome(welcome(), 0.2)
    assert seqs(sent(outbox, 0.2)) == [1]
    assert sent(outbox, 0.3) == []


def test_a_frame_that_the_socket_refused_is_offered_again() -> None:
    outbox = Outbox(hello())
    outbox.welcome(welcome(), 0.0)
    put(outbox, 0.0)
    put(outbox, 0.0)
    next(iter(outbox.due(0.0, ())))  # taken out, refused by the socket: the caller asks for no further one
    assert seqs(sent(outbox, 0.1)) == [1, 2]


def test_silence_makes_the_agent_greet_and_send_again_what_was_not_acknowledged() -> None:
    outbox = Outbox(hello())
    outbox.welcome(welcome(), 0.0)
    for _ in range(3):
        put(outbox, 0.0)
    sent(outbox, 0.0)
    outbox.acknowledge(Ack(epoch="e", seq=1), 0.5)
    late = 0.5 + RESEND_AFTER_S + 0.1
    greeting = sent(outbox, late)
    assert [type(message) for message in greeting] == [AgentHello]
    assert isinstance(greeting[0], AgentHello)
    assert greeting[0].first_seq == 2
    outbox.welcome(welcome(next_seq=2), late)
    assert seqs(sent(outbox, late)) == [2, 3]
    outbox.acknowledge(Ack(epoch="e", seq=3), late)
    assert outbox.is_empty


def test_an_acknowledgement_of_another_agent_is_not_ours() -> None:
    outbox = Outbox(hello())
    put(outbox, 0.0)
    outbox.acknowledge(Ack(epoch="other", seq=1), 0.0)
    assert not outbox.is_empty


def test_the_ring_is_bounded_in_bytes_and_in_age_and_drops_the_oldest() -> None:
    outbox = Outbox(hello(), max_bytes=2000, max_age_s=10.0)
    for _ in range(50):
        put(outbox, 0.0, size=10)
    assert outbox.num_lost > 0
    put(outbox, 20.0)
    outbox.welcome(welcome(), 20.0)
    kept = seqs(sent(outbox, 20.0))
    assert kept == [51]

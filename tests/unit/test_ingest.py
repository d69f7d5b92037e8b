"""The collector's core: steps of all ranks come together, and nothing hostile disturbs them."""

import random
from dataclasses import replace

import numpy as np
import pytest
from ddltop_agents.rank.assembly import CollectiveSum
from ddltop_agents.rank.columns import pack_steps
from hypothesis import given, settings
from hypothesis import strategies as st

from ddltop.collector.columns import unpack_steps
from ddltop.collector.ingest import Ingest
from ddltop.collector.rings import MAX_COLLECTIVES, StepRing
from ddltop.collector.snapshot import RankState, RunState, Snapshot, decode_snapshot, encode_snapshot
from ddltop.collector.snapshot_builder import SnapshotBuilder
from ddltop.diagnose.finding import Code
from ddltop.wire.codec import MAX_FRAME_BYTES, encode
from ddltop.wire.collectives import COLLECTIVE_KINDS, COLLECTIVE_PLACES, CollectiveKind, CollectivePlace
from ddltop.wire.messages import (
    PROTOCOL,
    Ack,
    AgentBye,
    RankBye,
    Refused,
    RunEnd,
    SnapshotRequest,
    StepFlag,
    Welcome,
)
from tests.unit.frames import RUN, agent_hello, batch, changed, measure, rank_hello, rank_steps


def started() -> Ingest:
    """Two ranks on one node have said hello."""
    ingest = Ingest(RUN)
    ingest.receive(agent_hello(), 0.0)
    ingest.receive(batch(1, rank_hello(0), rank_hello(1)), 0.0)
    return ingest


def snapshot_of(ingest: Ingest, now: float = 1.0) -> Snapshot:
    return SnapshotBuilder(ingest).build(now)


def test_an_agent_is_welcomed_and_its_batches_are_acknowledged() -> None:
    ingest = Ingest(RUN)
    (welcome,) = ingest.receive(agent_hello(), 0.0).replies
    assert isinstance(welcome, Welcome)
    assert welcome.next_seq == 1
    assert ingest.receive(batch(1, rank_hello(0)), 0.0).replies == [Ack(epoch="a1", seq=1)]


def test_a_step_counts_when_every_rank_has_it() -> None:
    ingest = started()
    ingest.receive(batch(2, rank_steps(0, range(10))), 0.1)
    assert ingest.watermark == -1
    ingest.receive(batch(3, rank_steps(1, range(7))), 0.2)
    assert ingest.watermark == 6
    window = ingest.take_completed()
    assert window is not None
    assert list(window.steps_S) == list(range(7))
    assert ingest.take_completed() is None


def test_a_repeated_batch_changes_nothing() -> None:
    ingest = started()
    frame = batch(2, rank_steps(0, range(5)))
    assert ingest.receive(frame, 0.1).is_recordable
    assert not ingest.receive(frame, 0.2).is_recordable
    assert snapshot_of(ingest).quality.records == 5


def test_figures_come_out_as_they_went_in() -> None:
    ingest = started()
    ingest.receive(batch(2, rank_steps(0, range(40), other_t_b=0.060)), 0.1)
    ingest.receive(batch(3, rank_steps(1, range(40), t_b=0.060, other_t_b=0.020)), 0.2)
    assessment = snapshot_of(ingest).assessment
    assert assessment is not None
    by_rank = {figures.rank: figures for figures in assessment.ranks}
    assert by_rank[0].phases.t_b == pytest.approx(0.020)
    assert by_rank[1].phases.t_b == pytest.approx(0.060)
    assert by_rank[1].lateness_s == pytest.approx(0.040, rel=1e-4)
    assert by_rank[0].phases.exposed_wait == pytest.approx(0.040, rel=1e-4)
    assert assessment.buckets[0].nbytes == 1_000_000
    assert assessment.buckets[0].transfer_s == pytest.approx(0.004, rel=1e-3)


def test_collectives_and_what_is_beside_the_phases_come_out_as_they_went_in() -> None:
    ingest = started()
    gather = CollectiveSum(kind=1, place=0, num_calls=3, nbytes=3_000, exposed=0.002)
    for rank in (0, 1):
        steps = [
            replace(
                measure(step),
                collectives=(gather,) if step % 2 else (),
                num_tokens=128.0,
                evaluation=0.1,
                host_ahead=0.5,
                flags=StepFlag.EVALUATION,
                buckets=tuple(replace(bucket, dtype="bfloat16") for bucket in measure(step).buckets),
            )
            for step in range(20)
        ]
        packed = pack_steps(steps, epoch=f"e{rank}", rank=rank, seq=1, wall_minus_perf_ns=0, dropped=0, overhead_us=1.0)
        ingest.receive(batch(2 + rank, packed), 0.1)
    assert ingest.ring is not None
    window = ingest.ring.window(0, 19, [0, 1])
    (sums,) = window.collectives
    assert (sums.kind, sums.place) == (CollectiveKind.ALL_GATHER, CollectivePlace.FORWARD)
    assert sums.calls_SR[:4, 0].tolist() == [0.0, 3.0, 0.0, 3.0]
    assert sums.nbytes_SR[1].tolist() == [3000.0, 3000.0]
    assert sums.exposed_SR[:2, 1] == pytest.approx([0.0, 0.002])
    assert window.num_tokens_SR[0].tolist() == [128.0, 128.0]
    assert window.evaluation_SR == pytest.approx(np.full((20, 2), 0.1))
    assert window.host_ahead_SR == pytest.approx(np.full((20, 2), 0.5))
    assert set(window.flags_SR.ravel().tolist()) == {StepFlag.EVALUATION}
    assert window.bucket_dtypes_B == ("bfloat16",)


def test_no_more_kinds_of_collectives_are_kept_than_memory_is_laid_out_for() -> None:
    ring = StepRing(1)
    keys = [(kind, place) for kind in range(len(COLLECTIVE_KINDS)) for place in range(len(COLLECTIVE_PLACES))]
    sums = tuple(CollectiveSum(kind=k, place=p, num_calls=1, nbytes=1, exposed=0.0) for k, p in keys)
    packed = pack_steps(
        [replace(measure(0), collectives=sums)],
        epoch="e0",
        rank=0,
        seq=1,
        wall_minus_perf_ns=0,
        dropped=0,
        overhead_us=1.0,
    )
    ring.put(0, unpack_steps(packed))
    assert len(ring.window(0, 0, [0]).collectives) == MAX_COLLECTIVES


def test_a_straggler_is_found_from_the_frames_alone_and_again_from_the_same_frames() -> None:
    def play() -> Ingest:
        ingest = started()
        for i, first in enumerate(range(0, 150, 10)):
            steps = range(first, first + 10)
            ingest.receive(batch(2 * i + 2, rank_steps(0, steps, other_t_b=0.060)), 0.5 * i)
            ingest.receive(batch(2 * i + 3, rank_steps(1, steps, t_b=0.060, other_t_b=0.020)), 0.5 * i + 0.1)
        return ingest

    first, second = play(), play()
    assert first.diagnosis.findings[0].code is Code.BACKWARD_STRAGGLER
    assert first.diagnosis.findings[0].ranks == (1,)
    assert first.diagnosis.findings == second.diagnosis.findings


def test_a_silent_node_is_marked_and_the_others_go_on() -> None:
    ingest = Ingest(RUN)
    for node, rank in (("node0", 0), ("node1", 1)):
        ingest.receive(agent_hello(node, epoch=node), 0.0)
        hello, steps = rank_hello(rank, node=node), rank_steps(rank, range(5))
        ingest.receive(batch(1, hello, steps, node=node, epoch=node), 0.0)
    ingest.receive(batch(2, rank_steps(0, range(5, 20)), epoch="node0"), 5.0)
    ingest.tick(5.1)
    states = {line.rank: line.state for line in snapshot_of(ingest, 5.1).ranks}
    assert states == {0: RankState.LIVE, 1: RankState.SILENT}
    assert ingest.watermark == 19


def test_a_run_ends_when_its_launcher_or_its_last_rank_says_so() -> None:
    ingest = started()
    ingest.receive(batch(2, rank_steps(0, range(5)), rank_steps(1, range(5))), 0.1)
    assert snapshot_of(ingest).state is RunState.LIVE
    ingest.receive(batch(3, RankBye(epoch="e0", rank=0), RankBye(epoch="e1", rank=1, reason="lost")), 0.2)
    assert snapshot_of(ingest).state is RunState.ENDED
    assert not ingest.is_over
    ingest.receive(encode(AgentBye(epoch="a1", node="node0")), 0.3)
    assert ingest.is_over
    ingest.receive(encode(RunEnd(run_id=RUN, exit_code=3)), 0.4)
    assert snapshot_of(ingest).run.exit_code == 3


def test_a_run_without_progress_is_stalled() -> None:
    ingest = started()
    ingest.receive(batch(2, rank_steps(0, range(9)), rank_steps(1, range(9))), 0.1)
    assert snapshot_of(ingest, 1.0).state is RunState.LIVE
    assert snapshot_of(ingest, 30.0).state is RunState.STALLED


def test_a_restarted_job_begins_again_at_step_zero() -> None:
    ingest = started()
    ingest.receive(batch(2, rank_steps(0, range(50)), rank_steps(1, range(50))), 0.1)
    ingest.receive(batch(3, rank_hello(0, epoch="f0"), rank_hello(1, epoch="f1")), 0.2)
    assert ingest.watermark == -1
    ingest.receive(batch(4, rank_steps(0, range(3), epoch="f0"), rank_steps(1, range(3), epoch="f1")), 0.3)
    assert ingest.watermark == 2


def test_a_collector_that_has_just_started_learns_the_ranks_from_the_greeting() -> None:
    ingest = Ingest(RUN)
    ingest.receive(agent_hello(first_seq=40, ranks=(rank_hello(0), rank_hello(1))), 0.0)
    ingest.receive(batch(40, rank_steps(0, range(90, 95)), rank_steps(1, range(90, 95)), first_seq=40), 0.1)
    assert ingest.watermark == 94
    assert snapshot_of(ingest).quality.lost_batches == 39


def test_another_protocol_is_refused_naming_both() -> None:
    ingest = Ingest(RUN)
    (refused,) = ingest.receive(agent_hello(protocol=PROTOCOL + 1, version="9.9"), 0.0).replies
    assert isinstance(refused, Refused)
    assert f"protocol {PROTOCOL + 1}" in refused.reason
    assert f"protocol {PROTOCOL}" in refused.reason
    (refused,) = ingest.receive(encode(SnapshotRequest(protocol=PROTOCOL + 1)), 0.0).replies
    assert isinstance(refused, Refused)


def test_an_agent_of_another_run_is_refused() -> None:
    (refused,) = Ingest(RUN).receive(agent_hello(run_id="other"), 0.0).replies
    assert isinstance(refused, Refused)


ONE_EACH = b"\x01\x00" * 5
COLLECTIVES = {
    "collective_kind": bytes(5),
    "collective_place": bytes(5),
    "collective_calls": ONE_EACH,
    "collective_nbytes": bytes(40),
    "collective_exposed": bytes(20),
}
NAN, INFINITE, HUGE = b"\x00\x00\xc0\x7f", b"\x00\x00\x80\x7f", b"\xff\xff\x7f\x7f"


@pytest.mark.parametrize(
    "fields",
    [
        {"steps": b""},
        {"steps": b"123"},
        {"steps": b"\x05\x00\x00\x00" * 5},
        {"phases": b"\x00" * 8},
        {"phases": INFINITE * 45},
        {"phases": HUGE * 45},
        {"num_samples": INFINITE * 5},
        {"bucket_counts": b"\xff\xff" * 5},
        {"bucket_nbytes": b"\xff" * 40},
        {"bucket_end": NAN * 4},
        {"num_tokens": INFINITE * 5},
        {"evaluation": NAN * 4},
        {"host_ahead": HUGE * 5},
        {"bucket_dtype": b"\xff" * 5},
        {"flags": b""},
        {"collective_counts": b"\xff\xff" * 5},
        {"collective_counts": ONE_EACH},
        {"collective_counts": ONE_EACH, **COLLECTIVES, "collective_kind": b"\xff" * 5},
        {"collective_counts": ONE_EACH, **COLLECTIVES, "collective_place": b"\x04" * 5},
        {"collective_counts": ONE_EACH, **COLLECTIVES, "collective_nbytes": b"\xff" * 40},
        {"collective_counts": ONE_EACH, **COLLECTIVES, "collective_exposed": HUGE * 5},
        {"rank": 7},
        {"rank": -1},
        {"epoch": "stranger"},
    ],
)
def test_a_wrong_column_is_refused_counted_and_harmless(fields: dict[str, object]) -> None:
    ingest = started()
    wrong = changed(rank_steps(0, range(5)), **fields)
    ingest.receive(batch(2, wrong, rank_steps(1, range(5))), 0.1)
    ingest.receive(batch(3, rank_steps(0, range(5))), 0.2)
    assert ingest.watermark == 4
    assert snapshot_of(ingest).quality.rejected == 1


def test_ranks_of_impossible_worlds_and_of_other_nodes_are_refused() -> None:
    ingest = Ingest(RUN)
    ingest.receive(agent_hello(), 0.0)
    for i, hello in enumerate(
        (rank_hello(5, 2), rank_hello(0, 10**9), rank_hello(0, 0), rank_hello(0, node="node7")), start=1
    ):
        ingest.receive(batch(i, hello), 0.0)
    assert ingest.roster.ranks == {}
    assert snapshot_of(ingest).quality.rejected == 4


def test_an_oversized_frame_is_refused_unread() -> None:
    ingest = started()
    assert ingest.receive(b"\x00" * (MAX_FRAME_BYTES + 1), 0.1).replies == []
    assert snapshot_of(ingest).quality.rejected == 1


@settings(max_examples=300)
@given(st.binary(max_size=200))
def test_garbage_never_raises(frame: bytes) -> None:
    started().receive(frame, 0.1)


def test_damaged_frames_never_raise_and_never_move_time_back() -> None:
    source = random.Random(7)
    ingest = started()
    frames = [batch(2, rank_steps(0, range(8))), batch(3, rank_steps(1, range(8))), agent_hello()]
    for _ in range(3000):
        frame = bytearray(source.choice(frames))
        for _ in range(source.randint(1, 4)):
            frame[source.randrange(len(frame))] = source.randrange(256)
        ingest.receive(bytes(frame), 0.1)
        ingest.tick(0.2)
    snapshot_of(ingest)


def test_the_table_of_refusals_is_bounded() -> None:
    ingest = started()
    for i in range(500):
        ingest.receive(agent_hello(node=f"n{i}", run_id="other"), 0.1)
    assert len(ingest.rejected) <= 65
    assert snapshot_of(ingest).quality.rejected == 500


def test_a_snapshot_survives_the_wire() -> None:
    ingest = started()
    ingest.receive(batch(2, rank_steps(0, range(60)), rank_steps(1, range(60))), 0.1)
    snapshot = snapshot_of(ingest)
    assert decode_snapshot(encode_snapshot(snapshot)) == snapshot

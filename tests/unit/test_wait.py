"""Equation (12): who came last is read off durations alone, with no common clock."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddltop.model.wait import arrivals
from ddltop.wire.collectives import CollectiveKind
from tests.unit.builders import Work, make_collectives, make_sharded_window, make_window


def test_the_rank_that_does_not_wait_is_the_late_one_though_all_take_the_same_time() -> None:
    window = make_window([Work(), Work(t_b=0.060), Work()], num_steps=5)
    found = arrivals(window)
    assert found.lateness_SR.mean(axis=0) == pytest.approx([0.0, 0.040, 0.0], abs=1e-9)


def test_transfers_are_what_the_wire_needed() -> None:
    window = make_window([Work(), Work(t_f=0.030)], num_steps=5)
    assert arrivals(window).transfer_SB.mean(axis=0) == pytest.approx([0.001, 0.002, 0.004])


def test_clocks_that_differ_by_seconds_change_nothing() -> None:
    window = make_window([Work(), Work(t_b=0.050)], num_steps=5, noise=0.05)
    shifted = make_window([Work(), Work(t_b=0.050)], num_steps=5, noise=0.05)
    for name in ("bucket_ready_SRB", "bucket_start_SRB", "bucket_end_SRB"):
        getattr(shifted, name)[:, 1] += 7.0
    shifted.backward_end_SR[:, 1] += 7.0
    assert arrivals(shifted).lateness_SR == pytest.approx(arrivals(window).lateness_SR, abs=1e-9)
    assert arrivals(shifted).exposed_wait_SR == pytest.approx(arrivals(window).exposed_wait_SR, abs=1e-9)


def test_a_rank_without_bucket_times_does_not_poison_the_others() -> None:
    window = make_window([Work(), Work(t_b=0.060), Work()], num_steps=5)
    window.bucket_start_SRB[:, 2] = np.nan
    window.bucket_end_SRB[:, 2] = np.nan
    lateness = arrivals(window).lateness_SR
    assert lateness[:, :2].mean(axis=0) == pytest.approx([0.0, 0.040], abs=1e-9)
    assert np.isnan(lateness[:, 2]).all()


def test_one_rank_that_is_heard_tells_nothing_of_waits() -> None:
    window = make_window([Work(), Work()], num_steps=3)
    window.bucket_end_SRB[:, 1] = np.nan
    assert np.isnan(arrivals(window).transfer_SB).all()


def test_without_buckets_nothing_is_claimed() -> None:
    window = make_window([Work(), Work()], num_steps=3, nbytes=(), transfers=())
    assert np.isnan(arrivals(window).lateness_SR).all()


def test_where_gradients_travel_in_other_collectives_the_late_rank_waits_least_in_them() -> None:
    found = arrivals(make_sharded_window([Work(), Work(t_b=0.050), Work()], num_steps=5))
    assert found.lateness_SR.mean(axis=0) == pytest.approx([0.0, 0.030, 0.0])
    assert found.exposed_wait_SR.mean(axis=0) == pytest.approx([0.030, 0.0, 0.030])
    assert found.exposed_transfer_SR == pytest.approx(np.full((5, 3), 0.004))
    assert found.collectives_SR == pytest.approx(np.full((5, 3), 0.004))


def test_other_collectives_are_added_to_what_the_buckets_expose() -> None:
    plain = arrivals(make_window([Work(), Work()], num_steps=4))
    metrics = make_collectives(np.array([[0.003, 0.001]] * 4))
    both = arrivals(make_window([Work(), Work()], num_steps=4, collectives=(metrics,)))
    assert both.exposed_wait_SR - plain.exposed_wait_SR == pytest.approx(np.array([[0.002, 0.0]] * 4))
    assert both.exposed_transfer_SR - plain.exposed_transfer_SR == pytest.approx(np.full((4, 2), 0.001))
    assert both.lateness_SR == pytest.approx(plain.lateness_SR)


@pytest.mark.parametrize("kind", [CollectiveKind.BROADCAST, CollectiveKind.SEND_RECV])
def test_a_call_that_ranks_leave_on_their_own_tells_nothing_of_waits(kind: CollectiveKind) -> None:
    sums = make_collectives(np.array([[0.003, 0.001]] * 4), kind)
    found = arrivals(make_window([Work(), Work()], num_steps=4, nbytes=(), transfers=(), collectives=(sums,)))
    assert found.exposed_wait_SR == pytest.approx(np.zeros((4, 2)))
    assert found.exposed_transfer_SR == pytest.approx(sums.exposed_SR)
    assert np.isnan(found.lateness_SR).all()


def test_calls_that_not_all_ranks_made_are_no_wait_and_a_missing_rank_leaves_a_gap() -> None:
    sums = make_collectives(np.array([[0.003, 0.001]] * 4))
    sums.calls_SR[0, 1] = 2
    sums.exposed_SR[1, 1] = sums.calls_SR[1, 1] = np.nan
    found = arrivals(make_window([Work(), Work()], num_steps=4, nbytes=(), transfers=(), collectives=(sums,)))
    assert found.exposed_wait_SR[0] == pytest.approx([0.0, 0.0])
    assert found.exposed_wait_SR[1, 0] == 0.0
    assert np.isnan(found.exposed_wait_SR[1, 1])
    assert found.exposed_wait_SR[2:] == pytest.approx(np.array([[0.002, 0.0]] * 2))


@given(
    st.lists(st.floats(0.001, 0.2), min_size=2, max_size=6),
    st.lists(st.floats(1e-5, 0.05), min_size=1, max_size=5),
    st.integers(0, 1000),
)
def test_waits_and_transfers_add_up_to_what_was_exposed(
    backwards: list[float], transfers: list[float], seed: int
) -> None:
    works = [Work(t_b=t_b) for t_b in backwards]
    nbytes = [1000 * (i + 1) for i in range(len(transfers))]
    window = make_window(works, num_steps=4, nbytes=nbytes, transfers=transfers, noise=0.1, seed=seed)
    found = arrivals(window)
    exposed = found.exposed_SRB.sum(axis=2)
    assert found.exposed_wait_SR + found.exposed_transfer_SR == pytest.approx(exposed)
    assert (found.exposed_wait_SR >= 0).all()
    assert (found.exposed_transfer_SR >= -1e-12).all()
    assert (found.lateness_SR >= -1e-12).all()
    assert found.lateness_SR.min(axis=1) == pytest.approx(0, abs=1e-12)

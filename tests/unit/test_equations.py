"""The closed forms of the model, against each other and against published figures."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddltop.model import iteration
from ddltop.model.allreduce import Algorithm, allreduce_cost, busbw, two_level_ring_cost
from ddltop.model.speedup import (
    deviation,
    exposed_ratio,
    exposed_ratio_from_speedup,
    scaling_efficiency,
    speedup,
    speedup_from_exposed_ratio,
)

Seconds = st.floats(0, 10)


@given(Seconds, Seconds, Seconds, Seconds, Seconds, Seconds, st.floats(0, 1))
def test_each_overlap_can_only_shorten_an_iteration(
    t_io: float, t_h2d: float, t_f: float, t_b: float, t_c: float, t_u: float, hidden: float
) -> None:
    common = {"t_io": t_io, "t_h2d": t_h2d, "t_f": t_f, "t_b": t_b, "t_u": t_u}
    naive = iteration.t_iter_naive(**common, t_c=t_c)
    overlapped = iteration.t_iter_input_overlapped(**common, t_c=t_c)
    wfbp = iteration.t_iter_wfbp(**common, t_c_no=t_c * hidden)
    assert wfbp <= overlapped + 1e-9
    assert overlapped <= naive + 1e-9
    assert iteration.t_iter_single(**common) <= naive


def test_readers_that_share_a_disk_take_turns() -> None:
    assert iteration.t_io_shared(0.1, 4) == pytest.approx(0.4)


# Caffe-MPI on 4 x 4 P40 GPUs, arXiv 1711.05979.
@pytest.mark.parametrize(("published", "r"), [(14.65, 0.0922), (14.25, 0.1228), (15.34, 0.0430)])
def test_published_speedups_and_the_exposed_ratio_imply_each_other(published: float, r: float) -> None:
    assert exposed_ratio_from_speedup(16, published) == pytest.approx(r, abs=1e-4)
    assert speedup_from_exposed_ratio(16, exposed_ratio_from_speedup(16, published)) == pytest.approx(published)


@given(st.integers(1, 512), st.floats(0.01, 1), st.floats(0.01, 1), st.floats(0, 1), st.floats(0.001, 1))
def test_the_two_forms_of_speedup_agree_when_input_is_hidden(
    n: int, t_f: float, t_b: float, t_c_no: float, t_u: float
) -> None:
    r = exposed_ratio(t_f=t_f, t_b=t_b, t_c_no=t_c_no, t_u=t_u)
    direct = speedup(n, t_f + t_b + t_u, t_f + t_b + t_u + t_c_no)
    assert speedup_from_exposed_ratio(n, r) == pytest.approx(direct)
    assert scaling_efficiency(n, t_f + t_b + t_u, t_f + t_b + t_u + t_c_no) == pytest.approx(direct / n)


def test_deviation_is_minus_a_quarter_when_a_quarter_is_missing() -> None:
    assert deviation(5.2, 6.9333333) == pytest.approx(-0.25, abs=1e-6)


def test_a_ring_step_by_step_costs_what_the_table_says() -> None:
    n, alpha, beta, gamma, nbytes = 5, 1e-5, 1e-9, 3e-10, 5_000_000
    reduce_scatter = (n - 1) * (alpha + nbytes / n * (beta + gamma))
    all_gather = (n - 1) * (alpha + nbytes / n * beta)
    cost = allreduce_cost(Algorithm.RING, n, alpha=alpha, beta=beta, gamma=gamma)
    assert cost.time(nbytes) == pytest.approx(reduce_scatter + all_gather)


def test_halving_and_doubling_step_by_step_costs_what_the_table_says() -> None:
    n, alpha, beta, gamma, nbytes = 8, 1e-5, 1e-9, 3e-10, 4_000_000
    halving = sum(alpha + nbytes / 2**k * (beta + gamma) for k in (1, 2, 3))
    doubling = sum(alpha + nbytes / 2**k * beta for k in (1, 2, 3))
    cost = allreduce_cost(Algorithm.HALVING_DOUBLING, n, alpha=alpha, beta=beta, gamma=gamma)
    assert cost.time(nbytes) == pytest.approx(halving + doubling)


@pytest.mark.parametrize("algorithm", list(Algorithm))
def test_one_worker_exchanges_nothing(algorithm: Algorithm) -> None:
    cost = allreduce_cost(algorithm, 1, alpha=1e-5, beta=1e-9)
    assert cost.time(1e6) == 0.0


def test_two_levels_with_one_node_are_one_ring() -> None:
    two = two_level_ring_cost(
        gpus_per_node=8, num_nodes=1, alpha_intra=1e-6, beta_intra=1e-11, alpha_inter=1e-5, beta_inter=1e-9
    )
    one = allreduce_cost(Algorithm.RING, 8, alpha=1e-6, beta=1e-11)
    assert (two.a, two.b) == (pytest.approx(one.a), pytest.approx(one.b))


def test_bus_bandwidth_is_that_of_nccl_tests() -> None:
    # 1 GB in 10 ms on 8 ranks: 100 GB/s algorithm bandwidth, 175 GB/s on each link.
    assert busbw(1e9, 0.010, 8) == pytest.approx(175e9)

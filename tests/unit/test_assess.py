"""From a window to a verdict: the gap adds up, the prediction obeys its bounds, stragglers show as waits."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddltop.model.allreduce import AllReduceCost
from ddltop.model.assess import Baseline, Network, assess
from ddltop.model.assessment import BaselineSource, GapKind, NetworkSource
from ddltop.model.fit import fit_cost
from ddltop.wire.collectives import CollectiveKind, CollectivePlace
from ddltop.wire.messages import StepFlag
from ddltop.wire.phases import ADDITIVE_PHASES, PHASE_INDEX, Phase
from tests.unit.builders import Work, make_collectives, make_sharded_window, make_window

Fractions = st.floats(0.0005, 0.1)
Works = st.lists(
    st.builds(Work, t_io=Fractions, t_h2d=Fractions, t_f=Fractions, t_b=Fractions, t_u=Fractions, rest=Fractions),
    min_size=2,
    max_size=6,
)


@settings(max_examples=60, deadline=None)
@given(Works, st.lists(st.floats(1e-5, 0.05), min_size=1, max_size=4), st.integers(0, 99))
def test_the_parts_of_the_gap_add_up_whatever_the_run(works: list[Work], transfers: list[float], seed: int) -> None:
    nbytes = [1_000_000 * 2**i for i in range(len(transfers))]
    window = make_window(works, num_steps=8, nbytes=nbytes, transfers=transfers, noise=0.1, seed=seed)
    assessment = assess(window, num_workers=len(works))
    t_iter, t_iter_1 = assessment.phases.t_iter, assessment.speedup.t_iter_1
    assert t_iter is not None
    assert t_iter_1 is not None
    total = sum(part.seconds for part in assessment.gap)
    assert total == pytest.approx(t_iter - t_iter_1, rel=1e-9, abs=1e-12)
    assert [part.part for part in assessment.gap] == list(GapKind)
    for part in assessment.gap:
        if part.part not in (GapKind.UNEXPLAINED, GapKind.SLOWER_COMPUTE):
            assert part.seconds >= -1e-12, part


@settings(max_examples=40, deadline=None)
@given(Works, st.floats(0, 1e-3), st.floats(1e-11, 1e-8), st.floats(1.0, 4.0))
def test_a_slower_network_is_never_predicted_to_scale_better(
    works: list[Work], a: float, b: float, factor: float
) -> None:
    window = make_window(works, num_steps=4)
    fast = Network(cost=AllReduceCost(a=a, b=b), source=NetworkSource.GIVEN)
    slow = Network(cost=AllReduceCost(a=a * factor, b=b * factor), source=NetworkSource.GIVEN)
    n = len(works)
    quick = assess(window, num_workers=n, network=fast).speedup.predicted
    lame = assess(window, num_workers=n, network=slow).speedup.predicted
    assert quick is not None
    assert lame is not None
    assert lame <= quick + 1e-9
    assert quick <= n + 1e-9


def test_a_healthy_run_is_on_its_prediction() -> None:
    window = make_window([Work(rest=0.0, t_io=0.0)] * 4)
    speed = assess(window, num_workers=4).speedup
    assert speed.deviation == pytest.approx(0.0, abs=1e-6)
    # 4 ms of the last bucket follow 33 - 1 ms of computing: by hand.
    assert speed.measured == pytest.approx(4 * 0.032 / 0.036)


def test_a_straggler_is_a_wait_of_the_others_and_not_slower_computing() -> None:
    window = make_window([Work(), Work(t_b=0.060), Work(), Work()])
    assessment = assess(window, num_workers=4)
    gap = {part.part: part.seconds for part in assessment.gap}
    assert gap[GapKind.WAIT] == pytest.approx(0.040, rel=0.05)
    assert gap[GapKind.SLOWER_COMPUTE] == pytest.approx(0.0, abs=1e-9)
    assert assessment.speedup.t_iter_1 == pytest.approx(0.032)
    late = assessment.ranks[1]
    assert (late.rank, late.last_share) == (1, 1.0)
    assert late.lateness_s == pytest.approx(0.040)


def test_a_baseline_from_elsewhere_is_used_and_named() -> None:
    window = make_window([Work()] * 2)
    given_baseline = Baseline(t_iter=0.030, source=BaselineSource.RECORDING)
    assessment = assess(window, num_workers=2, baseline=given_baseline)
    assert assessment.speedup.t_iter_1 == 0.030
    assert assessment.speedup.baseline_source is BaselineSource.RECORDING
    slower = next(part for part in assessment.gap if part.part is GapKind.SLOWER_COMPUTE)
    assert slower.seconds == pytest.approx(0.002)


def test_one_worker_is_its_own_baseline() -> None:
    window = make_window([Work()], nbytes=(), transfers=())
    assessment = assess(window, num_workers=1)
    assert assessment.speedup.measured == pytest.approx(1.0)
    assert assessment.gap == ()


def test_without_a_prediction_the_gap_still_names_waits_and_collectives() -> None:
    assessment = assess(make_sharded_window([Work(), Work(), Work(t_b=0.050)]), num_workers=3)
    gap = {part.part: part.seconds for part in assessment.gap}
    assert assessment.speedup.predicted is None
    assert gap[GapKind.WAIT] == pytest.approx(0.030)
    assert gap[GapKind.OTHER_COMM] == pytest.approx(0.004)
    (figures,) = assessment.collectives
    assert (figures.kind, figures.place, figures.calls) == (
        CollectiveKind.REDUCE_SCATTER,
        CollectivePlace.BACKWARD,
        1.0,
    )
    assert figures.exposed_s == pytest.approx(0.024)


def test_collectives_of_the_script_are_a_part_of_the_gap_of_their_own() -> None:
    plain = assess(make_window([Work()] * 2), num_workers=2)
    window = make_window([Work()] * 2, collectives=(make_collectives(np.full((60, 2), 0.003)),))
    window.phases_SRP[:, :, [PHASE_INDEX[Phase.T_ITER], PHASE_INDEX[Phase.T_C], PHASE_INDEX[Phase.T_C_NO]]] += 0.003
    both = assess(window, num_workers=2)
    before, after = ({part.part: part.seconds for part in a.gap} for a in (plain, both))
    assert after.pop(GapKind.OTHER_COMM) - before.pop(GapKind.OTHER_COMM) == pytest.approx(0.003)
    assert after == pytest.approx(before, abs=1e-9)
    assert both.phases.exposed_collectives == pytest.approx(0.003)


def test_steps_that_are_not_measured_in_detail_count_for_the_pace_alone() -> None:
    window = make_window([Work()] * 2, num_steps=8)
    window.phases_SRP[::2, :, 1:] = np.nan
    window.phases_SRP[::2, :, PHASE_INDEX[Phase.T_ITER]] = 0.001
    assessment = assess(window, num_workers=2)
    parts = [getattr(assessment.phases, phase) for phase in ADDITIVE_PHASES]
    assert sum(parts) == pytest.approx(assessment.phases.t_iter)
    assert (assessment.num_steps, assessment.num_detailed) == (8, 4)
    assert assessment.steps_per_s == pytest.approx(1 / np.mean([0.001, assessment.phases.t_iter or 0.0]))


def test_what_is_beside_the_phases_is_counted() -> None:
    window = make_window([Work()] * 2, num_steps=10)
    window.evaluation_SR[5] = 10 * window.phase_SR(Phase.T_ITER)[5]
    window.flags_SR[3] = StepFlag.SKIPPED
    window.num_tokens_SR[:] = 512.0
    window.host_ahead_SR[:] = [0.0, 0.010]
    assessment = assess(window, num_workers=2)
    assert assessment.evaluation_share == pytest.approx(0.5)
    assert assessment.skipped_share == pytest.approx(0.1)
    assert assessment.device_waited_share == pytest.approx(0.5)
    assert assessment.tokens_per_s == pytest.approx(1024 * (assessment.steps_per_s or 0.0))


def test_unmeasured_phases_stay_unmeasured() -> None:
    window = make_window([Work()] * 2)
    window.phases_SRP[:, :, 3:] = np.nan
    window.bucket_end_SRB[:] = np.nan
    assessment = assess(window, num_workers=2)
    assert assessment.phases.t_f is None
    assert assessment.speedup.measured is None
    assert assessment.speedup.predicted is None
    assert assessment.gap == ()


def test_a_line_through_exact_times_is_found_again() -> None:
    nbytes = np.array([1e5, 1e6, 4e6, 2.5e7])
    fit = fit_cost(nbytes, 3e-4 + 2e-9 * nbytes)
    assert fit is not None
    assert fit.cost.a == pytest.approx(3e-4, rel=1e-6)
    assert fit.cost.b == pytest.approx(2e-9, rel=1e-6)
    assert fit.source is NetworkSource.LIVE_FIT


def test_one_wild_size_does_not_carry_the_line_away() -> None:
    nbytes = np.array([1e5, 3e5, 1e6, 2e6, 4e6, 8e6, 1.6e7, 2.5e7])
    seconds = 3e-4 + 2e-9 * nbytes
    seconds[3] *= 6
    fit = fit_cost(nbytes, seconds)
    assert fit is not None
    assert fit.cost.b == pytest.approx(2e-9, rel=0.1)


def test_one_size_gives_no_latency_and_says_so() -> None:
    fit = fit_cost(np.array([1e6, 1e6]), np.array([1e-3, 3e-3]))
    assert fit is not None
    assert fit.source is NetworkSource.LIVE_ONE_SIZE
    assert (fit.cost.a, fit.cost.b) == (0.0, pytest.approx(2e-9))


def test_inside_the_measured_sizes_the_table_speaks_and_outside_the_line() -> None:
    nbytes = np.array([1e6, 2e6, 4e6])
    fit = fit_cost(nbytes, np.array([1e-3, 5e-3, 4e-3]))
    assert fit is not None
    assert fit.times(np.array([1.5e6]))[0] == pytest.approx(3e-3)
    assert fit.times(np.array([4e7]))[0] == pytest.approx(fit.cost.time(4e7))


def test_nothing_usable_is_no_fit() -> None:
    assert fit_cost(np.array([1e6]), np.array([np.nan])) is None
    assert fit_cost(np.empty(0), np.empty(0)) is None

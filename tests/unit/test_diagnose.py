"""The diagnosis names the guilty rank and phase, and is silent on healthy runs, however noisy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddltop.diagnose.engine import DiagnosisEngine
from ddltop.diagnose.finding import Code, Finding, Severity
from ddltop.diagnose.policy import Policy
from ddltop.model.window import Window
from tests.unit.builders import Work, make_evidence, make_sharded_window, make_window

POLICY = Policy()


def findings_of(*windows: Window, looks: int = 4) -> tuple[Finding, ...]:
    engine = DiagnosisEngine(POLICY)
    for window in windows:
        for _ in range(looks):
            engine.evaluate(make_evidence(window))
    return engine.findings


def warnings_of(findings: tuple[Finding, ...]) -> list[Finding]:
    return [finding for finding in findings if finding.severity is not Severity.INFO and finding.is_active]


@pytest.mark.parametrize("num_ranks", [2, 4, 16])
@pytest.mark.parametrize(
    ("phase", "code"),
    [("t_io", Code.INPUT_STRAGGLER), ("t_f", Code.FORWARD_STRAGGLER), ("t_b", Code.BACKWARD_STRAGGLER)],
)
def test_a_rank_delayed_in_one_phase_is_named_with_that_phase(num_ranks: int, phase: str, code: Code) -> None:
    slow = Work(**{phase: getattr(Work(), phase) + 0.040})
    works = [Work()] * (num_ranks - 1) + [slow]
    first = warnings_of(findings_of(make_window(works, noise=0.03)))[0]
    assert (first.code, first.ranks) == (code, (num_ranks - 1,))
    assert f"r{num_ranks - 1}@node{(num_ranks - 1) // 2}" in first.why
    assert first.evidence["lateness_s"] == pytest.approx(0.040, rel=0.1)
    assert 0.3 < first.share_of_time < 0.8


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 8), st.integers(0, 10_000), st.floats(0.0, 0.3))
def test_noise_accuses_nobody(num_ranks: int, seed: int, noise: float) -> None:
    window = make_window([Work()] * num_ranks, noise=noise, seed=seed, num_steps=100)
    stragglers = [f for f in warnings_of(findings_of(window)) if "straggler" in f.code]
    assert stragglers == []


def test_hiccups_of_single_steps_accuse_nobody() -> None:
    delays = np.zeros((100, 2))
    delays[::7, 1] = 0.200
    assert warnings_of(findings_of(make_window([Work()] * 2, num_steps=100, delays=delays))) == []


def test_ranks_that_take_turns_are_no_fixed_straggler() -> None:
    delays = np.zeros((100, 2))
    delays[::2, 0] = delays[1::2, 1] = 0.040
    found = warnings_of(findings_of(make_window([Work()] * 2, num_steps=100, delays=delays)))
    assert [f for f in found if "straggler" in f.code] == []


def test_a_rank_slow_in_one_phase_and_quick_in_another_is_not_named() -> None:
    # Crowded cores look so: 25 ms more in backward, 17 ms less in forward, 8 ms late.
    works = [Work(t_f=0.027), Work(t_f=0.010, t_b=0.045)]
    found = warnings_of(findings_of(make_window(works, num_steps=100)))
    assert [f for f in found if "straggler" in f.code] == []


def test_everybody_waiting_for_input_is_input_bound_and_one_alone_is_not() -> None:
    everybody = warnings_of(findings_of(make_window([Work(t_io=0.030)] * 4)))
    assert [f.code for f in everybody] == [Code.INPUT_BOUND]
    assert everybody[0].severity is Severity.CRITICAL
    one = findings_of(make_window([Work(t_io=0.041), Work(), Work(), Work()]))
    assert Code.INPUT_BOUND not in [f.code for f in one]


def test_exposed_transfer_is_bandwidth_when_time_grows_with_size() -> None:
    window = make_window([Work()] * 4, transfers=(0.010, 0.020, 0.040))
    found = warnings_of(findings_of(window))
    assert [f.code for f in found] == [Code.COMM_BANDWIDTH_BOUND]
    assert "bandwidth" in found[0].why


def test_exposed_transfer_that_does_not_grow_with_size_is_not_blamed_on_bandwidth() -> None:
    window = make_window([Work()] * 4, transfers=(0.020, 0.020, 0.020))
    assert Code.COMM_BANDWIDTH_BOUND not in [f.code for f in findings_of(window)]


def test_waiting_for_a_straggler_is_not_called_bandwidth() -> None:
    found = findings_of(make_window([Work(), Work(t_b=0.080)]))
    assert Code.COMM_BANDWIDTH_BOUND not in [f.code for f in found]


def test_a_run_that_computes_nearly_all_the_time_is_only_informed() -> None:
    found = findings_of(make_window([Work(t_f=0.1, t_b=0.2)] * 2))
    assert [(f.code, f.severity) for f in found] == [(Code.COMPUTE_BOUND, Severity.INFO)]


def test_too_few_steps_give_no_opinion_and_say_what_is_missing() -> None:
    engine = DiagnosisEngine(POLICY)
    for _ in range(5):
        engine.evaluate(make_evidence(make_window([Work(), Work(t_b=0.080)], num_steps=10)))
    assert engine.findings == ()
    assert any("steps" in abstention.missing for abstention in engine.abstentions)


def test_without_bucket_times_stragglers_are_not_guessed() -> None:
    window = make_window([Work(), Work(t_b=0.080)])
    window.bucket_end_SRB[:] = np.nan
    engine = DiagnosisEngine(POLICY)
    for _ in range(5):
        engine.evaluate(make_evidence(window))
    assert [f for f in engine.findings if "straggler" in f.code] == []
    assert any(Code.BACKWARD_STRAGGLER in abstention.codes for abstention in engine.abstentions)


def test_where_gradients_are_sharded_the_straggler_is_found_in_the_collectives() -> None:
    window = make_sharded_window([Work(), Work(), Work(t_b=0.080)])
    (finding,) = [f for f in findings_of(window) if "straggler" in f.code]
    assert (finding.code, finding.ranks) == (Code.BACKWARD_STRAGGLER, (2,))
    assert "enters the collectives last" in finding.why


def test_a_finding_neither_appears_at_once_nor_goes_at_once() -> None:
    engine = DiagnosisEngine(POLICY)
    bad, good = make_evidence(make_window([Work(), Work(t_b=0.080)])), make_evidence(make_window([Work()] * 2))

    def is_accused() -> bool:
        return any(f.code is Code.BACKWARD_STRAGGLER and f.is_active for f in engine.findings)

    seen = []
    for evidence in [bad] * 4 + [good] * 4:
        engine.evaluate(evidence)
        seen.append(is_accused())
    assert seen == [False, False, True, True, True, True, False, False]
    assert any(f.code is Code.BACKWARD_STRAGGLER for f in engine.findings)  # kept, as past


def test_a_straggler_is_dated_from_the_step_in_which_it_began() -> None:
    delays = np.zeros((100, 2))
    delays[18:, 1] = 0.040
    window = make_window([Work()] * 2, num_steps=100, delays=delays, noise=0.02)
    assert warnings_of(findings_of(window))[0].first_step == 18


def test_the_same_looks_give_the_same_findings() -> None:
    windows = [make_window([Work(), Work(t_f=0.040)], noise=0.1, seed=seed) for seed in range(5)]
    assert findings_of(*windows) == findings_of(*windows)

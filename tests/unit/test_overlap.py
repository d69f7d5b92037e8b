"""Equations (8)-(10): wait-free backpropagation against a simulation that moves byte by byte of time."""

import heapq

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddltop.model.overlap import merged_schedule, ready_times, wfbp_schedule

Times = st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=12)


def simulate(ready: list[float], transfer: list[float]) -> list[float]:
    """A network as a queue of events: a bucket arrives when it is ready and is served in launch order."""
    events = [(time, i) for i, time in enumerate(ready)]
    heapq.heapify(events)
    waiting: set[int] = set()
    ends: list[float] = []
    now, serving = 0.0, 0
    while serving < len(ready):
        while events and (events[0][0] <= now or serving not in waiting):
            time, i = heapq.heappop(events)
            now = max(now, time)
            waiting.add(i)
        now += transfer[serving]
        ends.append(now)
        serving += 1
    return ends


@given(Times)
def test_the_closed_form_is_what_a_queue_does(pairs: list[tuple[float, float]]) -> None:
    ready = np.cumsum([gap for gap, _ in pairs])
    transfer = np.array([t for _, t in pairs])
    schedule = wfbp_schedule(ready, transfer, float(ready[-1]))
    assert schedule.end_B == pytest.approx(simulate(list(ready), list(transfer)))


@given(Times)
def test_exposed_communication_lies_between_its_bounds(pairs: list[tuple[float, float]]) -> None:
    layers = np.array([gap for gap, _ in pairs])
    transfer = np.array([t for _, t in pairs])
    ready = ready_times(0.5, layers)
    schedule = wfbp_schedule(ready, transfer, float(ready[-1]))
    t_b = float(layers.sum())
    assert schedule.t_c_no <= schedule.t_c + 1e-9
    assert schedule.t_c_no >= max(0.0, schedule.t_c - t_b) - 1e-9
    assert schedule.t_c_no >= transfer[-1] - 1e-9


@given(Times, st.floats(1.0, 3.0))
def test_a_slower_network_never_exposes_less(pairs: list[tuple[float, float]], factor: float) -> None:
    ready = np.cumsum([gap for gap, _ in pairs])
    transfer = np.array([t for _, t in pairs])
    fast = wfbp_schedule(ready, transfer, float(ready[-1]))
    slow = wfbp_schedule(ready, transfer * factor, float(ready[-1]))
    assert slow.t_c_no >= fast.t_c_no - 1e-9


def test_one_merged_all_reduce_hides_nothing() -> None:
    schedule = merged_schedule(0.3, 2.0)
    assert (schedule.t_c, schedule.t_c_no) == (0.3, 0.3)


def test_no_bucket_is_no_communication() -> None:
    schedule = wfbp_schedule(np.empty(0), np.empty(0), 1.0)
    assert (schedule.t_c, schedule.t_c_no) == (0.0, 0.0)

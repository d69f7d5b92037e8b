"""A trace split into computing, communication and idle: the parts add up and are what the intervals say."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddltop.export.profile import split_card
from ddltop.model.trace_split import split_trace


def event(name: str, begin: float, end: float, cat: str = "kernel", tid: int = 7) -> dict[str, Any]:
    """One event, microseconds."""
    return {"ph": "X", "cat": cat, "name": name, "pid": 0, "tid": tid, "ts": begin, "dur": end - begin}


def test_kernels_are_split_into_computing_overlap_exposed_communication_and_idle() -> None:
    split = split_trace(
        [
            event("gemm", 0, 100),
            event("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 60, 180, tid=20),
            event("Memcpy HtoD", 200, 240, "gpu_memcpy", tid=9),
            event("aten::mm", 0, 1000, "cpu_op"),
        ]
    )
    assert split.clock == "device"
    assert split.span == pytest.approx(240e-6)
    assert split.compute == pytest.approx(100e-6)
    assert split.overlap == pytest.approx(40e-6)
    assert split.communication == pytest.approx(80e-6)
    assert split.idle == pytest.approx(20e-6)


def test_without_a_device_the_operators_count_with_their_own_time() -> None:
    split = split_trace(
        [
            event("aten::linear", 0, 100, "cpu_op"),
            event("aten::addmm", 10, 90, "cpu_op"),
            event("gloo:all_reduce", 50, 150, "user_annotation", tid=8),
            event("ProfilerStep#1", 0, 1000, "user_annotation"),
        ]
    )
    own = {operation.name: operation.seconds for operation in split.operations}
    assert split.clock == "host"
    assert own == pytest.approx({"aten::linear": 20e-6, "aten::addmm": 80e-6, "gloo:all_reduce": 100e-6})
    assert (split.overlap, split.communication) == (pytest.approx(50e-6), pytest.approx(50e-6))


@given(
    st.lists(
        st.tuples(st.sampled_from(["gemm", "ncclX"]), st.floats(0, 1e4), st.floats(0.1, 500)), min_size=1, max_size=40
    )
)
def test_the_parts_sum_to_the_span(kernels: list[tuple[str, float, float]]) -> None:
    split = split_trace([event(name, begin, begin + dur, tid=i) for i, (name, begin, dur) in enumerate(kernels)])
    parts = (split.compute, split.overlap, split.communication, split.idle)
    assert sum(parts) == pytest.approx(split.span, abs=1e-12)
    assert min(parts) >= -1e-12


def test_an_empty_trace_is_refused() -> None:
    with pytest.raises(ValueError, match="no kernel"):
        split_trace([{"ph": "M", "name": "process_name"}, {"ph": "X", "name": "no times", "cat": "kernel"}])


def test_the_card_gives_milliseconds_a_step_and_no_escape_of_a_kernels_name() -> None:
    card = split_card("r0@node0", split_trace([event("ge\x1b[31mmm", 0, 20_000)]), num_steps=2)
    assert "10.0" in card
    assert "\x1b" not in card
    assert all(len(line) <= 80 for line in card.splitlines())

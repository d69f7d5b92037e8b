"""GPU figures through the real NVML binding, over a stub library."""

from pathlib import Path

import pytest
from ddltop_agents.node.gpu import RETRY_SAMPLES

from tests.unit.fake_nvml import FakeNvml, has_compiler

needs_gcc = pytest.mark.skipif(not has_compiler(), reason="gcc is not installed: no stub library")
NOT_SUPPORTED, NO_PERMISSION, DRIVER_NOT_LOADED, GPU_IS_LOST, VERSION_MISMATCH = 3, 4, 9, 15, 18


@pytest.fixture(scope="module")
def nvml(tmp_path_factory: pytest.TempPathFactory) -> FakeNvml:
    return FakeNvml(tmp_path_factory.mktemp("nvml")).build()


@needs_gcc
def test_each_gpu_has_its_own_figures_in_the_units_of_the_wire(nvml: FakeNvml) -> None:
    status, gpus = nvml.sample_once(
        "count 2\n1.util 97\n1.power 310000\nlimit 400000\n1.temp 66\n1.sm 1965\nsm_max 1980\n1.used 44000000000\n"
        "0.util 5\n0.power 71000\n"
    )
    assert status == "ok"
    assert [(gpu["index"], gpu["uuid"], gpu["name"]) for gpu in gpus] == [
        (0, "GPU-fake-0", "Fake GPU"),
        (1, "GPU-fake-1", "Fake GPU"),
    ]
    assert (gpus[0]["utilization_ratio"], gpus[0]["power_w"]) == (0.05, 71.0)
    gpu = gpus[1]
    assert (gpu["utilization_ratio"], gpu["power_w"], gpu["power_limit_w"]) == (0.97, 310.0, 400.0)
    assert (gpu["temperature_c"], gpu["sm_clock_mhz"], gpu["sm_clock_max_mhz"]) == (66.0, 1965.0, 1980.0)
    assert (gpu["memory_used_bytes"], gpu["memory_total_bytes"]) == (44_000_000_000, 80_000_000_000)


@needs_gcc
@pytest.mark.parametrize(
    ("bits", "names"),
    [
        (0x0, []),
        (0x1, []),  # an idle GPU is not throttled
        (0x2 | 0x4, ["application clocks", "power cap"]),
        (0x8 | 0x80, ["hardware slowdown", "power brake"]),
        (0x20 | 0x40, ["software thermal", "hardware thermal"]),
        (0x10 | 0x100 | 0x8000, ["sync boost", "display clocks"]),  # a bit that is not known is left out
    ],
)
def test_throttle_reasons_have_names(nvml: FakeNvml, bits: int, names: list[str]) -> None:
    _, gpus = nvml.sample_once(f"count 1\nreasons {bits}\n")
    assert gpus[0]["throttle_reasons"] == names


@needs_gcc
def test_an_old_driver_gives_throttle_reasons_under_their_old_name(tmp_path: Path) -> None:
    _, gpus = FakeNvml(tmp_path).build("OLD_DRIVER").sample_once("count 1\nreasons 4\n")
    assert gpus[0]["throttle_reasons"] == ["power cap"]


@needs_gcc
def test_a_function_that_the_driver_lacks_is_unmeasured(tmp_path: Path) -> None:
    _, gpus = FakeNvml(tmp_path).build("NO_TEMPERATURE").sample_once("count 1\ntemp 66\nutil 50\n")
    assert (gpus[0]["temperature_c"], gpus[0]["utilization_ratio"]) == (None, 0.5)


@needs_gcc
def test_every_figure_can_be_unsupported_alone(nvml: FakeNvml) -> None:
    figures = {
        "util": {"utilization_ratio"},
        "memory": {"memory_used_bytes", "memory_total_bytes"},
        "power": {"power_w"},
        "limit": {"power_limit_w"},
        "temp": {"temperature_c"},
        "sm": {"sm_clock_mhz"},
        "sm_max": {"sm_clock_max_mhz"},
    }
    texts = [f"count 1\nerr.{name} {NO_PERMISSION}\n" for name in figures]
    for unmeasured, (_, gpus) in zip(figures.values(), nvml.sample(*texts), strict=True):
        assert {key for key, value in gpus[0].items() if value is None} == unmeasured


@needs_gcc
def test_unsupported_is_remembered_for_that_device_and_a_refusal_is_asked_again(nvml: FakeNvml) -> None:
    (_, first), (_, second) = nvml.sample(
        f"count 2\n0.err.power {NOT_SUPPORTED}\n1.err.power {NO_PERMISSION}\n", "count 2\npower 100000\n"
    )
    assert [gpu["power_w"] for gpu in first] == [None, None]
    assert [gpu["power_w"] for gpu in second] == [None, 100.0]


@needs_gcc
def test_a_lost_gpu_does_not_hide_the_others(nvml: FakeNvml) -> None:
    status, gpus = nvml.sample_once(f"count 3\nutil 50\n1.err.handle {GPU_IS_LOST}\n")
    assert status == "ok"
    assert [(gpu["index"], gpu["uuid"]) for gpu in gpus] == [(0, "GPU-fake-0"), (2, "GPU-fake-2")]


@needs_gcc
def test_a_name_cannot_steer_the_terminal_or_break_the_wire(nvml: FakeNvml) -> None:
    (_, first), (_, second) = (nvml.sample(f"count 1\nodd_name {odd}\nutil 1\n")[0] for odd in (1, 2))
    assert first[0]["name"] == "Fake[2J GPU"
    assert (second[0]["name"], second[0]["utilization_ratio"]) == ("", 0.01)


@needs_gcc
@pytest.mark.parametrize("answers", [f"err.init {DRIVER_NOT_LOADED}\n", "count 0\n"])
def test_no_driver_and_no_device_are_no_gpu(nvml: FakeNvml, answers: str) -> None:
    assert nvml.sample_once(answers) == ("no GPU", [])


@needs_gcc
@pytest.mark.parametrize("call", ["init", "handle"])
def test_a_driver_that_refuses_says_why(nvml: FakeNvml, call: str) -> None:
    status, gpus = nvml.sample_once(f"count 1\nerr.{call} {VERSION_MISMATCH}\n")
    assert gpus == []
    assert status.startswith("no GPU: ")
    assert "mismatch" in status


@needs_gcc
def test_a_driver_that_comes_later_is_found_without_asking_at_each_sample(nvml: FakeNvml) -> None:
    absent = f"err.init {DRIVER_NOT_LOADED}\n"
    taken = nvml.sample(absent, *["count 1\n"] * (RETRY_SAMPLES + 1))
    assert [status for status, _ in taken] == ["no GPU"] * (1 + RETRY_SAMPLES) + ["ok"]


def test_no_library_is_no_gpu_without_a_word(tmp_path: Path) -> None:
    status, _ = FakeNvml(tmp_path).sample_once("")
    if status == "ok":
        pytest.skip("this machine has a GPU")
    assert status == "no GPU"

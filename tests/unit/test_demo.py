"""The demo's own parts: networks of the published sizes, faults that strike where they are told to."""

import json
import sys
from argparse import ArgumentTypeError
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
DEMO = Path(__file__).resolve().parents[2] / "demo"


@pytest.fixture(autouse=True)
def demo_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    # As torchrun does: the script's folder leads sys.path.
    monkeypatch.syspath_prepend(str(DEMO))


@pytest.mark.parametrize(
    ("name", "published"), [("alexnet", 61_100_840), ("googlenet", 6_998_552), ("resnet50", 25_557_032)]
)
def test_the_networks_have_their_published_sizes(name: str, published: int) -> None:
    from networks import NETWORKS

    network = NETWORKS[name](1000)
    assert sum(p.numel() for p in network.parameters()) == published


@pytest.mark.parametrize("name", ["cnn", "alexnet", "googlenet", "resnet50"])
@pytest.mark.parametrize("size", [64, 224])
def test_the_networks_take_small_and_full_images(name: str, size: int) -> None:
    from networks import NETWORKS

    network = NETWORKS[name](10).eval()
    with torch.no_grad():
        assert network(torch.zeros(1, 3, size, size)).shape == (1, 10)


def test_a_fault_strikes_its_rank_in_its_steps() -> None:
    from faults import parse_fault

    fault = parse_fault("backward-delay:rank=1,ms=40,from=10,to=20,every=2")
    struck = [step for step in range(30) if fault.strikes(1, step)]
    assert struck == [10, 12, 14, 16, 18]
    assert not fault.strikes(0, 10)
    assert fault.seconds == 0.040
    assert parse_fault("loader-delay:rank=all,ms=1").strikes(7, 0)


@pytest.mark.parametrize(
    "text",
    ["", "nonsense", "backward-delay", "backward-delay:rank=x,ms=1", "backward-delay:rank=1", "no-delay:rank=1,ms=1",
     "backward-delay:rank=1,ms=-4", "backward-delay:rank=1,ms=4,colour=red", "backward-delay:rank=1,ms=4,every=0",
     "backward-delay:rank=-1,ms=4", "backward-delay:rank=1,ms=4,from=9,to=9"],
)  # fmt: skip
def test_a_wrong_fault_is_told_what_would_be_right(text: str) -> None:
    from faults import parse_fault

    with pytest.raises(ArgumentTypeError, match="write KIND:rank"):
        parse_fault(text)


def test_delays_fall_into_their_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    import faults

    slept: list[float] = []
    monkeypatch.setattr(faults.time, "sleep", slept.append)
    specs = [faults.parse_fault(f"{kind}:rank=0,ms={ms}") for kind, ms in (("forward-delay", 5), ("backward-delay", 7))]
    model: Any = torch.nn.Linear(2, 2)
    faults.inject(model, faults.Faults(specs, rank=0))
    output = model(torch.ones(1, 2))
    assert slept == [0.005]
    output.sum().backward()
    assert slept == [0.005, 0.007]
    assert model.weight.grad is not None


def test_the_training_script_does_not_know_us() -> None:
    for path in DEMO.glob("*.py"):
        assert "import ddltop" not in path.read_text()
        assert "from ddltop" not in path.read_text()
    assert "ddltop" not in {name for name in sys.modules if name == "networks"}


def test_the_stopwatch_of_the_script_adds_up_to_the_time_that_passed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import stopwatch

    now = 100.0
    monkeypatch.setattr(stopwatch.time, "perf_counter", lambda: now)
    watch = stopwatch.Stopwatch(tmp_path / "timers")
    for step in range(2):
        for name, seconds in (("t_io", 1.0), ("t_f", 2.0), ("t_f", 0.5)):
            with watch.phase(name):
                now += seconds
        now += 4.0  # in no phase
        watch.end_step(step)
    watch.close()
    rows = [json.loads(line) for line in (tmp_path / "timers").read_text().splitlines()]
    assert rows == [{"step": step, "t_io": 1.0, "t_f": 2.5, "t_rest": 4.0} for step in range(2)]


# Python 3.12 and newer warn of any fork beside threads; DataLoader's own workers are such forks.
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fault_in_a_loader_worker_follows_the_step_of_the_loop() -> None:
    import multiprocessing

    from faults import Faults

    faults = Faults([], rank=0)
    fork = multiprocessing.get_context("fork")
    asked, answers = fork.Event(), fork.Queue()

    def work() -> None:
        asked.wait(30)
        answers.put(faults.step)

    worker = fork.Process(target=work)
    worker.start()
    faults.step = 17
    asked.set()
    assert answers.get(timeout=30) == 17
    worker.join(30)

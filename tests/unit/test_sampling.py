"""How much detail a rank measures when measuring is dear: simulated clocks of known cost."""

import pytest
from ddltop_agents.rank.sampling import MAX_PERIOD, MAX_SHARE, WARM_UP_STEPS, DetailSampler


class Simulated:
    """A training of `step_ns` a step in which a detailed step costs `dear_ns` and any other `cheap_ns`."""

    def __init__(self, step_ns: int, dear_ns: int, cheap_ns: int = 1_000) -> None:
        self.sampler = DetailSampler()
        self.step_ns, self.dear_ns, self.cheap_ns = step_ns, dear_ns, cheap_ns
        self.now_ns = self.cost_ns = 0

    def train(self, num_steps: int) -> list[bool]:
        details = []
        for _ in range(num_steps):
            is_detailed = self.sampler.turn(self.now_ns, self.cost_ns)
            cost = self.dear_ns if is_detailed else self.cheap_ns
            self.now_ns += self.step_ns + cost
            self.cost_ns += cost
            details.append(is_detailed)
        return details


def test_a_cheap_clock_measures_every_step() -> None:
    run = Simulated(step_ns=20_000_000, dear_ns=100_000)
    assert all(run.train(2_000))
    assert run.sampler.note == ""


@pytest.mark.parametrize("dear_ns", [400_000, 1_000_000, 5_000_000])
def test_a_dear_clock_is_held_to_its_share(dear_ns: int) -> None:
    run = Simulated(step_ns=20_000_000, dear_ns=dear_ns)
    run.train(500)
    cost_ns, now_ns = run.cost_ns, run.now_ns
    details = run.train(6_400)
    assert (run.cost_ns - cost_ns) / (run.now_ns - now_ns) <= MAX_SHARE
    assert any(details)
    assert f"every {run.sampler.period}th step" in run.sampler.note


def test_warming_up_costs_no_detail() -> None:
    run = Simulated(step_ns=1_000_000, dear_ns=10_000_000)
    assert all(run.train(WARM_UP_STEPS))
    run.dear_ns = 1_000
    assert all(run.train(1_000)[64:])


def test_detail_comes_back_when_measuring_is_cheap_again() -> None:
    run = Simulated(step_ns=20_000_000, dear_ns=2_000_000)
    run.train(1_000)
    assert run.sampler.period > 1
    run.dear_ns = 50_000
    run.train(100 * MAX_PERIOD)
    assert run.sampler.period == 1


def test_ranks_of_different_cost_measure_common_steps() -> None:
    slow, quick = Simulated(20_000_000, 3_000_000), Simulated(20_000_000, 900_000)
    numbers = []
    for run in (slow, quick):
        run.train(2_000)
        numbers.append({i for i, is_detailed in enumerate(run.train(640), start=2_001) if is_detailed})
    assert slow.sampler.period > quick.sampler.period > 1
    assert numbers[0] < numbers[1]

"""Every way to train in loops.py, run for real by two ranks: the result is bit-identical, the figures are plausible."""

import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ddltop.wire.messages import StepFlag
from tests.integration.conftest import ROOT, Lab, make_lab
from tests.integration.recorded import Recorded, Step, recorded

SCRIPT = ROOT / "tests" / "integration" / "loops.py"
CASES = re.findall(r"^@case\ndef (\w+)", SCRIPT.read_text(), re.MULTILINE)
STEPS, BATCH = 8, 16  # as in the script
NUM_PARAMETERS = 64 * 256 + 256 + 256 * 256 + 256 + 256 * 8 + 8
GRADIENT_BYTES = 4 * NUM_PARAMETERS
PARTS = ("t_io", "t_h2d", "t_f", "t_b", "t_c_no", "t_u", "rest")


@dataclass(frozen=True)
class Line:
    case: str
    begin_us: int
    end_us: int
    digest: str


@dataclass(frozen=True)
class Runs:
    """The cases run without ddltop and with it: a line per case and rank, and what was recorded."""

    plain: dict[tuple[str, int], Line]
    watched: dict[tuple[str, int], Line]
    recorded: Recorded

    def steps(self, case: str, rank: int) -> list[Step]:
        line = self.watched[case, rank]
        return self.recorded.of(rank, line.begin_us, line.end_us)


@pytest.fixture(scope="module")
def runs() -> Iterator[Runs]:
    with make_lab() as lab:
        yield Runs(plain=_run(lab, "plain"), watched=_run(lab, "watched", "run", "--"), recorded=recorded(lab))


def _run(lab: Lab, name: str, *words: str) -> dict[tuple[str, int], Line]:
    command = [*lab.torchrun_of(str(SCRIPT)), name, *CASES]
    done = lab.execute([*lab.command(*words), *command] if words else command, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    lines = {}
    for rank in range(2):
        for text in Path(lab.home, f"{name}.rank{rank}").read_text().splitlines():
            line = Line(**json.loads(text))
            lines[line.case, rank] = line
    assert len(lines) == 2 * len(CASES)
    return lines


@dataclass(frozen=True)
class Expected:
    """What the steps of a case look like; a step at its edge may belong to a neighbour."""

    samples: int = BATCH
    micro_steps: int = 1
    num_buckets: int = 1
    num_steps: int = STEPS
    flags: int = 0  # of each step but the first of an epoch
    # (kind, place): calls and bytes per step
    collectives: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)


EXPECTED = {
    "python_iterator": Expected(flags=StepFlag.INFERRED_IO),
    "two_models_without_loader": Expected(samples=2 * BATCH, micro_steps=2, flags=StepFlag.INFERRED_IO),
    "no_sync": Expected(samples=2 * BATCH, micro_steps=2),
    "accumulation_with_sync": Expected(samples=2 * BATCH, micro_steps=2),
    "buffers": Expected(collectives={("broadcast", "forward"): (1, 2056)}),
    "fp16_hook": Expected(collectives={("all_reduce", "backward"): (1, GRADIENT_BYTES // 2)}),
    "bf16_wrapped_hook": Expected(collectives={("all_reduce", "backward"): (1, GRADIENT_BYTES // 2)}),
    "builtin_hook": Expected(collectives={("all_reduce", "backward"): (1, GRADIENT_BYTES)}),
    "two_models": Expected(samples=2 * BATCH, micro_steps=2),
    "lbfgs": Expected(samples=3 * BATCH, micro_steps=3),
    "two_forwards": Expected(samples=2 * BATCH),
    "zero_redundancy": Expected(collectives={("broadcast", "update"): (6, GRADIENT_BYTES)}),
    "own_collectives": Expected(
        collectives={
            ("all_gather", "forward"): (1, 4096),
            ("all_reduce", "between"): (1, 4096),
            ("barrier", "between"): (1, 0),
        }
    ),
    "fsdp2": Expected(
        num_buckets=0,
        collectives={
            ("all_gather", "forward"): (3, GRADIENT_BYTES),
            ("all_gather", "backward"): (3, GRADIENT_BYTES),
            ("reduce_scatter", "backward"): (3, GRADIENT_BYTES),
        },
    ),
    "hsdp": Expected(num_buckets=0, collectives={("all_reduce", "backward"): (1, GRADIENT_BYTES)}),
    "fsdp2_accumulation": Expected(
        samples=2 * BATCH,
        micro_steps=2,
        num_buckets=0,
        collectives={
            ("all_gather", "forward"): (2, 2 * GRADIENT_BYTES),
            ("reduce_scatter", "backward"): (1, GRADIENT_BYTES),
        },
    ),
    "fsdp1": Expected(
        num_buckets=0,
        collectives={
            ("all_gather", "forward"): (1, GRADIENT_BYTES),
            ("reduce_scatter", "backward"): (1, GRADIENT_BYTES),
        },
    ),
    "without_ddp": Expected(
        num_buckets=0,
        flags=StepFlag.INFERRED_FORWARD,
        collectives={("all_reduce", "between"): (6, GRADIENT_BYTES)},
    ),
}
# Their steps differ among themselves; tests of their own look at them.
VARIED = {"unused_parameters", "small_buckets", "join", "join_by_present_ranks", "power_sgd", "post_local_sgd"}
VARIED |= {"grad_scaler", "errors_in_the_loop", "evaluation", "checkpoint_saved", "group_made_anew"}


@pytest.mark.parametrize("case", CASES)
def test_the_result_is_bit_identical(runs: Runs, case: str) -> None:
    for rank in range(2):
        assert runs.watched[case, rank].digest == runs.plain[case, rank].digest


@pytest.mark.parametrize("case", CASES)
def test_each_phase_is_plausible(runs: Runs, case: str) -> None:
    for rank in range(2):
        steps = runs.steps(case, rank)
        assert len(steps) >= (STEPS // 2 if case.startswith("join") and rank else STEPS) - 1
        for step in steps:
            assert all(value >= 0 for value in step.phases.values()), step
            assert sum(step.phases[part] for part in PARTS) == pytest.approx(step.t_iter, rel=1e-4)
            assert step.t_c_no <= step.t_c + 1e-9
            assert step.t_f > 0
            assert step.t_u > 0 or step.flags & StepFlag.SKIPPED
            for bucket in step.buckets:
                assert 0 <= bucket.ready <= bucket.end <= step.t_iter + step.evaluation
                assert bucket.dtype == "float32"
                assert bucket.nbytes > 0


@pytest.mark.parametrize("case", sorted(set(CASES) - VARIED))
def test_what_a_step_holds(runs: Runs, case: str) -> None:
    expected = EXPECTED.get(case, Expected())
    for rank in range(2):
        steps = runs.steps(case, rank)
        assert expected.num_steps - 1 <= len(steps) <= expected.num_steps + 1
        inner = steps[1:-1]
        for step in inner:
            assert step.flags & ~StepFlag.FIRST_BATCH == expected.flags, step
            assert step.num_micro_steps == expected.micro_steps
            assert step.num_samples == expected.samples
            assert math.isnan(step.num_tokens)
            found = {(c.kind.value, c.place.value): (c.calls, c.nbytes) for c in step.collectives}
            assert found == expected.collectives
        assert Counter(len(step.buckets) for step in inner).most_common(1)[0][0] >= expected.num_buckets
        assert all(len(step.buckets) == 0 for step in inner) or expected.num_buckets


@pytest.mark.parametrize("case", ["loader_with_workers", "persistent_workers", "early_break"])
def test_the_first_batch_of_an_epoch_is_marked(runs: Runs, case: str) -> None:
    num_epochs = {"loader_with_workers": 1}.get(case, 2)
    for rank in range(2):
        marked = [step for step in runs.steps(case, rank) if step.flags & StepFlag.FIRST_BATCH]
        assert len(marked) == num_epochs


def test_every_gradient_byte_is_in_a_bucket(runs: Runs) -> None:
    for case in ("plain", "static_graph", "bucket_view", "small_buckets", "no_sync", "power_sgd", "post_local_sgd"):
        for step in runs.steps(case, 0)[1:-1]:
            assert sum(bucket.nbytes for bucket in step.buckets) == GRADIENT_BYTES, case
            assert [bucket.index for bucket in step.buckets] == list(range(len(step.buckets)))


def test_buckets_are_followed_when_ddp_rebuilds_them(runs: Runs) -> None:
    counts = [len(step.buckets) for step in runs.steps("small_buckets", 0)]
    assert counts[-1] == 2
    assert counts[0] < counts[-1]


def test_unused_parameters_are_exchanged_too(runs: Runs) -> None:
    last = runs.steps("unused_parameters", 1)[-1]
    assert sum(bucket.nbytes for bucket in last.buckets) == 2 * GRADIENT_BYTES


def test_a_step_skipped_by_the_grad_scaler_is_marked(runs: Runs) -> None:
    for rank in range(2):
        assert [step.flags & StepFlag.SKIPPED for step in runs.steps("grad_scaler", rank)[1:]].count(True) == 1
        assert sum(1 for step in runs.steps("grad_scaler", rank) if step.flags & StepFlag.SKIPPED) == 1


def test_evaluation_is_kept_out_of_the_steps(runs: Runs) -> None:
    for rank in range(2):
        evaluated = [step for step in runs.steps("evaluation", rank) if step.flags & StepFlag.EVALUATION]
        assert len(evaluated) >= 1
        for step in evaluated:
            assert 0.030 <= step.evaluation < 0.2
        others = [step for step in runs.steps("evaluation", rank) if not step.flags & StepFlag.EVALUATION]
        assert all(step.evaluation == 0 for step in others)


def test_a_checkpoint_is_rest(runs: Runs) -> None:
    for rank in range(2):
        rests = [step.rest for step in runs.steps("checkpoint_saved", rank)[1:]]
        slow = [rest for rest in rests if rest > 0.0255]
        assert 3 <= len(slow) <= 4
        # Each costs 20 ms, and 5 ms are in every step.
        assert min(slow) >= 0.0250


def test_collectives_of_a_users_hook_are_told(runs: Runs) -> None:
    for step in runs.steps("power_sgd", 0)[4:-1]:
        (collective,) = step.collectives
        assert collective.place.value == "backward"
        assert collective.nbytes < GRADIENT_BYTES / 20
        assert step.buckets


def test_a_rank_that_joins_early_leaves_the_other_its_steps(runs: Runs) -> None:
    for case in ("join", "join_by_present_ranks"):
        assert STEPS - 1 <= len(runs.steps(case, 0)) <= STEPS + 1
        assert STEPS // 2 - 1 <= len(runs.steps(case, 1)) <= STEPS // 2 + 1


def test_a_group_made_anew_goes_on(runs: Runs) -> None:
    for rank in range(2):
        steps = runs.steps("group_made_anew", rank)
        assert len(steps) == STEPS
        made_anew = [i for i, s in enumerate(steps) if {c.kind.value for c in s.collectives} >= {"barrier"}]
        assert made_anew == [STEPS // 2]


def test_each_strategy_is_told(runs: Runs) -> None:
    for rank in range(2):
        hellos = [hello for hello in runs.recorded.hellos if hello.rank == rank]
        assert {hello.strategy for hello in hellos} == {"ddp", "fsdp", "fsdp2"}
        assert {hello.gradient_bytes for hello in hellos} >= {GRADIENT_BYTES}


def test_nothing_failed_inside_the_probe(runs: Runs) -> None:
    for hello in runs.recorded.hellos:
        assert not [reason for reason in hello.unmeasured.values() if "failed" in reason], hello.unmeasured

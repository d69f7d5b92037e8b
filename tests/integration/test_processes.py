"""Trainings among other processes: workers, forks, spawned and restarted ranks, Pythons that never train."""

import os
import re
import stat
import sys
from pathlib import Path

import pytest

from tests.integration.conftest import ROOT, Lab
from tests.integration.recorded import recorded

SCRIPT = str(ROOT / "tests" / "integration" / "process_script.py")
STEPS = 40
# A model that is not wrapped is found at its first optimizer step.
STEPS_ALONE = STEPS - 1


def digests(output: str) -> list[str]:
    return re.findall(r"digest (\S+)", output)


def watched_and_plain(lab: Lab, words: list[str]) -> tuple[str, str]:
    """Run a command with and without ddltop, both ending well; give what each printed."""
    outputs = []
    for prefix in (lab.command("run", "--"), []):
        (lab.home / "store").unlink(missing_ok=True)
        done = lab.execute([*prefix, *words], timeout=120)
        assert done.returncode == 0, done.stderr
        outputs.append(done.stdout + done.stderr)
    assert digests(outputs[0]) == digests(outputs[1]) != []
    return outputs[0], outputs[1]


@pytest.mark.parametrize("context", ["fork", "spawn", "forkserver"])
def test_loader_workers_are_neither_measured_nor_broken(lab: Lab, context: str) -> None:
    watched_and_plain(lab, [sys.executable, SCRIPT, "workers", str(lab.home), context])
    notes = [path.read_text() for path in lab.home.glob("worker-*")]
    assert len(notes) == 4
    assert not any("ddltop" in note for note in notes)
    found = recorded(lab)
    assert {hello.rank for hello in found.hellos} == {0}
    assert len(found.of(0)) == STEPS_ALONE


def test_spawned_ranks_are_measured_and_their_parent_is_not(lab: Lab) -> None:
    watched_and_plain(lab, [sys.executable, SCRIPT, "spawn", str(lab.home)])
    found = recorded(lab)
    assert {(hello.rank, hello.world_size) for hello in found.hellos} == {(0, 2), (1, 2)}
    assert [len(found.of(rank)) for rank in (0, 1)] == [STEPS, STEPS]
    assert all(step.buckets for step in found.of(1))


def test_a_restarted_job_is_told_apart_from_its_first_attempt(lab: Lab) -> None:
    words = lab.torchrun_of(SCRIPT)
    words.insert(3, "--max-restarts=1")
    watched_and_plain(lab, [*words, "elastic", str(lab.home)])
    found = recorded(lab)
    attempts = {(hello.rank, hello.attempt) for hello in found.hellos}
    assert attempts == {(0, 0), (1, 0), (0, 1), (1, 1)}
    second = {hello.epoch for hello in found.hellos if hello.attempt == 1}
    assert sum(step.epoch in second for step in found.steps) == 2 * STEPS
    assert lab.report()["run"]["steps"] == STEPS


def test_forked_children_go_their_own_way(lab: Lab) -> None:
    watched, plain = watched_and_plain(lab, [sys.executable, SCRIPT, "forks", str(lab.home)])
    children = re.findall(r"threads of children .*", watched)
    assert children == re.findall(r"threads of children .*", plain)
    assert "ddltop" not in children[0]
    found = recorded(lab)
    assert len({hello.epoch for hello in found.hellos}) == 1
    assert len(found.of(0)) == STEPS_ALONE


def test_ddp_in_a_group_of_its_own_beside_another_group(lab: Lab) -> None:
    watched_and_plain(lab, [*lab.torchrun_of(SCRIPT), "second_group", str(lab.home)])
    for rank in (0, 1):
        steps = recorded(lab).of(rank)
        assert len(steps) == STEPS
        assert all(step.buckets for step in steps)
        assert [c.kind for step in steps[1:-1] for c in step.collectives] == ["all_reduce"] * (STEPS - 2)


def test_pythons_that_never_train_print_what_they_always_print(lab: Lab) -> None:
    watched_and_plain(lab, [sys.executable, SCRIPT, "tools", str(lab.home)])
    assert len({hello.epoch for hello in recorded(lab).hellos}) == 1


def test_a_training_that_raises_ends_as_it_always_does_and_keeps_its_steps(lab: Lab) -> None:
    words = [sys.executable, SCRIPT, "crash", str(lab.home)]
    watched, plain = lab.execute(lab.command("run", "--", *words)), lab.execute(words)
    assert watched.returncode == plain.returncode == 1
    assert (
        plain.stderr.splitlines()[-1] == watched.stderr.splitlines()[-1] == "RuntimeError: a crash that was asked for"
    )
    # Its frames are the same: none of ours is in the traceback of the loop.
    assert re.findall(r"line (\d+), in (\w+)", watched.stderr) == re.findall(r"line (\d+), in (\w+)", plain.stderr)
    assert len(recorded(lab).of(0)) == 19


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (["-I"], "python -I"),
        (["-u", "-E"], "python -E"),
        (["-W", "ignore", "-S"], "python -S"),
        ([], "no process of this command took an optimizer step"),
    ],
)
def test_a_command_that_cannot_be_reached_is_told_why(lab: Lab, flags: list[str], why: str) -> None:
    done = lab.ddltop("run", "--", sys.executable, *flags, "-c", "print(6 * 7)")
    assert (done.returncode, done.stdout) == (0, "42\n")
    assert "no training was measured" in done.stderr
    assert why in done.stderr


def test_another_python_without_ddltop_trains_on_and_is_told_of(lab: Lab) -> None:
    bare = lab.home / "bare"
    made = lab.execute([sys.executable, "-m", "venv", "--without-pip", str(bare)])
    assert made.returncode == 0, made.stderr
    done = lab.ddltop("run", "--", str(bare / "bin" / "python"), "-c", "print(6 * 7)")
    assert (done.returncode, done.stdout) == (0, "42\n")
    assert "cannot import ddltop" in done.stderr


def test_the_users_own_sitecustomize_and_python_path_stay_in_force(lab: Lab) -> None:
    own = lab.home / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import builtins\nbuiltins.mine = 'still here'\n")
    (own / "helper.py").write_text("name = 'helper of mine'\n")
    code = (
        "import sys, helper, sitecustomize; print(mine, helper.name, sitecustomize.__file__, 'shim' in str(sys.path))"
    )
    lab = Lab(home=lab.home, environ={**lab.environ, "PYTHONPATH": str(own)})
    watched = lab.ddltop("run", "--", sys.executable, "-c", code)
    plain = lab.execute([sys.executable, "-c", code])
    assert watched.stdout == plain.stdout == f"still here helper of mine {own / 'sitecustomize.py'} False\n"


def test_modules_console_scripts_and_shell_scripts_are_reached(lab: Lab) -> None:
    (lab.home / "trainer.py").write_text(f"import runpy, sys\nrunpy.run_path({SCRIPT!r}, run_name='__main__')\n")
    console = lab.home / "train-it"
    console.write_text(f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(lab.home)!r})\nimport trainer\n")
    shell = lab.home / "train.sh"
    shell.write_text(f"set -e\n{sys.executable} -c 'print(1)'\nexec {console} \"$@\"\n")
    console.chmod(console.stat().st_mode | stat.S_IXUSR)
    module = [sys.executable, "-m", "trainer"]
    for i, words in enumerate((module, [str(console)], ["bash", str(shell)])):
        done = lab.ddltop("run", "--", *words, "tools", str(lab.home))
        assert done.returncode == 0, done.stderr
        assert len(recorded(lab).of(0)) == STEPS_ALONE, words
        assert len(list(Path(lab.home, ".local/state/ddltop").glob("*.ddltop"))) == i + 1
        os.sync()

"""A real two-rank gloo training under `ddltop run`: measured, recorded, judged, and left alone."""

import json
import re
import sqlite3
from typing import Any

import pytest

from tests.integration.conftest import Lab

ADDITIVE = ("t_io", "t_h2d", "t_f", "t_b", "t_c_no", "t_u", "rest")
STRAGGLERS = {"input-straggler", "forward-straggler", "backward-straggler"}


def final_loss(output: str) -> str:
    found = re.search(r"final loss (\S+)", output)
    assert found, output
    return found.group(1)


def test_a_healthy_training_is_measured_whole_and_nobody_is_accused(lab: Lab) -> None:
    done, report = lab.watch_training("--model", "cnn", "--steps", "200")
    assert done.returncode == 0, done.stderr
    run, phases = report["run"], report["phases_s"]
    assert (run["world_size"], run["num_nodes"], run["backend"], run["model"]) == (2, 1, "gloo", "CNN")
    assert run["steps"] >= 190
    assert run["exit_code"] == 0
    for name in (*ADDITIVE, "t_iter", "t_c", "exposed_transfer", "exposed_wait"):
        assert phases[name] is not None, name
    for name in ("t_f", "t_b", "t_c", "t_u", "t_io"):
        assert phases[name] > 0, name
    for row in (phases, *phases["per_rank"]):
        assert sum(row[name] for name in ADDITIVE) == pytest.approx(row["t_iter"], rel=0.01)
    gap = sum(part["seconds"] for part in report["gap_s"])
    assert gap == pytest.approx(phases["t_iter"] - report["speedup"]["t_iter_1"], abs=1e-6)
    assert report["speedup"]["measured"] > 0
    assert report["speedup"]["predicted"] > 0
    assert len(report["buckets"]) >= 2
    assert report["quality"]["dropped"] == 0
    assert report["quality"]["missing_ranks"] == []
    accused = [f for f in report["findings"] if f["code"] in STRAGGLERS and f["severity"] != "info"]
    assert accused == []


def test_the_report_has_every_field_it_promises(lab: Lab) -> None:
    _done, report = lab.watch_training("--model", "tiny", "--steps", "60")
    promised: dict[str, set[str]] = {
        "run": {
            "id", "framework", "backend", "world_size", "num_nodes", "steps", "duration_s", "samples_per_s",
            "batch_per_rank",
        },
        "phases_s": {
            "t_iter", "t_io", "t_h2d", "t_f", "t_b", "t_c", "t_c_no", "exposed_transfer", "exposed_wait", "t_u",
            "rest", "per_rank",
        },
        "speedup": {
            "ideal", "predicted", "predicted_low", "predicted_high", "measured", "deviation", "efficiency",
            "baseline_source", "network_source",
        },
        "quality": {"records", "dropped", "missing_ranks", "clock_offset_s", "overhead_us_per_step"},
    }  # fmt: skip
    for section, names in promised.items():
        assert names <= report[section].keys(), section
    assert {"part", "seconds", "share"} <= report["gap_s"][0].keys()
    assert {"index", "nbytes", "transfer_s", "algbw", "busbw", "exposed_s"} <= report["buckets"][0].keys()
    assert {"node", "gpus", "nics", "host"} <= report["nodes"][0].keys()
    assert report["nodes"][0]["gpu_status"] == "no GPU" or report["nodes"][0]["gpus"]


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ("backward-delay", "backward-straggler"),
        ("loader-delay", "input-straggler"),
        ("forward-delay", "forward-straggler"),
    ],
)
def test_a_delayed_rank_is_named_with_the_phase_of_its_delay(lab: Lab, fault: str, code: str) -> None:
    _done, report = lab.watch_training("--model", "cnn", "--steps", "120", "--fault", f"{fault}:rank=1,ms=40")
    first = report["findings"][0]
    assert (first["code"], first["ranks"]) == (code, [1])
    assert first["severity"] in ("warning", "critical")
    assert first["evidence"]["lateness_s"] == pytest.approx(0.040, rel=0.4)
    assert code in lab.ddltop("replay", "--once").stdout
    # A report is a replay; the live collector has written down what it found itself.
    replayed = sorted((f["code"], f["ranks"], f["first_step"], f["last_step"], f["why"]) for f in report["findings"])
    assert replayed == findings_written_live(lab)


def findings_written_live(lab: Lab) -> list[tuple[Any, ...]]:
    (recording,) = (lab.home / ".local" / "state" / "ddltop").glob("*.ddltop")
    with sqlite3.connect(recording) as database:
        rows = database.execute("SELECT code, ranks, first_step, last_step, why FROM findings").fetchall()
    return sorted((code, json.loads(ranks), first, last, why) for code, ranks, first, last, why in rows)


def test_a_failing_command_keeps_its_exit_code(lab: Lab) -> None:
    plain = lab.execute(lab.torchrun("--model", "tiny", "--steps", "30", "--fail-at", "10"))
    watched = lab.ddltop("run", "--", *lab.torchrun("--model", "tiny", "--steps", "30", "--fail-at", "10"))
    assert plain.returncode != 0
    assert watched.returncode == plain.returncode
    assert lab.ddltop("run", "--", "sh", "-c", "exit 7").returncode == 7
    assert lab.ddltop("run", "--", "sh", "-c", "kill -9 $$").returncode == 137


def test_a_command_that_is_not_there_is_said_so(lab: Lab) -> None:
    done = lab.ddltop("run", "--", "no-such-command-here")
    assert done.returncode == 2
    assert "no-such-command-here" in done.stderr


def test_the_result_of_the_training_is_the_same_to_the_last_bit(lab: Lab) -> None:
    arguments = ("--model", "cnn", "--steps", "40", "--seed", "3")
    plain = lab.execute(lab.torchrun(*arguments))
    watched = lab.ddltop("run", "--", *lab.torchrun(*arguments))
    assert final_loss(watched.stdout) == final_loss(plain.stdout)


def test_instrument_in_the_script_needs_no_launcher_of_ours(lab: Lab) -> None:
    script = lab.home / "own.py"
    text = (
        "import runpy, sys, ddltop\n"
        "ddltop.instrument()\n"
        f"sys.path.insert(0, {str(lab.torchrun()[-1].rsplit('/', 1)[0])!r})\n"
        f"sys.argv = ['train.py', '--model', 'tiny', '--steps', '400']\n"
        f"runpy.run_path({lab.torchrun()[-1]!r}, run_name='__main__')\n"
    )
    script.write_text(text)
    words = lab.torchrun()[:-1]
    done = lab.execute([*words, str(script)])
    assert done.returncode == 0, done.stderr
    deadline_report = _report_when_complete(lab)
    assert deadline_report["run"]["world_size"] == 2
    assert deadline_report["run"]["steps"] >= 390


def _report_when_complete(lab: Lab) -> dict[str, Any]:
    """The run has no launcher that waits for its recording: give the collector some seconds."""
    import time

    report: dict[str, Any] = {}
    for _ in range(40):
        done = lab.ddltop("report", "--format", "json")
        if done.returncode == 0:
            report = lab.report()
            if report["run"]["state"] == "ended":
                return report
        time.sleep(0.5)
    return report

"""Training without DDP, seen end to end: what travels in collectives, who is late in them, and what is not modelled."""

import pytest

from tests.integration.conftest import ROOT, Lab

SCRIPT = str(ROOT / "tests" / "integration" / "sharded_script.py")
KINDS = {"fsdp2": {"all_gather", "reduce_scatter"}, "by-hand": {"all_reduce"}}


@pytest.mark.parametrize("how", list(KINDS))
def test_collectives_and_the_late_rank_are_seen_where_there_are_no_buckets(lab: Lab, how: str) -> None:
    done = lab.ddltop("run", "--", *lab.torchrun_of(SCRIPT), how, "100", "30", timeout=120)
    assert done.returncode == 0, done.stderr
    report = lab.report()
    run, phases = report["run"], report["phases_s"]
    assert run["strategy"] == ("fsdp2" if how == "fsdp2" else "none")
    assert run["bucket_timing"] not in ("", "on")
    assert KINDS[how] == {sums["kind"] for sums in report["collectives"] if sums["calls"] >= 1}
    assert all(sums["nbytes"] > 0 for sums in report["collectives"] if sums["kind"] != "barrier")
    # The early rank waits for the late one inside its collectives.
    early, late = phases["per_rank"]
    assert early["exposed_wait"] > 0.8 * 0.030
    assert late["t_f"] - early["t_f"] == pytest.approx(0.030, abs=0.006)
    assert late["lateness"] > 0.8 * 0.030
    assert report["speedup"]["predicted"] is None
    (straggler,) = [f for f in report["findings"] if f["code"] == "forward-straggler"]
    assert straggler["ranks"] == [1]
    gap = {part["part"]: part["seconds"] for part in report["gap_s"]}
    assert gap["wait for late ranks"] > 0.8 * 0.030
    assert sum(gap.values()) == pytest.approx(phases["t_iter"] - report["speedup"]["t_iter_1"], abs=1e-6)

    card = lab.ddltop("report").stdout
    assert "COLLECTIVE " in card
    assert "not modelled for" in card

"""An exception in any hook of the probe: the training never sees it, that hook falls silent, the run says why."""

import ast
import json
from typing import Any

import pytest

from tests.integration.conftest import ROOT, Lab
from tests.integration.recorded import recorded

SCRIPT = str(ROOT / "tests" / "integration" / "fault_script.py")
# Where a mode does not come by.
NOT_IN_DDP = {"rank.fsdp._stamp", "phases._step"}
NOT_IN_SHARDED = {
    "rank.comm_hook._open_bucket",
    "rank.comm_hook._close_bucket",
    "rank.joining._note_announcement",
    "rank.stamps._stamp_scaler",
    # Beside a device's clock nobody watches a collective's end on the host.
    "rank.collectives._note_collective_end",
}


def hooks_in_the_code() -> set[str]:
    """All functions under a fence."""
    found = set()
    for path in (ROOT / "agents").rglob("*.py"):
        module = ".".join(path.relative_to(ROOT / "agents").with_suffix("").parts)
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and any("fenced(" in ast.unparse(d) for d in node.decorator_list):
                found.add(f"{module}.{node.name}")
    return found


def digests(output: str) -> list[str]:
    return sorted(line for line in output.splitlines() if line.startswith("digest"))


@pytest.mark.parametrize(("mode", "absent"), [("ddp", NOT_IN_DDP), ("sharded", NOT_IN_SHARDED)])
def test_an_exception_in_any_hook_stays_inside_it(lab: Lab, mode: str, absent: set[str]) -> None:
    hooks = hooks_in_the_code()
    watched = lab.ddltop("run", "--", *lab.torchrun_of(SCRIPT), mode)
    assert watched.returncode == 0, watched.stderr
    told: list[dict[str, Any]] = [json.loads(line) for line in watched.stdout.splitlines() if line.startswith("{")]
    assert {entry["hook"] for entry in told} == hooks
    for entry in told:
        if entry["hook"] in absent:
            assert entry["raised"] == 0, entry
        else:
            assert entry["raised"] == 1, entry
            assert list(entry["failures"]) == [entry["site"]], entry
            assert "InjectedError" in entry["failures"][entry["site"]]
    assert len(told) == 2 * (2 * len(hooks) - 1)
    assert "Traceback" not in watched.stderr

    plain = lab.execute([*lab.torchrun_of(SCRIPT), mode])
    assert plain.returncode == 0, plain.stderr
    assert digests(watched.stdout) == digests(plain.stdout)
    assert len(digests(plain.stdout)) == 2

    found = recorded(lab)
    for step in found.steps:
        assert all(seconds >= 0 for seconds in step.phases.values() if seconds == seconds), step
    for rank in (0, 1):
        reasons = [hello.unmeasured.get("hook save", "") for hello in found.hellos if hello.rank == rank]
        assert any("InjectedError" in reason for reason in reasons), reasons

"""What an import drags in: a command line that starts at once, a probe that loads nothing heavy."""

import subprocess
import sys

import pytest

LOADED = "import sys; print('\\n'.join(sorted(sys.modules)))"


def loaded_by(code: str) -> set[str]:
    """Top-level names of all modules after running `code` in a fresh interpreter."""
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{LOADED}"], capture_output=True, text=True, check=True, timeout=120
    )
    return {name.partition(".")[0] for name in done.stdout.split()}


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_the_command_line_starts_without_heavy_modules(option: str) -> None:
    code = (
        "import contextlib, io\n"
        "from ddltop.cli.main import main\n"
        "with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):\n"
        f"    main(['{option}'])\n"
    )
    assert not loaded_by(code) & {"textual", "rich", "numpy", "torch", "zmq", "msgspec", "sqlite3", "zstandard"}


def test_the_head_side_never_loads_torch() -> None:
    code = "import ddltop.tui.app, ddltop.sources.replay, ddltop.collector.service, ddltop.export.report"
    assert "torch" not in loaded_by(code)


@pytest.mark.parametrize("module", ["ddltop.model.assess", "ddltop.diagnose.engine"])
def test_model_and_diagnosis_know_no_edge(module: str) -> None:
    assert not loaded_by(f"import {module}") & {"zmq", "sqlite3", "textual", "rich", "torch"}


def test_only_the_screen_loads_textual() -> None:
    code = "import ddltop.sources.live, ddltop.export.text, ddltop.collector.snapshot_builder, ddltop.recording.worker"
    assert not loaded_by(code) & {"textual", "rich"}


def test_an_armed_process_that_never_trains_loads_next_to_nothing() -> None:
    loaded = loaded_by("from ddltop_agents import attach; attach.arm()")
    assert not loaded & {"torch", "numpy", "zmq", "msgspec", "textual", "rich", "psutil", "logging"}


def test_the_probe_loads_neither_screen_nor_numpy_nor_torch() -> None:
    code = "import ddltop_agents.rank.sender, ddltop_agents.rank.probe, ddltop_agents.rank.columns"
    assert not loaded_by(code) & {"torch", "numpy", "textual", "rich", "pynvml", "psutil"}


def test_the_agent_loads_neither_screen_nor_torch() -> None:
    code = "import ddltop_agents.node.daemon, ddltop_agents.node.sensors"
    assert not loaded_by(code) & {"torch", "numpy", "textual", "rich"}


def test_the_wire_needs_msgspec_only() -> None:
    code = (
        "import ddltop.wire.messages, ddltop.wire.codec, ddltop.wire.endpoints, ddltop.wire.keyfile, ddltop.wire.locks"
    )
    assert not loaded_by(code) & {"torch", "numpy", "zmq", "textual", "rich", "psutil", "zstandard"}

"""Start the node's agent as a process of its own, detached from the training job's terminal and signals."""

import os
from pathlib import Path

from ddltop.wire.endpoints import RunDir
from ddltop.wire.locks import is_locked
from ddltop.wire.processes import start_detached

from .. import __file__ as package_file

# Training variables that would make the agent instrument itself or open a GPU.
_NOT_INHERITED = ("LD_PRELOAD", "PYTHONPATH", "PYTHONSTARTUP")


def launch_agent(run_dir: RunDir, node: str) -> None:
    """Start `python -m ddltop_agents.node` unless one lives; what it prints goes to agent.log in the run directory."""
    if is_locked(run_dir.agent_lock(node)):
        return
    environ = {k: v for k, v in os.environ.items() if k not in _NOT_INHERITED}
    environ["PYTHONPATH"] = _import_path()
    start_detached(
        "ddltop_agents.node", "--run-dir", str(run_dir.path), log=run_dir.log(f"agent-{node}"), environ=environ
    )


def _import_path() -> str:
    """Give the folders that make ddltop and ddltop_agents importable for a Python that did not install them."""
    import ddltop

    homes = {str(Path(module).resolve().parent.parent) for module in (ddltop.__file__, package_file) if module}
    return os.pathsep.join(sorted(homes))

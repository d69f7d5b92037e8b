"""Start the run's collector on this machine when none lives: after `ddltop.instrument()` or a kill -9."""

from ddltop.wire.endpoints import RunDir
from ddltop.wire.locks import is_locked
from ddltop.wire.processes import start_detached


def launch_collector(run_dir: RunDir, node: str) -> None:
    """Start `ddltop collect` for this run directory unless one lives, or the run belongs to another node."""
    run = run_dir.read()
    if run is None or run.node != node or is_locked(run_dir.collector_lock):
        return
    start_detached("ddltop", "collect", "--run-dir", str(run_dir.path), log=run_dir.log("collector"))

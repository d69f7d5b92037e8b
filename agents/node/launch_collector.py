"""Start the run's collector on this machine when none lives: after `ddltop.instrument()` or a kill -9."""

import subprocess
import sys

from ddltop.wire.endpoints import RunDir
from ddltop.wire.locks import is_locked


def launch_collector(run_dir: RunDir, node: str) -> None:
    """Start `ddltop collect` for this run directory unless one lives, or the run belongs to another node."""
    run = run_dir.read()
    if run is None or run.node != node or is_locked(run_dir.collector_lock):
        return
    with run_dir.log("collector").open("ab") as log:
        subprocess.Popen(
            [sys.executable, "-m", "ddltop", "collect", "--run-dir", str(run_dir.path)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd="/",
        )

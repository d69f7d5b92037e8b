"""The live runs of this user on this machine."""

import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from ddltop.errors import NoRunError
from ddltop.wire.endpoints import RunDir, RunFile, runs_root
from ddltop.wire.locks import is_locked


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRun:
    """A run whose collector lives."""

    run_dir: RunDir
    run: RunFile

    @property
    def title(self) -> str:
        """Name the run in a list: its id and its command."""
        return f"{self.run.run_id}  {' '.join(Path(word).name for word in self.run.command)[:60]}"


def find_live_runs(root: Path | None = None) -> list[LiveRun]:
    """Give the live runs, newest first."""
    found = []
    for path in (root or runs_root()).iterdir():
        run_dir = RunDir(path)
        run = run_dir.read() if path.is_dir() else None
        if run is not None and is_locked(run_dir.collector_lock):
            found.append(LiveRun(run_dir=run_dir, run=run))
    return sorted(found, key=lambda live: -live.run.started_us)


def sweep_stale_runs(root: Path, *, older_than_s: float = 3600.0) -> None:
    """Remove the directories of runs that nobody serves any more: their collectors were killed."""
    for path in root.iterdir():
        run_dir = RunDir(path)
        is_served = is_locked(run_dir.collector_lock) or any(is_locked(lock) for lock in path.glob("agent-*.lock"))
        if path.is_dir() and not is_served and time.time() - path.stat().st_mtime > older_than_s:
            shutil.rmtree(path, ignore_errors=True)


def pick_live_run(name: str | None, runs: list[LiveRun]) -> LiveRun:
    """Give the run called `name` (or whose id begins so), the only one without a name; raise NoRunError."""
    if name is not None:
        named = [live for live in runs if live.run.run_id.startswith(name)]
        if len(named) == 1:
            return named[0]
        what = "no live run is" if not named else f"{len(named)} live runs are"
        raise NoRunError(f"{what} called {name!r}", _listing(runs))
    if not runs:
        raise NoRunError("no live run of yours on this machine", "start one: ddltop run -- torchrun ... train.py")
    if len(runs) > 1:
        raise NoRunError(f"{len(runs)} runs are live: choose one", _listing(runs))
    return runs[0]


def _listing(runs: list[LiveRun]) -> str:
    if not runs:
        return "start one: ddltop run -- torchrun ... train.py"
    return "\n  ".join(f"ddltop attach {live.title}" for live in runs)

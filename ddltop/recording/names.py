"""Where recordings live, how they are called, and how a user's word finds one."""

import os
import time
from pathlib import Path

from ddltop.errors import NoRunError

SUFFIX = ".ddltop"


def default_directory() -> Path:
    """Give $XDG_STATE_HOME/ddltop (default ~/.local/state/ddltop), created for this user alone."""
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    directory = Path(state) / "ddltop"
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    return directory


def recording_name(job: str, run_id: str, started_at: float) -> str:
    """Name a file JOB-RUN-TIME.ddltop, UTC, safe characters only."""
    when = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(started_at))
    parts = [_safe(job, 24), _safe(run_id.removeprefix(f"{job}-"), 40), when]
    return "-".join(part for part in parts if part) + SUFFIX


def list_recordings(directory: Path) -> list[Path]:
    """Give the recordings of a directory, newest first."""
    return sorted(directory.glob(f"*{SUFFIX}"), key=lambda path: path.stat().st_mtime, reverse=True)


def find_recording(name: str | None, directory: Path | None = None) -> Path:
    """Find a recording: a path, a part of a name, or the newest without one; raise NoRunError."""
    if name is not None and Path(name).is_file():
        return Path(name)
    directory = directory or default_directory()
    recordings = list_recordings(directory)
    found = recordings if name is None else [path for path in recordings if name in path.name]
    if not found:
        what = "no recording yet" if name is None else f"no recording called {name!r}"
        raise NoRunError(f"{what} in {directory}", "record one: ddltop run -- torchrun ... train.py")
    return found[0]


def _safe(text: str, limit: int) -> str:
    return "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in text)[:limit].strip("-.")

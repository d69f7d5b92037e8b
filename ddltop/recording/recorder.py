"""Write a recording: one SQLite file, one commit a second, at most the last second lost by a kill -9.

journal_mode=TRUNCATE: in WAL mode the main file stays nearly empty until a checkpoint and NFS or Lustre cannot
share it. synchronous=NORMAL: a lost commit costs a second of figures, a sync per commit costs a busy disk more.
"""

import contextlib
import json
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np

from ddltop import __version__
from ddltop.collector.snapshot import Snapshot
from ddltop.errors import RecordingError
from ddltop.model.window import Window
from ddltop.recording.frames import pack_block
from ddltop.recording.schema import APPLICATION_ID, SCHEMA_VERSION, STEP_COLUMNS, TABLES

# A block is committed each second or when it holds this much: the unit that a reader decompresses.
BLOCK_BYTES = 2**20


class Recorder:
    """The writer of one file. One thread owns it; every method raises RecordingError when the disk does not take it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with _explained(path):
            # Created by us, for us alone, never through somebody's link.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600))
            self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._database.execute("PRAGMA journal_mode=TRUNCATE")
            self._database.execute("PRAGMA synchronous=NORMAL")
            self._database.execute(f"PRAGMA application_id={APPLICATION_ID}")
            self._database.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
            self._database.executescript(f"BEGIN;{TABLES}COMMIT;")
            self._database.execute("BEGIN")
            self._database.execute("INSERT INTO meta VALUES ('ddltop_version', ?)", (__version__,))
        self._frames: list[tuple[float, bytes]] = []
        self._num_bytes = 0

    def write_frame(self, at: float, frame: bytes) -> None:
        """Keep one frame of the wire and the time it came, seconds since the epoch."""
        self._frames.append((at, frame))
        self._num_bytes += len(frame)
        if self._num_bytes >= BLOCK_BYTES:
            self._write_block()

    def write_steps(self, window: Window) -> None:
        """Keep the steps of a window, a row per step and rank."""
        marks = ",".join("?" * len(STEP_COLUMNS))
        with _explained(self.path):
            self._database.executemany(f"INSERT OR REPLACE INTO steps VALUES ({marks})", _step_rows(window))

    def write_snapshot(self, snapshot: Snapshot) -> None:
        """Keep what the run is and what was found."""
        with _explained(self.path):
            self._database.executemany("INSERT OR REPLACE INTO run VALUES (?,?)", _run_rows(snapshot))
            self._database.executemany(
                "INSERT OR REPLACE INTO ranks VALUES (?,?,?,?,?,?,?)",
                [
                    (line.rank, line.local_rank, line.node, line.pid, line.gpu_uuid, line.state.value, line.last_step)
                    for line in snapshot.ranks
                ],
            )
            self._database.executemany(
                "INSERT OR REPLACE INTO findings VALUES (?,?,?,?,?,?,?,?,?,?,?)", _finding_rows(snapshot)
            )

    def commit(self) -> None:
        """Make everything so far survive a kill -9."""
        self._write_block()
        with _explained(self.path):
            self._database.execute("COMMIT")
            self._database.execute("BEGIN")

    def close(self) -> None:
        """Commit and close the file."""
        self._write_block()
        with _explained(self.path):
            self._database.execute("COMMIT")
            # Removes the empty journal file that TRUNCATE leaves beside the recording.
            self._database.execute("PRAGMA journal_mode=DELETE")
            self._database.close()

    def _write_block(self) -> None:
        if not self._frames:
            return
        frames, self._frames, self._num_bytes = self._frames, [], 0
        payload, num_bytes = pack_block(frames)
        with _explained(self.path):
            self._database.execute(
                "INSERT INTO frames (first_at, last_at, num_frames, num_bytes, payload) VALUES (?,?,?,?,?)",
                (frames[0][0], frames[-1][0], len(frames), num_bytes, payload),
            )


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise RecordingError(
            f"{path} cannot be written: {error}", "free some space, or choose another place: XDG_STATE_HOME"
        ) from error


def _step_rows(window: Window) -> Iterator[tuple[float | int | None, ...]]:
    for s, step in enumerate(window.steps_S):
        for r, rank in enumerate(window.ranks):
            values = [*window.phases_SRP[s, r], window.num_samples_SR[s, r], window.num_micro_steps_SR[s, r]]
            yield (int(step), rank, *(float(value) if np.isfinite(value) else None for value in values))


def _run_rows(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    facts = msgspec.to_builtins(snapshot.run)
    facts |= {"state": snapshot.state.value, "num_steps": snapshot.num_steps, "duration_s": snapshot.duration_s}
    for key, value in facts.items():
        yield key, value if isinstance(value, str) else json.dumps(value)


def _finding_rows(snapshot: Snapshot) -> Iterator[tuple[object, ...]]:
    for finding in snapshot.findings:
        yield (
            finding.code.value,
            json.dumps(finding.ranks),
            json.dumps(finding.nodes),
            finding.severity.value,
            finding.share_of_time,
            json.dumps(finding.evidence),
            finding.why,
            finding.next_step,
            finding.first_step,
            finding.last_step,
            int(finding.is_active),
        )

"""Read a recording, finished or still being written. A hostile file gives an error, never a crash or endless memory."""

import contextlib
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from ddltop.errors import RecordingError
from ddltop.recording.frames import MAX_BLOCK_BYTES, unpack_block
from ddltop.recording.schema import APPLICATION_ID, SCHEMA_VERSION

# A value of the run table is a name or a short list; a longer one is not ours.
MAX_TEXT = 2**20


class Recording:
    """One recording, opened read-only; raises RecordingError when it is none or damaged."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.is_file():
            raise RecordingError(f"{path} is no file", "ddltop report without a name takes the newest recording")
        with self._explained():
            _roll_back_unfinished(path)
            # Opened by one thread, read by another, never by two at once.
            self._database = sqlite3.connect(_uri(path, "ro"), uri=True, timeout=5.0, check_same_thread=False)
            self._database.text_factory = lambda text: text.decode(errors="replace")
            self._database.execute("PRAGMA cell_size_check=ON")
            # No stored trigger or view of a stranger's file runs any function.
            self._database.execute("PRAGMA trusted_schema=OFF")
            self._check_kind()
            self._facts = self._read_facts()

    @property
    def run_id(self) -> str:
        """Name of the run."""
        return self._facts.get("run_id", self.path.stem)

    @property
    def command(self) -> tuple[str, ...]:
        """Command line of the run; empty when unknown."""
        command = self._json("command")
        return tuple(str(word) for word in command) if isinstance(command, list) else ()

    @property
    def started_at(self) -> float | None:
        """When the run was started, seconds since the epoch."""
        started = self._json("started_at")
        return float(started) if isinstance(started, int | float) else None

    def frames(self) -> Iterator[tuple[float, bytes]]:
        """Give (time, frame) of all blocks in order, one block in memory at a time."""
        block = -1
        while True:
            with self._explained():
                row = self._database.execute(
                    "SELECT block, length(payload) FROM frames WHERE block > ? ORDER BY block LIMIT 1", (block,)
                ).fetchone()
                if row is None:
                    return
                block, size = row
                if size is None or size > MAX_BLOCK_BYTES:
                    raise RecordingError(f"{self.path} has a block of {size} bytes", "it was not written by ddltop")
                payload = self._database.execute("SELECT payload FROM frames WHERE block = ?", (block,)).fetchone()[0]
            if not isinstance(payload, bytes):
                raise RecordingError(f"block {block} of {self.path} is no blob", "it was not written by ddltop")
            yield from unpack_block(payload)

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def _check_kind(self) -> None:
        application = self._database.execute("PRAGMA application_id").fetchone()[0]
        version = self._database.execute("PRAGMA user_version").fetchone()[0]
        if application != APPLICATION_ID:
            raise RecordingError(f"{self.path} is no recording of ddltop", "recordings end in .ddltop")
        if version > SCHEMA_VERSION:
            raise RecordingError(
                f"{self.path} has schema version {version}; this ddltop reads up to {SCHEMA_VERSION}",
                "upgrade ddltop: pip install -U ddltop",
            )

    def _read_facts(self) -> dict[str, str]:
        rows = self._database.execute("SELECT key, value FROM run LIMIT 1000").fetchall()
        return {str(key): str(value) for key, value in rows if len(str(value)) <= MAX_TEXT}

    def _json(self, key: str) -> object:
        try:
            return json.loads(self._facts.get(key, "null"))
        except (json.JSONDecodeError, RecursionError):
            return None

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.DatabaseError, UnicodeDecodeError, OverflowError) as error:
            raise RecordingError(
                f"{self.path} cannot be read: {error}", "is it complete, and a recording of ddltop (.ddltop)?"
            ) from error


def _uri(path: Path, mode: str) -> str:
    return f"file:{quote(str(path.absolute()))}?mode={mode}"


def _roll_back_unfinished(path: Path) -> None:
    """Undo the half commit of a writer that was killed; a reader alone may not. A living writer's is left alone.

    SQLite tells the two apart by the writer's lock (its file format document, section "rollback journal").
    """
    journal = path.with_name(f"{path.name}-journal")
    if not journal.is_file() or journal.stat().st_size == 0:
        return
    with contextlib.closing(sqlite3.connect(_uri(path, "rw"), uri=True, timeout=5.0)) as database:
        database.execute("SELECT count(*) FROM sqlite_master").fetchone()

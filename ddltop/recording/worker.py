"""The recorder's thread: takes frames from the collector's loop and never makes it wait."""

import queue
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from ddltop.collector.snapshot import Snapshot
from ddltop.errors import RecordingError
from ddltop.model.window import Window
from ddltop.recording.names import default_directory, recording_name
from ddltop.recording.recorder import Recorder

# Half a minute of 16 nodes: beyond that the disk is not coming back soon, and memory must stay bounded.
MAX_WAITING = 4096
CLOSE_LIMIT_S = 10.0


@dataclass(frozen=True, slots=True)
class _Frame:
    at: float
    frame: bytes


@dataclass(frozen=True, slots=True)
class _Summary:
    snapshot: Snapshot
    completed: Window | None


class _End:
    pass


class NoRecording:
    """A sink that keeps nothing."""

    def put_frame(self, at: float, frame: bytes) -> None:
        """Forget the frame."""

    def put_summary(self, snapshot: Snapshot, completed: Window | None) -> None:
        """Forget the summary."""

    def close(self) -> None:
        """Do nothing."""


class RecorderThread:
    """A sink that records to `path`; a full or broken disk ends the recording, never the run.

    Raises RecordingError when the file cannot be created.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.num_lost = 0
        self._queue: queue.Queue[_Frame | _Summary | _End] = queue.Queue(MAX_WAITING)
        self._recorder = Recorder(path)
        self._thread = threading.Thread(target=self._run, name="ddltop-recorder", daemon=True)
        self._thread.start()

    def put_frame(self, at: float, frame: bytes) -> None:
        """Queue one frame; counted as lost when the disk is too far behind."""
        self._put(_Frame(at, frame))

    def put_summary(self, snapshot: Snapshot, completed: Window | None) -> None:
        """Queue the state of the run and its newly completed steps."""
        self._put(_Summary(snapshot, completed))

    def close(self) -> None:
        """Write what is queued and close the file; waits at most 10 s."""
        deadline = time.monotonic() + CLOSE_LIMIT_S
        self._queue.put(_End(), timeout=CLOSE_LIMIT_S)
        self._thread.join(max(0.0, deadline - time.monotonic()))

    def _put(self, item: _Frame | _Summary) -> None:
        try:
            self._queue.put_nowait(item)
        except queue.Full:
            self.num_lost += 1

    def _run(self) -> None:
        is_broken = False
        while not isinstance(item := self._queue.get(), _End):
            if is_broken:
                self.num_lost += 1
                continue
            try:
                self._write(item)
            except RecordingError as error:
                is_broken = True
                print(f"ddltop: recording stopped: {error}", file=sys.stderr)  # noqa: T201
        try:
            self._recorder.close()
        except RecordingError as error:
            print(f"ddltop: the recording lacks its end: {error}", file=sys.stderr)  # noqa: T201

    def _write(self, item: _Frame | _Summary) -> None:
        if isinstance(item, _Frame):
            self._recorder.write_frame(item.at, item.frame)
            return
        if item.completed is not None:
            self._recorder.write_steps(item.completed)
        self._recorder.write_snapshot(item.snapshot)
        self._recorder.commit()


def new_recording_path(run_id: str, command: tuple[str, ...]) -> Path:
    """Name a new recording in the default directory, which is created."""
    job = Path(next((word for word in command if word.endswith(".py")), command[0] if command else "run")).stem
    return default_directory() / recording_name(job, run_id, time.time())

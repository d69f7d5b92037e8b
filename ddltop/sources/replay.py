"""A recording as a source: its frames go through the same ingest at the times they came."""

import time
from collections.abc import Iterator
from pathlib import Path

from ddltop.collector.ingest import Ingest
from ddltop.collector.snapshot import Snapshot
from ddltop.collector.snapshot_builder import LIVE_WINDOW_STEPS, SnapshotBuilder
from ddltop.recording.reader import Recording
from ddltop.sources.source import SourceMode

TICK_S = 0.25


class ReplaySource:
    """Play a recording at `speed` times its own; `poll` gives the snapshot at the present position."""

    mode = SourceMode.REPLAY

    def __init__(self, path: Path, *, speed: float = 1.0) -> None:
        self._recording = Recording(path)
        self._frames: Iterator[tuple[float, bytes]] = self._recording.frames()
        self._ingest = _ingest_for(self._recording)
        self._builder = SnapshotBuilder(self._ingest)
        self._speed = speed
        self._next = next(self._frames, None)
        self._position = self._next[0] if self._next else 0.0
        self._polled_at: float | None = None
        self._is_shown_to_end = False

    def poll(self, timeout_s: float) -> Snapshot | None:
        """Move on by the time since the last call; None when nothing has changed."""
        now = time.monotonic()
        if self._polled_at is None:
            self._polled_at = now
        elif now - self._polled_at < timeout_s:
            time.sleep(timeout_s - (now - self._polled_at))
            now = time.monotonic()
        self._advance_to(self._position + (now - self._polled_at) * self._speed)
        self._polled_at = now
        if self._next is None and self._is_shown_to_end:
            return None
        self._is_shown_to_end = self._next is None
        return self._builder.build(self._position)

    def close(self) -> None:
        """Close the file."""
        self._recording.close()

    def _advance_to(self, position: float) -> None:
        while self._next is not None and self._next[0] <= position:
            at, frame = self._next
            _tick_through(self._ingest, self._position, at)
            self._ingest.receive(frame, at)
            self._position = at
            self._next = next(self._frames, None)
        if self._next is not None:
            _tick_through(self._ingest, self._position, position)
            self._position = max(self._position, position)


def read_whole(path: Path) -> Snapshot:
    """Give the snapshot at the end of a recording, assessed over all its steps; raise RecordingError."""
    return _read(path, window_steps=None)


def read_end(path: Path) -> Snapshot:
    """Give the last snapshot that a live viewer saw: assessed over the newest steps; raise RecordingError."""
    return _read(path, window_steps=LIVE_WINDOW_STEPS)


def _read(path: Path, *, window_steps: int | None) -> Snapshot:
    recording = Recording(path)
    try:
        ingest = _ingest_for(recording)
        position: float | None = None
        for at, frame in recording.frames():
            if position is not None:
                _tick_through(ingest, position, at)
            ingest.receive(frame, at)
            position = at
        return SnapshotBuilder(ingest, window_steps=window_steps).build(position or recording.started_at or 0.0)
    finally:
        recording.close()


def _ingest_for(recording: Recording) -> Ingest:
    return Ingest(recording.run_id, command=recording.command, started_at=recording.started_at)


def _tick_through(ingest: Ingest, begin: float, end: float) -> None:
    """Let time pass as the live collector did, so that silence is noticed alike; long gaps in few ticks."""
    step = max(TICK_S, (end - begin) / 64)
    at = begin + step
    while at < end:
        ingest.tick(at)
        at += step

"""The one interface between a viewer and a run, live or recorded."""

from enum import StrEnum
from typing import Protocol

from ddltop.collector.snapshot import Snapshot


class SourceMode(StrEnum):
    """What a viewer shows in its header."""

    LIVE = "live"
    REPLAY = "replay"


class Source(Protocol):
    """Give snapshots of one run. Used by one thread; no call blocks longer than its time-out."""

    mode: SourceMode

    def poll(self, timeout_s: float) -> Snapshot | None:
        """Return a newer snapshot, or None when there is none within `timeout_s` seconds."""
        ...

    def close(self) -> None:
        """Release sockets and files."""
        ...

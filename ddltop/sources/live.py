"""A live run: ask its collector for snapshots."""

import time
from pathlib import Path
from typing import Any

import zmq

from ddltop.collector.snapshot import Snapshot, decode_snapshot
from ddltop.errors import NoRunError
from ddltop.sources.source import SourceMode
from ddltop.wire.codec import decode_for_viewer, encode
from ddltop.wire.keyfile import read_keys
from ddltop.wire.messages import Message, Refused, SnapshotReply, SnapshotRequest

ANSWER_LIMIT_S = 2.0


class LiveSource:
    """Snapshots from the collector at `endpoint`; `key_file` holds the run's keys when that is TCP."""

    mode = SourceMode.LIVE

    def __init__(self, endpoint: str, key_file: Path | None = None) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = connect(self._context, endpoint, key_file)
        self._asked_at: float | None = None

    def poll(self, timeout_s: float) -> Snapshot | None:
        """Ask for the current snapshot; None when no answer comes in time. Raises NoRunError when refused."""
        now = time.monotonic()
        if self._asked_at is None or now - self._asked_at > ANSWER_LIMIT_S:
            self._asked_at = now if self._send(SnapshotRequest()) else None
        newest: bytes | None = None
        if self._socket.poll(int(timeout_s * 1000), zmq.POLLIN):
            # After an outage several answers may wait: the last is the newest.
            while (frame := self._receive()) is not None:
                newest = frame
        if newest is None:
            return None
        self._asked_at = None
        message = decode_for_viewer(newest)
        if isinstance(message, Refused):
            raise NoRunError(f"the collector refuses this viewer: {message.reason}", "use the same ddltop version")
        return decode_snapshot(message.snapshot) if isinstance(message, SnapshotReply) else None

    def tell(self, message: Message, timeout_s: float) -> bool:
        """Send a message and wait for the collector's answer; tell whether it came."""
        return self._send(message) and bool(self._socket.poll(int(timeout_s * 1000), zmq.POLLIN))

    def close(self) -> None:
        """Close the socket."""
        self._socket.close(0)
        self._context.term()

    def _send(self, message: Message) -> bool:
        try:
            self._socket.send(encode(message), zmq.NOBLOCK)
        except zmq.Again:
            return False
        return True

    def _receive(self) -> bytes | None:
        try:
            frame: bytes = self._socket.recv(zmq.NOBLOCK)
        except zmq.Again:
            return None
        return frame


def connect(context: "zmq.Context[zmq.Socket[bytes]]", endpoint: str, key_file: Path | None) -> Any:
    """Give a socket connected to the collector at `endpoint`; `key_file` holds the run's keys when that is TCP."""
    socket = context.socket(zmq.DEALER)
    for option, value in (
        (zmq.LINGER, 0),
        (zmq.SNDHWM, 8),
        (zmq.RECONNECT_IVL, 100),
        (zmq.RECONNECT_IVL_MAX, 2000),
        (zmq.HEARTBEAT_IVL, 1000),
        (zmq.HEARTBEAT_TIMEOUT, 3000),
    ):
        socket.setsockopt(option, value)
    if key_file is not None:
        keys = read_keys(key_file)
        socket.curve_serverkey = keys.server_public.encode()
        socket.curve_publickey = keys.client_public.encode()
        socket.curve_secretkey = keys.client_secret.encode()
    socket.connect(endpoint)
    return socket

"""The collector process: sockets around the sans-I/O ingest, one polling thread.

ipc sockets in the run's private directory need no keys; TCP always speaks CURVE and admits only the keys of
the run's own key file.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import zmq
from zmq.auth.thread import ThreadAuthenticator

from ddltop.collector.errands import Errands
from ddltop.collector.ingest import Ingest, Intake
from ddltop.collector.snapshot import Snapshot, encode_snapshot
from ddltop.collector.snapshot_builder import SnapshotBuilder
from ddltop.model.window import Window
from ddltop.wire.codec import MAX_FRAME_BYTES, encode
from ddltop.wire.endpoints import RunDir
from ddltop.wire.keyfile import read_keys
from ddltop.wire.messages import Message, SnapshotReply

POLL_MS = 100
TICK_S = 0.25
SUMMARY_S = 1.0
# ZAP: with an empty domain libzmq asks nobody and admits every key.
ZAP_DOMAIN = "ddltop"
AGENTS_GRACE_S = 10.0
VIEWER_GRACE_S = 3.0
VIEWER_LIMIT_S = 3600.0
SILENCE_LIMIT_S = 20.0
LONG_SILENCE_LIMIT_S = 600.0


_Peer = tuple["zmq.Socket[bytes]", bytes]  # a socket of ours and the identity of who is at its other end


class Sink(Protocol):
    """Take what a recording keeps; no call blocks."""

    def put_frame(self, at: float, frame: bytes) -> None:
        """Keep one frame with the time it came."""
        ...

    def put_summary(self, snapshot: Snapshot, completed: Window | None) -> None:
        """Keep the state of the run and the steps completed since the last call; commit."""
        ...

    def close(self) -> None:
        """Write what is left; blocks until it is on disk."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TcpEndpoint:
    """Where agents of other nodes dial in: `tcp://ADDRESS:PORT` and the run's key file."""

    address: str
    key_file: Path


@dataclass(frozen=True, slots=True)
class Launcher:
    """The process that started the run and will say how it ended; `pid` is None when there is none."""

    pid: int | None

    def is_alive(self) -> bool:
        """Tell whether there is one and it lives."""
        if self.pid is None:
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return True

    def is_gone(self) -> bool:
        """Tell whether there was one and it has ended."""
        return self.pid is not None and not self.is_alive()


class Clock:
    """Wall-clock seconds that never jump: read once, then carried by the monotonic clock."""

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def now(self) -> float:
        """Give seconds since the epoch."""
        return self._offset + time.monotonic()


class Collector:
    """Serve one run until it is over and nobody looks any more."""

    def __init__(
        self,
        run_dir: RunDir,
        ingest: Ingest,
        sink: Sink,
        *,
        tcp: TcpEndpoint | None = None,
        launcher_pid: int | None = None,
    ) -> None:
        self._run_dir = run_dir
        self._ingest = ingest
        self._sink = sink
        self._tcp = tcp
        self._launcher = Launcher(launcher_pid)
        self._builder = SnapshotBuilder(ingest)
        self._errands: Errands[_Peer] = Errands()
        self._clock = Clock()
        self._viewed_at = 0.0
        self._finished_at: float | None = None

    def run(self, should_stop: Callable[[], bool], on_finished: Callable[[], None]) -> None:
        """Serve until the end; `on_finished` is called once, when the recording is complete."""
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        sockets, authenticator = self._bind(context)
        try:
            self._serve(sockets, should_stop, on_finished)
        finally:
            if self._finished_at is None:
                self._finish(on_finished)
            if authenticator is not None:
                authenticator.stop()
            for socket in sockets:
                socket.close(500)
            context.term()

    def _bind(
        self, context: zmq.Context[zmq.Socket[bytes]]
    ) -> tuple[list[zmq.Socket[bytes]], ThreadAuthenticator | None]:
        local = _router(context)
        local.bind(self._run_dir.collector_endpoint)
        if self._tcp is None:
            return [local], None
        keys = read_keys(self._tcp.key_file)
        authenticator = ThreadAuthenticator(context)
        authenticator.start()
        client = keys.client_public.encode()
        authenticator.configure_curve_callback(domain=ZAP_DOMAIN, credentials_provider=_Allow(client))
        remote = _router(context)
        remote.zap_domain = ZAP_DOMAIN.encode()
        remote.curve_server = True
        remote.curve_secretkey = keys.server_secret.encode()
        remote.bind(self._tcp.address)
        return [local, remote], authenticator

    def _serve(
        self, sockets: list[zmq.Socket[bytes]], should_stop: Callable[[], bool], on_finished: Callable[[], None]
    ) -> None:
        poller = zmq.Poller()
        for socket in sockets:
            poller.register(socket, zmq.POLLIN)
        started = self._clock.now()
        tick_at = summary_at = started
        while not should_stop():
            for socket, _ in poller.poll(POLL_MS):
                self._receive(socket)
            now = self._clock.now()
            if now >= tick_at:
                tick_at = now + TICK_S
                self._ingest.tick(now)
            if now >= summary_at and self._finished_at is None:
                summary_at = now + SUMMARY_S
                self._sink.put_summary(self._builder.build(now), self._ingest.take_completed())
            if self._finished_at is None and self._is_over(now, started):
                self._finish(on_finished)
            if self._finished_at is not None and not self._is_watched(now):
                return

    def _receive(self, socket: zmq.Socket[bytes]) -> None:
        # A bounded run of frames: ticks and summaries get their turn under a flood.
        for _ in range(1000):
            try:
                parts = socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            if len(parts) != 2:
                continue
            sender, frame = parts
            now = self._clock.now()
            intake = self._ingest.receive(frame, now)
            if intake.is_recordable and self._finished_at is None:
                self._sink.put_frame(now, frame)
            if intake.wants_snapshot:
                self._viewed_at = now
                intake.replies.append(SnapshotReply(snapshot=encode_snapshot(self._builder.build(now))))
            for reply in intake.replies:
                _reply((socket, sender), reply)
            self._run_errands(intake, (socket, sender), now)

    def _run_errands(self, intake: Intake, peer: _Peer, now: float) -> None:
        """Pass on what viewers ask of ranks, and what ranks answer."""
        if intake.agent_of:
            self._errands.meet_agent(intake.agent_of, peer)
        if intake.request is not None:
            self._viewed_at = now
            for receiver, message in self._errands.open(intake.request, peer, self._ingest.roster, now):
                _reply(receiver, message)
        if intake.answer is not None:
            for receiver, message in self._errands.answer(intake.answer):
                _reply(receiver, message)

    def _is_over(self, now: float, started: float) -> bool:
        ingest = self._ingest
        if ingest.is_over:
            # A launcher that still lives will say how its command ended.
            return ingest.exit_code is not None or not self._launcher.is_alive()
        if ingest.ended_at is not None and now - ingest.ended_at > AGENTS_GRACE_S:
            return True
        # Nobody has been heard for long, or for a while and the launcher is gone: a run that was killed.
        heard_at = max([started, *(node.seen_at for node in ingest.roster.nodes.values())])
        limit_s = SILENCE_LIMIT_S if self._launcher.is_gone() else LONG_SILENCE_LIMIT_S
        return not self._launcher.is_alive() and now - heard_at > limit_s

    def _finish(self, on_finished: Callable[[], None]) -> None:
        now = self._clock.now()
        self._finished_at = now
        if self._ingest.ended_at is None and self._ingest.roster.is_over:
            self._ingest.ended_at = now
        self._sink.put_summary(self._builder.build(now), self._ingest.take_completed())
        self._sink.close()
        on_finished()

    def _is_watched(self, now: float) -> bool:
        assert self._finished_at is not None
        return now - self._viewed_at < VIEWER_GRACE_S and now - self._finished_at < VIEWER_LIMIT_S


class _Allow:
    """Admit one client key."""

    def __init__(self, client_public: bytes) -> None:
        self._client_public = client_public

    def callback(self, domain: str, key: bytes) -> bool:
        """Compare `key`, Z85 as pyzmq gives it."""
        del domain
        return key == self._client_public


def _router(context: zmq.Context[zmq.Socket[bytes]]) -> zmq.Socket[bytes]:
    socket = context.socket(zmq.ROUTER)
    for option, value in (
        (zmq.MAXMSGSIZE, MAX_FRAME_BYTES),
        (zmq.RCVHWM, 1000),
        (zmq.SNDHWM, 100),
        (zmq.HANDSHAKE_IVL, 5000),
        (zmq.HEARTBEAT_IVL, 1000),
        (zmq.HEARTBEAT_TIMEOUT, 3000),
        (zmq.BACKLOG, 4096),
    ):
        socket.setsockopt(option, value)
    return socket


def _reply(peer: _Peer, message: Message) -> None:
    socket, receiver = peer
    try:
        socket.send_multipart([receiver, encode(message)], zmq.NOBLOCK)
    except zmq.Again:
        return  # a peer that does not read its replies asks again

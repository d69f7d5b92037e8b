"""The agent's loop: ranks in, sensors in, numbered batches out. One thread polls; sensors have their own."""

import secrets
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import zmq

import ddltop
from ddltop.errors import WireError
from ddltop.wire.codec import MAX_FRAME_BYTES, decode_for_agent, encode
from ddltop.wire.endpoints import RunDir, node_name
from ddltop.wire.keyfile import read_keys
from ddltop.wire.messages import (
    PROTOCOL,
    Ack,
    AgentBye,
    AgentHello,
    NodeSample,
    OnDemandReply,
    OnDemandRequest,
    RankBye,
    RankHello,
    RankSteps,
    Refused,
    ToAgent,
    Welcome,
)

from .launch_collector import launch_collector
from .members import Members
from .outbox import Outbox, Record

BATCH_PERIOD_S = 0.5
SAMPLE_PERIOD_S = 1.0
MEMBER_PERIOD_S = 1.0
FIRST_RANK_LIMIT_S = 120.0
EXIT_LIMIT_S = 10.0
COLLECTOR_GRACE_S = 4.0
MAX_RECORDS_PER_BATCH = 4096
MAX_ANSWERS = 256  # parts of at most 256 KiB on their way to who asked; more are lost, and missed there


class Agent:
    """One node's agent; `run` returns when all its ranks are gone and delivered."""

    def __init__(self, run_dir: RunDir, *, collector: str | None, key_file: Path | None) -> None:
        self._run_dir = run_dir
        self._node = node_name()
        self._collector = collector
        self._key_file = key_file
        self._epoch = secrets.token_hex(8)
        hello = AgentHello(
            protocol=PROTOCOL,
            version=ddltop.__version__,
            run_id=run_dir.run_id,
            node=self._node,
            epoch=self._epoch,
            first_seq=1,
        )
        self._outbox = Outbox(hello)
        self._members = Members()
        self._records: list[Record] = []
        self._samples: deque[NodeSample] = deque(maxlen=60)
        self._requests: deque[OnDemandRequest] = deque(maxlen=16)
        self._answers: deque[OnDemandReply] = deque(maxlen=MAX_ANSWERS)
        self._stop = threading.Event()
        self._has_sampled = False
        self._num_rejected = 0
        self._refused: str | None = None

    def run(self) -> int:
        """Serve until the ranks are gone; give the exit code."""
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        ranks = self._bind_ranks(context)
        requests = self._bind_requests(context)
        uplink = self._connect_collector(context)
        sensors = threading.Thread(target=self._sample, name="ddltop-sensors", daemon=True)
        sensors.start()
        try:
            self._serve(ranks, requests, uplink)
        finally:
            self._stop.set()
            sensors.join(2.0)
            ranks.close(0)
            requests.close(0)
            uplink.close(1000)
            context.term()
        return 0 if self._refused is None else 2

    def _bind_ranks(self, context: zmq.Context[Any]) -> zmq.Socket[bytes]:
        socket: zmq.Socket[bytes] = context.socket(zmq.PULL)
        socket.setsockopt(zmq.MAXMSGSIZE, MAX_FRAME_BYTES)
        socket.setsockopt(zmq.RCVHWM, 1024)
        socket.bind(self._run_dir.agent_endpoint(self._node))
        return socket

    def _bind_requests(self, context: zmq.Context[Any]) -> zmq.Socket[bytes]:
        socket: zmq.Socket[bytes] = context.socket(zmq.PUB)
        socket.bind(self._run_dir.requests_endpoint(self._node))
        return socket

    def _connect_collector(self, context: zmq.Context[Any]) -> zmq.Socket[bytes]:
        socket: zmq.Socket[bytes] = context.socket(zmq.DEALER)
        for option, value in (
            (zmq.IMMEDIATE, 1),
            (zmq.SNDHWM, 64),
            (zmq.MAXMSGSIZE, MAX_FRAME_BYTES),
            (zmq.RECONNECT_IVL, 200),
            (zmq.RECONNECT_IVL_MAX, 5000),
            (zmq.HEARTBEAT_IVL, 1000),
            (zmq.HEARTBEAT_TIMEOUT, 3000),
        ):
            socket.setsockopt(option, value)
        if self._key_file is not None:
            keys = read_keys(self._key_file)
            socket.curve_serverkey = keys.server_public.encode()
            socket.curve_publickey = keys.client_public.encode()
            socket.curve_secretkey = keys.client_secret.encode()
        socket.connect(self._collector or self._run_dir.collector_endpoint)
        return socket

    def _serve(self, ranks: zmq.Socket[bytes], requests: zmq.Socket[bytes], uplink: zmq.Socket[bytes]) -> None:
        poller = zmq.Poller()
        poller.register(ranks, zmq.POLLIN)
        poller.register(uplink, zmq.POLLIN)
        started = time.monotonic()
        batch_at = member_at = started
        alone_since: float | None = None
        collector_at = started + COLLECTOR_GRACE_S
        while True:
            ready = dict(poller.poll(100))
            now = time.monotonic()
            if ranks in ready:
                self._receive_ranks(ranks)
            if uplink in ready:
                self._receive_collector(uplink, now)
            if now >= member_at:
                member_at = now + MEMBER_PERIOD_S
                self._records += self._members.find_lost()
            if now >= batch_at:
                batch_at = now + BATCH_PERIOD_S
                self._make_batch(now)
            self._send_due(uplink, now)
            self._pass_on(requests, uplink)
            if self._outbox.is_welcome:
                collector_at = now + COLLECTOR_GRACE_S
            elif now >= collector_at and self._collector is None:
                collector_at = now + COLLECTOR_GRACE_S
                launch_collector(self._run_dir, self._node)
            alone_since = None if self._is_needed(now - started) else (alone_since or now)
            if alone_since is not None and self._may_end(now - alone_since):
                self._say_goodbye(uplink)
                return
            if self._refused is not None:
                print(f"ddltop agent: {self._refused}", file=sys.stderr)  # noqa: T201
                return

    def _is_needed(self, age_s: float) -> bool:
        if not self._members.has_met_any:
            return age_s < FIRST_RANK_LIMIT_S
        return not self._members.is_empty

    def _may_end(self, alone_s: float) -> bool:
        # A moment of grace: the goodbye of the last rank still has to leave with a batch.
        is_delivered = self._outbox.is_empty and not self._records and not self._answers and self._has_sampled
        return (alone_s > 0.3 and is_delivered) or alone_s > EXIT_LIMIT_S

    def _receive_ranks(self, socket: zmq.Socket[bytes]) -> None:
        for message in self._messages(socket):
            if isinstance(message, RankHello):
                if not self._members.greet(message):
                    continue
            elif isinstance(message, RankBye):
                self._members.leave(message)
            elif isinstance(message, OnDemandReply):
                self._answers.append(message)
                continue
            elif not isinstance(message, RankSteps):
                continue
            self._records.append(message)

    def _receive_collector(self, socket: zmq.Socket[bytes], now: float) -> None:
        for message in self._messages(socket):
            if isinstance(message, Welcome):
                self._outbox.welcome(message, now)
            elif isinstance(message, Ack):
                self._outbox.acknowledge(message, now)
            elif isinstance(message, OnDemandRequest):
                self._requests.append(message)
            elif isinstance(message, Refused):
                self._refused = message.reason

    def _messages(self, socket: zmq.Socket[bytes]) -> Iterator[ToAgent]:
        """Give what has arrived, a bounded run of it so that timers get their turn; malformed frames are counted."""
        for _ in range(256):
            try:
                frame = socket.recv(zmq.NOBLOCK)
            except zmq.Again:
                return
            try:
                yield decode_for_agent(frame)
            except WireError:
                self._num_rejected += 1

    def _make_batch(self, now: float) -> None:
        samples = tuple(self._samples.popleft() for _ in range(len(self._samples)))
        self._has_sampled |= bool(samples)
        if not self._records and not samples:
            return
        taken = self._records[:MAX_RECORDS_PER_BATCH]
        self._records = self._records[MAX_RECORDS_PER_BATCH:]
        self._outbox.put(tuple(taken), samples, now)

    def _send_due(self, socket: zmq.Socket[bytes], now: float) -> None:
        for frame in self._outbox.due(now, self._members.hellos()):
            try:
                socket.send(frame, zmq.NOBLOCK)
            except zmq.Again:
                return

    def _pass_on(self, requests: zmq.Socket[bytes], uplink: zmq.Socket[bytes]) -> None:
        """Give requests to the ranks and answers to the collector, behind what is measured all the time."""
        try:
            while self._requests:
                requests.send(encode(self._requests.popleft()), zmq.NOBLOCK)
            while self._answers:
                uplink.send(encode(self._answers[0]), zmq.NOBLOCK)
                self._answers.popleft()
        except zmq.Again:
            return

    def _say_goodbye(self, socket: zmq.Socket[bytes]) -> None:
        try:
            socket.send(encode(AgentBye(epoch=self._epoch, node=self._node)), zmq.NOBLOCK)
        except zmq.Again:
            return

    def _sample(self) -> None:
        from .sensors import Sensors

        sensors = Sensors()
        # The first at once, without rates: a short run shall show its node too.
        self._samples.append(sensors.sample(self._members.pids))
        while not self._stop.wait(SAMPLE_PERIOD_S):
            self._samples.append(sensors.sample(self._members.pids))

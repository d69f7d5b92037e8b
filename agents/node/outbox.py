"""What the agent still owes the collector: numbered batches kept until they are acknowledged.

ZeroMQ alone lost 300-640 of 1,800 messages in a 6 s partition, mostly unreported; so batches carry sequence
numbers and wait here, at most 10 minutes or 64 MiB of them. Sans-I/O: frames out, acknowledgements in.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from ddltop.wire.codec import encode
from ddltop.wire.messages import Ack, AgentHello, NodeBatch, NodeSample, RankBye, RankHello, RankSteps, Welcome

Record = RankHello | RankSteps | RankBye

HELLO_PERIOD_S = 1.0
RESEND_AFTER_S = 3.0


@dataclass(slots=True)
class _Held:
    seq: int
    frame: bytes
    made_at: float
    is_sent: bool = False


class Outbox:
    """Number, keep, resend and forget the batches of one agent; times are monotonic seconds."""

    def __init__(self, hello: AgentHello, *, max_bytes: int = 64 * 2**20, max_age_s: float = 600.0) -> None:
        self._hello = hello
        self._max_bytes = max_bytes
        self._max_age_s = max_age_s
        self._held: deque[_Held] = deque()
        self._num_bytes = 0
        self._last_seq = 0
        self._is_welcome = False
        self._hello_at = -HELLO_PERIOD_S
        self._progress_at = 0.0
        self.num_lost = 0

    @property
    def epoch(self) -> str:
        """Name of this agent process."""
        return self._hello.epoch

    @property
    def is_welcome(self) -> bool:
        """Tell whether a collector has accepted this agent and keeps answering."""
        return self._is_welcome

    @property
    def is_empty(self) -> bool:
        """Tell whether everything is acknowledged."""
        return not self._held

    def put(self, records: tuple[Record, ...], samples: tuple[NodeSample, ...], now: float) -> None:
        """Make a batch of what was gathered; drop the oldest ones that the limits no longer hold."""
        self._last_seq += 1
        first_seq = self._held[0].seq if self._held else self._last_seq
        batch = NodeBatch(
            epoch=self._hello.epoch,
            node=self._hello.node,
            seq=self._last_seq,
            first_seq=first_seq,
            records=records,
            samples=samples,
        )
        frame = encode(batch)
        if self.is_empty:
            self._progress_at = now
        self._held.append(_Held(self._last_seq, frame, now))
        self._num_bytes += len(frame)
        while len(self._held) > 1 and (
            self._num_bytes > self._max_bytes or now - self._held[0].made_at > self._max_age_s
        ):
            self._num_bytes -= len(self._held.popleft().frame)
            self.num_lost += 1

    def due(self, now: float, ranks: tuple[RankHello, ...]) -> Iterator[bytes]:
        """Give the frames to send now; a frame counts as sent once the caller asks for the next.

        `ranks` are present on this node; a greeting names them to the collector.
        """
        if self._is_welcome and self._held and now - self._progress_at > RESEND_AFTER_S:
            self._is_welcome = False
        if not self._is_welcome:
            if now - self._hello_at >= HELLO_PERIOD_S:
                self._hello_at = now
                first_seq = self._held[0].seq if self._held else self._last_seq + 1
                yield encode(msgspec.structs.replace(self._hello, first_seq=first_seq, ranks=ranks))
            return
        for held in self._held:
            if not held.is_sent:
                yield held.frame
                held.is_sent = True

    def welcome(self, message: Welcome, now: float) -> None:
        """Start, or start again, after what the collector has already."""
        self._is_welcome = True
        self._progress_at = now
        self._forget_before(message.next_seq)
        for held in self._held:
            held.is_sent = False

    def acknowledge(self, message: Ack, now: float) -> None:
        """Forget what has arrived."""
        if message.epoch == self._hello.epoch:
            self._progress_at = now
            self._forget_before(message.seq + 1)

    def _forget_before(self, seq: int) -> None:
        while self._held and self._held[0].seq < seq:
            self._num_bytes -= len(self._held.popleft().frame)

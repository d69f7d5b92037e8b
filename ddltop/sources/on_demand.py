"""Ask the ranks of a live run for their stacks or a profile, and gather what they answer."""

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import zmq

from ddltop.errors import NoRunError
from ddltop.sources.live import connect
from ddltop.wire.codec import decode_for_viewer, encode
from ddltop.wire.messages import OnDemandAccepted, OnDemandReply, OnDemandRequest, Refused

ACCEPTANCE_LIMIT_S = 5.0


@dataclass(slots=True)
class Answer:
    """What one rank answers: `content`, or `error` when there is none."""

    rank: int
    node: str = ""
    content: bytes = b""
    error: str = ""
    parts: dict[int, bytes] = field(default_factory=dict)
    is_complete: bool = False

    @property
    def label(self) -> str:
        """Name the rank as the screen does: r3@node1."""
        return f"r{self.rank}@{self.node}" if self.node else f"r{self.rank}"

    def take(self, reply: OnDemandReply) -> None:
        """Take one part."""
        self.node = reply.node
        if reply.error:
            self.error, self.is_complete = reply.error, True
            return
        self.parts[reply.part] = reply.payload
        if len(self.parts) == reply.num_parts:
            self.content, self.is_complete = b"".join(self.parts[i] for i in sorted(self.parts)), True
            self.parts = {}


def ask(
    endpoint: str,
    key_file: Path | None,
    *,
    kind: str,
    ranks: tuple[int, ...],
    num_steps: int = 0,
    limit_s: float,
    on_answer: Callable[[Answer], None],
) -> list[Answer]:
    """Ask and wait, at most `limit_s` seconds from one sign of life to the next; give an answer per rank, in order.

    `on_answer` is told of each as it completes. Raises NoRunError when the collector is silent or refuses.
    """
    request = OnDemandRequest(id=secrets.token_hex(8), kind=kind, ranks=ranks, num_steps=num_steps)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    socket = connect(context, endpoint, key_file)
    try:
        socket.send(encode(request))
        answers = {rank: Answer(rank) for rank in _accepted(socket, request.id)}
        deadline = time.monotonic() + limit_s
        while not all(answer.is_complete for answer in answers.values()):
            if not socket.poll(int(max(0.0, deadline - time.monotonic()) * 1000)):
                break
            message = decode_for_viewer(socket.recv())
            if isinstance(message, OnDemandReply) and message.id == request.id and message.rank in answers:
                deadline = time.monotonic() + limit_s
                answers[message.rank].take(message)
                if answers[message.rank].is_complete:
                    on_answer(answers[message.rank])
    finally:
        socket.close(0)
        context.term()
    for answer in answers.values():
        if not answer.is_complete:
            got = f"{len(answer.parts)} parts of it came and no more" if answer.parts else "it does not answer"
            answer.error = f"{got} within {limit_s:.0f} s"
    return [answers[rank] for rank in sorted(answers)]


def _accepted(socket: "zmq.Socket[bytes]", request_id: str) -> tuple[int, ...]:
    deadline = time.monotonic() + ACCEPTANCE_LIMIT_S
    while socket.poll(int(max(0.0, deadline - time.monotonic()) * 1000)):
        message = decode_for_viewer(socket.recv())
        if isinstance(message, OnDemandAccepted) and message.id == request_id:
            return message.ranks
        if isinstance(message, Refused):
            raise NoRunError(f"the collector refuses: {message.reason}", "ddltop --once shows the ranks that run")
    raise NoRunError("the collector does not answer", "run ddltop doctor")

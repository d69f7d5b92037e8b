"""The probe's sender: bounded whatever the agent does, and what it drops is counted."""

from pathlib import Path
from typing import Any

import zmq
from ddltop_agents.rank import sender as sender_module
from ddltop_agents.rank.assembly import StepAssembler
from ddltop_agents.rank.sender import MAX_UNSENT, Sender
from ddltop_agents.rank.stream import STREAM_LENGTH, Stream, Tag

from ddltop.wire.codec import decode_for_agent
from ddltop.wire.messages import RankHello, RankSteps
from tests.unit.test_assembly import Loop, plain_step


class Socket:
    """A socket that takes frames, or not."""

    def __init__(self) -> None:
        self.is_open = False
        self.frames: list[bytes] = []

    def send(self, frame: bytes, _flags: int) -> None:
        if not self.is_open:
            raise zmq.Again
        self.frames.append(frame)


def make_sender(monkeypatch: Any, stream: Stream) -> Sender:
    monkeypatch.setattr(sender_module, "launch_agent", lambda *_: None)
    hello = RankHello(run_id="r", epoch="e", rank=0, local_rank=0, world_size=2, pid=1, node="n")
    assembler = StepAssembler(is_host_clock=True, has_peers=True)
    return Sender(stream, assembler, hello, Path("/nonexistent"))


def feed(stream: Stream, num_steps: int) -> None:
    loop = Loop()
    for _ in range(num_steps):
        plain_step(loop)
    stream.stamps.extend(loop.stamps)
    stream.num_recorded += len(loop.stamps)


def steps_in(frames: list[bytes]) -> tuple[int, int]:
    """Count the steps in all frames, and give the last figure of dropped ones."""
    messages = [message for message in map(decode_for_agent, frames) if isinstance(message, RankSteps)]
    return sum(len(message.steps) // 4 for message in messages), messages[-1].dropped


def test_an_absent_agent_costs_nothing_but_the_oldest_steps_and_they_are_counted(monkeypatch: Any) -> None:
    stream, socket = Stream(), Socket()
    sender = make_sender(monkeypatch, stream)
    for _ in range(MAX_UNSENT + 50):
        feed(stream, 1)
        sender._gather_stream()
        sender._flush(socket, 0.0)
    assert len(sender._unsent) <= MAX_UNSENT
    socket.is_open = True
    for _ in range(2):  # a batch tells what was dropped before it was made
        feed(stream, 1)
        sender._gather_stream()
        sender._flush(socket, 1.0)
    num_steps, dropped = steps_in(socket.frames)
    assert dropped > 0
    assert num_steps + dropped == MAX_UNSENT + 51  # the step that is still open is not counted


def test_a_stream_that_overflows_is_counted_in_steps(monkeypatch: Any) -> None:
    stream, socket = Stream(), Socket()
    socket.is_open = True
    sender = make_sender(monkeypatch, stream)
    loop = Loop()
    plain_step(loop)
    num_steps = 2 * STREAM_LENGTH // len(loop.stamps)
    feed(stream, num_steps)
    sender._gather_stream()
    sender._flush(socket, 0.0)
    seen, dropped = steps_in(socket.frames)
    assert abs(seen + dropped - num_steps) < 0.02 * num_steps


def test_stamps_of_other_threads_and_of_processes_that_do_not_train_are_not_kept() -> None:
    stream = Stream()
    stream.record(Tag.IO_BEGIN)
    assert not stream.stamps
    stream.training_thread = -1
    stream.record(Tag.IO_BEGIN)
    assert not stream.stamps

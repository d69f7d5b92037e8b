"""The one thread of the probe: turns stamps into batches and gives them to the node's agent.

Lossy on purpose and bounded: what no agent takes waits in `_unsent`, the oldest is dropped and counted.
The training thread never meets this code.
"""

import sys
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any

from ddltop.wire.codec import encode
from ddltop.wire.endpoints import RunDir
from ddltop.wire.messages import RankBye, RankHello

from .assembly import StepAssembler, StepMeasure
from .columns import pack_steps
from .launch import launch_agent
from .stamps import Stream

# Below 0.2 s the thread's wake-ups cost the training loop 1.6-4.4 % (2 cores, torch 2.13).
PERIOD_S = 0.25
HELLO_PERIOD_S = 5.0
MAX_UNSENT = 2400  # batches: 10 minutes of an absent agent, about 5 MB
AGENT_GRACE_S = 5.0  # an agent needs about 1 s to start here
MAX_AGENT_LAUNCHES = 20
EXIT_LIMIT_S = 0.5
# A training shorter than its agent's start would leave nothing behind: then, and only then, exit waits for it.
FIRST_CONTACT_LIMIT_S = 2.5


class Sender:
    """Own the socket to the agent and the thread that feeds it."""

    def __init__(self, stream: Stream, assembler: StepAssembler, hello: RankHello, run_dir: Path) -> None:
        self._stream = stream
        self._assembler = assembler
        self._hello = hello
        self._run_dir = RunDir(run_dir)
        self._stop = threading.Event()
        self._unsent: deque[tuple[int, bytes]] = deque()  # (steps in it, frame)
        self._seq = 0
        self._num_consumed = 0
        self._num_dropped_steps = 0
        self._num_lost_stamps = 0
        self._num_steps = 0
        self._num_launches = 0
        self._has_contact = False
        self._refused_since: float | None = None
        self._cpu_begin_ns = 0
        self._wall_minus_perf_ns = time.time_ns() - time.perf_counter_ns()
        self._thread = threading.Thread(target=self._run, name="ddltop-sender", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Send what is left and end; waits at most 0.5 s, 2.5 s when no agent has answered yet."""
        self._stop.set()
        self._thread.join(EXIT_LIMIT_S if self._has_contact else FIRST_CONTACT_LIMIT_S + EXIT_LIMIT_S)

    def _run(self) -> None:
        try:
            self._send_until_stopped()
        except Exception as error:  # noqa: BLE001
            # The fence: training goes on, unobserved, after one line that says so.
            self._stream.training_thread = None
            print(f"ddltop: rank {self._hello.rank} is no longer measured: {error!r}", file=sys.stderr)  # noqa: T201

    def _send_until_stopped(self) -> None:
        import zmq

        context: zmq.Context[Any] = zmq.Context(io_threads=1)
        socket = context.socket(zmq.PUSH)
        # IMMEDIATE: nothing queues for an absent agent, so what is not taken stays in our own bounded queue.
        for option, value in ((zmq.LINGER, 200), (zmq.IMMEDIATE, 1), (zmq.SNDHWM, 64)):
            socket.setsockopt(option, value)
        socket.setsockopt(zmq.RECONNECT_IVL, 200)
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, 2000)
        socket.connect(self._run_dir.agent_endpoint(self._hello.node))
        hello_at = 0.0
        self._cpu_begin_ns = time.thread_time_ns()
        while not self._stop.is_set():
            now = time.monotonic()
            if now >= hello_at and self._offer(socket, encode(self._hello)):
                hello_at = now + HELLO_PERIOD_S
            self._gather(self._drain_stream())
            self._flush(socket, now)
            self._stop.wait(PERIOD_S)
        self._gather(self._drain_stream() + list(self._assembler.finish()))
        self._unsent.append((0, encode(RankBye(epoch=self._hello.epoch, rank=self._hello.rank))))
        deadline = time.monotonic() + (0.0 if self._has_contact else FIRST_CONTACT_LIMIT_S)
        self._flush(socket, time.monotonic())
        while self._unsent and time.monotonic() < deadline:
            time.sleep(0.02)
            if self._has_contact or self._offer(socket, encode(self._hello)):
                self._flush(socket, time.monotonic())
        socket.close()
        context.term()

    def _drain_stream(self) -> list[StepMeasure]:
        stamps = self._stream.stamps
        taken = [stamps.popleft() for _ in range(len(stamps))]
        self._num_consumed += len(taken)
        self._num_lost_stamps = max(self._num_lost_stamps, self._stream.num_recorded - self._num_consumed - len(stamps))
        return list(self._assembler.feed(taken))

    def _gather(self, measures: list[StepMeasure]) -> None:
        if not measures:
            return
        self._seq += 1
        self._num_steps += len(measures)
        frame = encode(
            pack_steps(
                measures,
                epoch=self._hello.epoch,
                rank=self._hello.rank,
                seq=self._seq,
                wall_minus_perf_ns=self._wall_minus_perf_ns,
                dropped=self._dropped_steps(),
                overhead_us=self._overhead_us(),
            )
        )
        self._unsent.append((len(measures), frame))
        while len(self._unsent) > MAX_UNSENT:
            self._num_dropped_steps += self._unsent.popleft()[0]

    def _dropped_steps(self) -> int:
        """Count steps lost in our own queue, and those whose stamps the stream dropped before they were read."""
        stamps_per_step = max(1.0, self._num_consumed / max(1, self._num_steps))
        return self._num_dropped_steps + round(self._num_lost_stamps / stamps_per_step)

    def _overhead_us(self) -> float:
        """Our own time per step: stamps and hook on the training thread, plus this thread's CPU, microseconds."""
        return (self._stream.cost_ns + time.thread_time_ns() - self._cpu_begin_ns) / 1e3 / max(1, self._num_steps)

    def _flush(self, socket: Any, now: float) -> None:
        while self._unsent and self._offer(socket, self._unsent[0][1]):
            self._unsent.popleft()
        if not self._unsent:
            self._refused_since = None
        elif self._refused_since is None or now - self._refused_since > AGENT_GRACE_S:
            self._refused_since = now
            self._launch_agent()

    def _offer(self, socket: Any, frame: bytes) -> bool:
        import zmq

        try:
            socket.send(frame, zmq.NOBLOCK)
        except zmq.Again:
            return False
        self._has_contact = True
        return True

    def _launch_agent(self) -> None:
        """Start the node's agent; of all ranks that try, the agent's own lock lets one live."""
        if self._num_launches < MAX_AGENT_LAUNCHES:
            self._num_launches += 1
            launch_agent(self._run_dir, self._hello.node)

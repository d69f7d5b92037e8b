"""The one thread of the probe: turns stamps into batches and gives them to the node's agent.

Lossy on purpose and bounded: what no agent takes waits in `_unsent`, the oldest is dropped and counted.
The training thread never meets this code.
"""

import sys
import threading
import time
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from ddltop.errors import WireError
from ddltop.wire.codec import encode
from ddltop.wire.endpoints import RunDir
from ddltop.wire.messages import RankBye, RankHello, StepFlag

from .assembly import StepAssembler, StepMeasure
from .columns import pack_steps
from .facts import reasons_unmeasured
from .launch import launch_agent
from .on_demand import OnDemand
from .stream import Stamp, Stream, Tag

# Below 0.2 s the thread's wake-ups cost the training loop 1.6-4.4 % (2 cores, torch 2.13).
PERIOD_S = 0.25
HELLO_PERIOD_S = 5.0
MAX_UNSENT = 2400  # batches: 10 minutes of an absent agent, about 5 MB
AGENT_GRACE_S = 5.0  # an agent needs about 1 s to start here
MAX_AGENT_LAUNCHES = 20
# What was asked for on demand goes out at 4 MiB/s at most, behind the steps.
MAX_ANSWERS_PER_PASS = 4
EXIT_LIMIT_S = 0.5
MAX_REQUEST_BYTES = 1 << 20  # names of 65,536 ranks
# A training shorter than its agent's start would leave nothing behind: then, and only then, exit waits for it.
FIRST_CONTACT_LIMIT_S = 2.5
_NO_COMM = "this script's communication does not pass through torch.distributed: mark it with ddltop.phase('comm')"
_INFERRED = {
    StepFlag.INFERRED_IO: ("t_io", "inferred: no DataLoader, so what lies between update and forward counts as input"),
    StepFlag.INFERRED_FORWARD: (
        "t_f",
        "inferred: the model is not wrapped, so what leads up to backward counts as forward",
    ),
}


class Sender:
    """Own the socket to the agent and the thread that feeds it."""

    def __init__(self, stream: Stream, assembler: StepAssembler, hello: RankHello, run_dir: Path) -> None:
        self._stream = stream
        self._run_dir = RunDir(run_dir)
        self._stop = threading.Event()
        self._on_demand = OnDemand(stream)
        self._unsent: deque[tuple[int, bytes]] = deque()  # (steps in it, frame)
        self._num_launches = 0
        self._has_contact = False
        self._refused_since: float | None = None
        self._cpu_begin_ns = 0
        self._num_consumed = 0  # stamps
        self._num_lost_stamps = 0
        self._num_steps_ever = 0
        self._wall_minus_perf_ns = time.time_ns() - time.perf_counter_ns()
        self._thread = threading.Thread(target=self._run, name="ddltop-sender", daemon=True)
        self._begin_session(hello, assembler)

    def _begin_session(self, hello: RankHello, assembler: StepAssembler) -> None:
        self._hello = hello
        self._assembler = assembler
        self._told: RankHello | None = None  # what the agent has been told
        self._flags = 0  # of all steps so far
        self._saw_comm = False
        self._seq = 0
        self._num_steps = 0
        self._num_dropped_steps = 0
        self._num_lost_before = self._num_lost_stamps
        self._cost_before_ns = self._stream.cost_ns + (time.thread_time_ns() - self._cpu_begin_ns)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def describe(self, hello: RankHello) -> None:
        """Tell the agent changed facts of the same session."""
        self._hello = hello

    def restart(self, hello: RankHello, assembler: StepAssembler) -> None:
        """Measure as another session from the next stamp on: the process has become another rank."""
        self._stream.record_session((hello, assembler))

    def stop(self) -> None:
        """Send what is left and end; waits at most 0.5 s, 2.5 s when no agent has answered yet."""
        self._on_demand.end_training()
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
        requests = self._listen(context)
        hello_at = 0.0
        self._cpu_begin_ns = time.thread_time_ns()
        self._cost_before_ns = self._stream.cost_ns
        while not self._stop.is_set():
            now = time.monotonic()
            self._gather_stream()
            hello = self._present_hello()
            if (now >= hello_at or hello != self._told) and self._offer(socket, encode(hello)):
                hello_at, self._told = now + HELLO_PERIOD_S, hello
            self._flush(socket, now)
            self._serve_requests(requests, socket)
            self._stop.wait(PERIOD_S)
        self._on_demand.close(self._hello)
        self._gather_stream()
        self._end_session()
        deadline = time.monotonic() + (0.0 if self._has_contact else FIRST_CONTACT_LIMIT_S)
        self._flush(socket, time.monotonic())
        while self._unsent and time.monotonic() < deadline:
            time.sleep(0.02)
            if self._has_contact or self._offer(socket, encode(self._present_hello())):
                self._flush(socket, time.monotonic())
        self._send_answers(socket, len(self._on_demand.answers))
        requests.close(0)
        socket.close()
        context.term()

    def _listen(self, context: Any) -> Any:
        import zmq

        requests = context.socket(zmq.SUB)
        for option, value in ((zmq.LINGER, 0), (zmq.RCVHWM, 16), (zmq.MAXMSGSIZE, MAX_REQUEST_BYTES)):
            requests.setsockopt(option, value)
        requests.setsockopt(zmq.RECONNECT_IVL, 500)
        requests.setsockopt(zmq.RECONNECT_IVL_MAX, 5000)
        requests.setsockopt(zmq.SUBSCRIBE, b"")
        requests.connect(self._run_dir.requests_endpoint(self._hello.node))
        return requests

    def _serve_requests(self, requests: Any, socket: Any) -> None:
        """Take what a viewer asks for and send what is ready; whatever goes wrong ends the request alone."""
        import zmq

        try:
            while True:
                self._on_demand.take(requests.recv(zmq.NOBLOCK), self._hello)
        except zmq.Again:
            pass
        except WireError:
            pass  # not a request of this version: whoever asked will miss the answer
        self._on_demand.look(self._hello)
        self._send_answers(socket, MAX_ANSWERS_PER_PASS)

    def _send_answers(self, socket: Any, count: int) -> None:
        answers = self._on_demand.answers
        while count > 0 and answers and self._offer(socket, answers[0]):
            answers.popleft()
            count -= 1

    def _present_hello(self) -> RankHello:
        """Give this rank's facts with all that has been found out while measuring."""
        notes = dict(text for flag, text in _INFERRED.items() if self._flags & flag)
        if self._stream.sampler.note:
            notes["detail"] = self._stream.sampler.note
        unmeasured = reasons_unmeasured(
            self._hello, has_clock=self._stream.clock is not None, failures=self._stream.failures
        )
        if self._hello.strategy == "none" and self._hello.world_size > 1 and not self._saw_comm:
            unmeasured |= dict.fromkeys(("t_c", "t_c_no"), _NO_COMM)
        return msgspec.structs.replace(self._hello, notes=notes, unmeasured=unmeasured)

    def _gather_stream(self) -> None:
        """Turn the stamps that are there into batches; a change of session parts them."""
        stamps = self._stream.stamps
        taken = [stamps.popleft() for _ in range(len(stamps))]
        while taken:
            change = next((i for i, stamp in enumerate(taken) if stamp.tag == Tag.SESSION), len(taken))
            self._gather(self._measure(taken[:change]))
            if change == len(taken):
                return
            self._num_consumed += 1
            self._end_session()
            self._begin_session(*taken[change].payload)
            self._unsent.append((0, encode(self._present_hello())))
            taken = taken[change + 1 :]

    def _end_session(self) -> None:
        self._gather(list(self._assembler.finish()))
        self._unsent.append((0, encode(RankBye(epoch=self._hello.epoch, rank=self._hello.rank))))

    def _measure(self, taken: Iterable[Stamp]) -> list[StepMeasure]:
        taken = tuple(taken)
        self._num_consumed += len(taken)
        lost = self._stream.num_recorded - self._num_consumed - len(self._stream.stamps)
        self._num_lost_stamps = max(self._num_lost_stamps, lost)
        return list(self._assembler.feed(taken))

    def _gather(self, measures: list[StepMeasure]) -> None:
        if not measures:
            return
        self._seq += 1
        self._num_steps += len(measures)
        self._num_steps_ever += len(measures)
        for measure in measures:
            self._flags |= measure.flags
            self._saw_comm |= measure.t_c_no == measure.t_c_no
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
        stamps_per_step = max(1.0, self._num_consumed / max(1, self._num_steps_ever))
        return self._num_dropped_steps + round((self._num_lost_stamps - self._num_lost_before) / stamps_per_step)

    def _overhead_us(self) -> float:
        """Our own time per step: stamps and hook on the training thread, plus this thread's CPU, microseconds."""
        cost_ns = self._stream.cost_ns + time.thread_time_ns() - self._cpu_begin_ns - self._cost_before_ns
        return cost_ns / 1e3 / max(1, self._num_steps)

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

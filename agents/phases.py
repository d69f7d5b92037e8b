"""The open interface: a loop of any framework names its phases and steps itself.

    with ddltop.phase("forward"):
        loss = step_function(batch)
    ddltop.step(num_samples=len(batch))

Needs no torch. A step goes from one `step()` to the next; what no phase covers is rest.
"""

import sys
from contextlib import ContextDecorator
from typing import Any

from ddltop.wire.phases import Phase

from .rank import probe
from .rank.stream import BatchSize, Tag, act_at_step_end, fenced, stream

_PHASES = {
    "input": Phase.T_IO,
    "h2d": Phase.T_H2D,
    "forward": Phase.T_F,
    "backward": Phase.T_B,
    "comm": Phase.T_C,
    "update": Phase.T_U,
    "rest": Phase.REST,
}
_KNOWN = _PHASES | {str(phase): phase for phase in _PHASES.values()}


class phase(ContextDecorator):  # noqa: N801
    """Count a block as one phase of the step: input, h2d, forward, backward, comm, update or rest.

    Phases may nest; the inner one counts. On an accelerator the block must wait for the device itself (JAX:
    `block_until_ready`), or it measures the launch alone. An unknown name measures nothing and is told once on
    stderr: a training is never stopped.
    """

    def __init__(self, name: str) -> None:
        self._phase = _KNOWN.get(name)
        if self._phase is None:
            _complain(name)

    def __enter__(self) -> None:
        if self._phase is not None:
            _begin(self._phase)

    def __exit__(self, *_error: Any) -> None:
        if self._phase is not None:
            _end(self._phase)


def step(num_samples: int | None = None, num_tokens: int | None = None) -> None:
    """End a step of this rank: call it once per optimizer step, at the end of the loop's body.

    `num_samples` and `num_tokens`: what this rank has trained on in the step. From the first call on, steps end
    here and nowhere else.
    """
    probe.on_manual_step()
    _step(BatchSize(num_samples, num_tokens))
    if stream.at_step_end is not None:
        act_at_step_end()


@fenced("phase")
def _begin(named: Phase) -> None:
    stream.record(Tag.PHASE_BEGIN, named)


@fenced("phase")
def _end(named: Phase) -> None:
    stream.record(Tag.PHASE_END, named)


@fenced("phase")
def _step(size: BatchSize) -> None:
    stream.record_step(size)


_complained: set[str] = set()


def _complain(name: str) -> None:
    if name not in _complained and len(_complained) < 8:
        _complained.add(name)
        names = ", ".join(_PHASES)
        print(f"ddltop: no phase is called {name!r}; there are {names}", file=sys.stderr)  # noqa: T201

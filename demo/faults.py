"""Faults that can be put into the demo training: a delay in one phase, on one rank or all."""

import time
from argparse import ArgumentTypeError
from dataclasses import dataclass
from multiprocessing.sharedctypes import RawValue
from typing import Any

import torch
from torch import Tensor, nn

KINDS = ("loader-delay", "forward-delay", "backward-delay")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Sleep `seconds` in the phase `kind` on `rank` (None: all), each `every` steps from `first` to before `last`."""

    kind: str
    rank: int | None
    seconds: float
    first: int = 0
    last: int | None = None
    every: int = 1

    def strikes(self, rank: int, step: int) -> bool:
        """Tell whether it delays this step of this rank."""
        is_here = self.rank is None or self.rank == rank
        is_now = step >= self.first and (self.last is None or step < self.last)
        return is_here and is_now and step % self.every == 0


def parse_fault(text: str) -> Fault:
    """Parse KIND:rank=R,ms=T[,from=S][,to=S][,every=K]; raise ArgumentTypeError that says what is allowed."""
    kind, _, rest = text.partition(":")
    usage = (
        f"{text!r} is no fault; write KIND:rank=R,ms=T[,from=STEP][,to=STEP][,every=K], KIND one of {', '.join(KINDS)}"
    )
    options = dict(part.partition("=")[::2] for part in rest.split(",") if part)
    if kind not in KINDS or not options.keys() <= {"rank", "ms", "from", "to", "every"}:
        raise ArgumentTypeError(usage)
    try:
        fault = Fault(
            kind=kind,
            rank=None if options["rank"] == "all" else int(options["rank"]),
            seconds=float(options["ms"]) / 1e3,
            first=int(options.get("from", 0)),
            last=int(options["to"]) if "to" in options else None,
            every=int(options.get("every", 1)),
        )
    except (KeyError, ValueError) as error:
        raise ArgumentTypeError(usage) from error
    if not is_sound(fault):
        raise ArgumentTypeError(usage)
    return fault


def is_sound(fault: Fault) -> bool:
    """Tell whether the numbers of a fault allow it to strike."""
    is_somewhere = fault.rank is None or fault.rank >= 0
    is_sometime = fault.first >= 0 and (fault.last is None or fault.first < fault.last) and fault.every >= 1
    return is_somewhere and is_sometime and 0 <= fault.seconds < 3600


class Faults:
    """The faults of this rank; `step` is set by the training loop, and read by its loader's workers too."""

    def __init__(self, faults: list[Fault], rank: int) -> None:
        self._faults = faults
        self._rank = rank
        # Shared memory: a DataLoader worker is a fork, and would otherwise stay at the step of its birth.
        self._step = RawValue("q", 0)

    @property
    def step(self) -> int:
        """The step that the training loop is in."""
        return int(self._step.value)

    @step.setter
    def step(self, step: int) -> None:
        self._step.value = step

    def strike(self, kind: str) -> None:
        """Sleep as long as the faults of this kind want it in this step."""
        seconds = sum(f.seconds for f in self._faults if f.kind == kind and f.strikes(self._rank, self.step))
        if seconds:
            time.sleep(seconds)


class _DelayBackward(torch.autograd.Function):
    """Identity whose backward sleeps first."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, faults: Faults) -> Tensor:
        """Pass the value on."""
        ctx.faults = faults
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Sleep, then pass the gradient on."""
        ctx.faults.strike("backward-delay")
        return gradients[0], None


def inject(model: nn.Module, faults: Faults) -> None:
    """Delay the passes of a model; backward before its first gradient, so that all buckets are late."""
    model.register_forward_pre_hook(lambda _module, _args: faults.strike("forward-delay"))
    model.register_forward_hook(lambda _module, _args, output: _DelayBackward.apply(output, faults))

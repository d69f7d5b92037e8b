"""What one step spent on what: the accounts that reading.py fills."""

from dataclasses import dataclass, field
from enum import IntEnum
from math import nan

from .stream import BucketStamp


class Part(IntEnum):
    """What is going on in a step."""

    REST = 0
    HEAD = 1  # between an update and whatever comes next, in a loop without a DataLoader
    LOADED = 2  # a batch is there, forward has not begun
    IO = 3
    H2D = 4
    FORWARD = 5
    LOSS = 6  # between forward and backward
    BACKWARD = 7
    TAIL = 8  # all gradients are computed, backward() has not returned
    UPDATE = 9
    COLLECTIVE = 10
    EVALUATION = 11
    ASIDE = 12


@dataclass(slots=True)
class Ledger:
    """What one step spent on what, nanoseconds."""

    spent: dict[Part, int] = field(default_factory=lambda: dict.fromkeys(Part, 0))
    num_samples: int = 0
    num_tokens: int = 0
    num_micro_steps: int = 0
    flags: int = 0
    updated: bool = False
    is_coarse: bool = False
    is_io_known: bool = True
    is_backward_known: bool = True
    is_comm_known: bool = True  # no bucket or asynchronous call without an end
    has_untimed_buckets: bool = False
    saw_loader: bool = False
    backward_start_ns: int | None = None
    computed_ns: int | None = None
    comm: list[tuple[int, int]] = field(default_factory=list)
    buckets: list[BucketStamp] = field(default_factory=list)
    collectives: dict[tuple[int, int], tuple[int, int, int]] = field(default_factory=dict)  # calls, bytes, exposed

    @property
    def io(self) -> int:
        """Waiting for the next batch."""
        return self.spent[Part.IO]

    @property
    def h2d(self) -> int:
        """Moving the batch to the device."""
        return self.spent[Part.H2D]

    @property
    def forward(self) -> int:
        """Forward and loss."""
        return self.spent[Part.FORWARD]

    @property
    def backward(self) -> int:
        """Backward computation without any wait for others."""
        return self.spent[Part.BACKWARD]

    @property
    def update(self) -> int:
        """The optimizer, without what its closure or its collectives did."""
        return self.spent[Part.UPDATE]

    def communication(self, *, has_peers: bool, is_host_clock: bool) -> tuple[float, float]:
        """Give (t_c, t_c_no), nanoseconds; NaN is not measured."""
        if not has_peers:
            return 0.0, 0.0
        if not self.is_comm_known or not self.is_backward_known:
            return nan, nan
        # On a device the calls beside the buckets run on streams of their own: only the waits for them are seen.
        is_all_seen = not self.has_untimed_buckets and (is_host_clock or not self.collectives)
        return (float(covered_ns(self.comm)) if is_all_seen else nan), float(self.spent[Part.COLLECTIVE])


def covered_ns(intervals: list[tuple[int, int]]) -> int:
    """Length of the union: gloo runs two all-reduces at once, so a sum would count time twice."""
    covered, reach = 0, -1
    for begin, end in sorted(intervals):
        if end > reach:
            covered += end - max(begin, reach)
            reach = end
    return covered

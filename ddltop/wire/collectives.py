"""What ranks say to each other besides DDP's buckets, and where in a step; codes are positions, never reordered."""

from enum import StrEnum


class CollectiveKind(StrEnum):
    """A call of torch.distributed."""

    ALL_REDUCE = "all_reduce"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    BROADCAST = "broadcast"
    REDUCE = "reduce"
    GATHER = "gather"
    SCATTER = "scatter"
    ALL_TO_ALL = "all_to_all"
    BARRIER = "barrier"
    SEND_RECV = "send_recv"
    OTHER = "other"


class CollectivePlace(StrEnum):
    """The part of a step that made the call."""

    FORWARD = "forward"
    BACKWARD = "backward"
    UPDATE = "update"
    BETWEEN = "between"  # metrics, gradient norms, barriers of the loop itself


COLLECTIVE_KINDS: tuple[CollectiveKind, ...] = tuple(CollectiveKind)
COLLECTIVE_PLACES: tuple[CollectivePlace, ...] = tuple(CollectivePlace)

DTYPES: tuple[str, ...] = ("", "float32", "float16", "bfloat16", "float64", "float8_e4m3fn", "float8_e5m2")
"""Element types of buckets by code; the empty one is any other."""

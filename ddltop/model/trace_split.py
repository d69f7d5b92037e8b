"""Split a torch.profiler trace of one rank into computing, communication and idle, down to the kernels.

On an accelerator the device's own events count (kernels, copies); on a CPU the operators of all threads. Times are
seconds; the trace is in the Chrome format, microseconds.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

_DEVICE_CATEGORIES = frozenset(("kernel", "gpu_memcpy", "gpu_memset"))
_HOST_CATEGORIES = frozenset(("cpu_op", "user_annotation"))
_COMMUNICATION = ("nccl", "gloo:", "c10d::", "mpi:", "ucc:", "rccl")
_ANNOTATION = "user_annotation"

Interval = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A kernel, or an operator on a CPU, by name; `seconds` is its own time, without what it calls."""

    name: str
    calls: int
    seconds: float
    is_communication: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSplit:
    """Where the time of a trace went; the four parts sum to `span`."""

    clock: str  # "device" or "host"
    span: float
    compute: float  # computing alone
    overlap: float  # computing and communicating at once
    communication: float  # communicating alone: exposed
    idle: float
    operations: tuple[Operation, ...]  # longest first


@dataclass(frozen=True, slots=True)
class _Event:
    name: str
    begin: float
    end: float
    lane: tuple[Any, Any]
    is_communication: bool


def split_trace(events: Iterable[dict[str, Any]]) -> TraceSplit:
    """Split the `traceEvents` of one rank; raise ValueError when nothing in it ran."""
    complete = [event for event in events if event.get("ph") == "X" and "ts" in event and "dur" in event]
    device = [_event(event) for event in complete if event.get("cat") in _DEVICE_CATEGORIES]
    chosen = device or [event for raw in complete if (event := _host_event(raw)) is not None]
    if not chosen:
        raise ValueError("the trace holds no kernel and no operator")
    computing = _union((e.begin, e.end) for e in chosen if not e.is_communication)
    communicating = _union((e.begin, e.end) for e in chosen if e.is_communication)
    busy = _length(_union([*computing, *communicating]))
    span = max(e.end for e in chosen) - min(e.begin for e in chosen)
    overlap = _length(computing) + _length(communicating) - busy
    return TraceSplit(
        clock="device" if device else "host",
        span=span,
        compute=_length(computing) - overlap,
        overlap=overlap,
        communication=_length(communicating) - overlap,
        idle=span - busy,
        operations=_operations(chosen),
    )


def _host_event(raw: dict[str, Any]) -> _Event | None:
    """Take operators, and of the annotations those of a communication backend."""
    category = raw.get("cat")
    if category not in _HOST_CATEGORIES:
        return None
    event = _event(raw)
    return event if category != _ANNOTATION or event.is_communication else None


def _event(raw: dict[str, Any]) -> _Event:
    name = str(raw.get("name", ""))
    begin = float(raw["ts"]) * 1e-6
    is_communication = name.lower().startswith(_COMMUNICATION)
    return _Event(name, begin, begin + float(raw["dur"]) * 1e-6, (raw.get("pid"), raw.get("tid")), is_communication)


def _union(intervals: Iterable[Interval]) -> list[Interval]:
    merged: list[Interval] = []
    for begin, end in sorted(intervals):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((begin, end))
    return merged


def _length(intervals: Iterable[Interval]) -> float:
    return sum(end - begin for begin, end in intervals)


def _operations(events: list[_Event]) -> tuple[Operation, ...]:
    """Add up each name's own time: what nests inside on the same thread or stream is taken off."""
    calls: dict[tuple[str, bool], int] = defaultdict(int)
    seconds: dict[tuple[str, bool], float] = defaultdict(float)
    open_by_lane: dict[tuple[Any, Any], list[_Event]] = defaultdict(list)
    for event in sorted(events, key=lambda e: (e.begin, -e.end)):
        stack = open_by_lane[event.lane]
        while stack and stack[-1].end <= event.begin:
            stack.pop()
        key = (event.name, event.is_communication)
        if stack:
            outer = stack[-1]
            seconds[outer.name, outer.is_communication] -= min(event.end, outer.end) - event.begin
        calls[key] += 1
        seconds[key] += event.end - event.begin
        stack.append(event)
    found = [
        Operation(name=name, calls=calls[name, is_comm], seconds=max(0.0, own), is_communication=is_comm)
        for (name, is_comm), own in seconds.items()
    ]
    return tuple(sorted(found, key=lambda operation: (-operation.seconds, operation.name)))

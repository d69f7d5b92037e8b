"""The split of a profile as text, 80 columns."""

from ddltop.model.trace_split import TraceSplit
from ddltop.presentation.words import plain
from ddltop.units import format_ms, format_share, format_time

MAX_OPERATIONS = 8


def split_card(label: str, split: TraceSplit, num_steps: int) -> str:
    """Write where a rank's profiled time went, a step, and its longest operations."""
    what = "kernels and copies" if split.clock == "device" else "operators of all threads"
    lines = [f"{label}  {num_steps} steps in {format_time(split.span)}, by {what}; ms a step:"]
    parts = (
        ("compute", split.compute),
        ("+communication", split.overlap),
        ("communication", split.communication),
        ("idle", split.idle),
    )
    for name, seconds in parts:
        share = format_share(seconds / split.span if split.span else None)
        lines.append(f"            {name:<16} {format_ms(seconds / num_steps):>8} {share:>6}")
    lines.append("            longest: own ms a step, calls a step")
    for operation in split.operations[:MAX_OPERATIONS]:
        figures = f"{format_ms(operation.seconds / num_steps):>8} {operation.calls / num_steps:>6.4g}"
        lines.append(f"            {figures}  {plain(operation.name)[:50]}")
    return "\n".join(lines)

"""The training side of ddltop: probes in the ranks, one agent a node. Never imports textual or rich."""

from typing import Any

__all__ = ["instrument"]


def __getattr__(name: str) -> Any:
    # Resolved late: every Python of a job imports this package.
    if name == "instrument":
        from .instrument import instrument

        return instrument
    raise AttributeError(f"module 'ddltop_agents' has no attribute {name!r}")

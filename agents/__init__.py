"""The training side of ddltop: probes in the ranks, one agent a node. Never imports textual or rich."""

from importlib import import_module
from typing import Any

# Name -> module of this package that has it; resolved late, as every Python of a job imports this package.
PUBLIC = {"instrument": "instrument", "phase": "phases", "step": "phases"}
__all__ = ["instrument", "phase", "step"]


def __getattr__(name: str) -> Any:
    if name in PUBLIC:
        return getattr(import_module(f".{PUBLIC[name]}", __name__), name)
    raise AttributeError(f"module 'ddltop_agents' has no attribute {name!r}")

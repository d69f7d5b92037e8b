"""ddltop: `top` for distributed training."""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"
__all__ = ["__version__", "instrument", "phase", "step"]


def __getattr__(name: str) -> Any:
    # Resolved late: the head side never loads the training side's code.
    if name in ("instrument", "phase", "step"):
        return getattr(import_module("ddltop_agents"), name)
    raise AttributeError(f"module 'ddltop' has no attribute {name!r}")

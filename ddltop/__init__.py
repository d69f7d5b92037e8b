"""ddltop: `top` for distributed training."""

from typing import Any

__version__ = "0.1.0"
__all__ = ["__version__", "instrument"]


def __getattr__(name: str) -> Any:
    # Resolved late: the head side never loads the training side's code.
    if name == "instrument":
        from importlib import import_module

        return import_module("ddltop_agents").instrument
    raise AttributeError(f"module 'ddltop' has no attribute {name!r}")

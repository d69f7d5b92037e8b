"""Arm ddltop in every Python that `ddltop run` starts: the folder of this file leads PYTHONPATH.

Python imports one sitecustomize; ours steps aside for the user's own after it has armed.
"""

import os
import sys
from importlib import import_module


def _arm() -> None:
    if not os.environ.get("DDLTOP_RUN_DIR"):
        return
    try:
        from ddltop_agents.attach import arm
    except ImportError as error:
        # Another Python, in which ddltop is not installed: say so once, train on.
        if os.environ.get("RANK") == "0":
            print(f"ddltop: this Python cannot import ddltop ({error}); its ranks are not measured", file=sys.stderr)  # noqa: T201
        return
    arm()


def _step_aside() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    ours = sys.modules.pop("sitecustomize", None)
    try:
        import_module("sitecustomize")
    except ImportError:
        if ours is not None:
            sys.modules["sitecustomize"] = ours


_arm()
_step_aside()

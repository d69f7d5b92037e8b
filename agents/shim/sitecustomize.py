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
    except Exception as error:  # noqa: BLE001
        # Another Python, in which ddltop is not installed: leave word for `ddltop run`, train on.
        _leave_word(f"{sys.executable} cannot import ddltop ({error}): install ddltop into its environment")
        return
    arm()


def _leave_word(text: str) -> None:
    try:
        with open(os.path.join(os.environ["DDLTOP_RUN_DIR"], "unreached"), "x") as mark:
            mark.write(text)
    except OSError:
        pass  # somebody has, or nobody can


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

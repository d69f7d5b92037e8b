"""Why `ddltop run` has not reached any training: what the command line and the run's processes tell."""

import re
from pathlib import Path

from ddltop.wire.endpoints import RunDir

_PYTHON = re.compile(r"(python|pypy)[0-9.]*$")
_DEAF = {
    "I": "ignores PYTHONPATH and its sitecustomize, through which ddltop comes in",
    "E": "ignores PYTHONPATH, through which ddltop comes in",
    "S": "imports no sitecustomize, through which ddltop comes in",
}
# Options of Python that end its own options, or take the next word.
_LAST, _WITH_VALUE = "cm", "WX"


def why_unreached(words: list[str], run_dir: Path) -> str:
    """Say why no rank of this command was measured, and what to do."""
    flag = deaf_flag(words)
    if flag:
        return f"python -{flag} {_DEAF[flag]}; put `import ddltop; ddltop.instrument()` at the top of the script"
    try:
        return RunDir(run_dir).unreached_mark.read_text().strip()[:300]
    except OSError:
        return (
            "no process of this command took an optimizer step that ddltop saw; "
            "other frameworks name their steps: ddltop.phase(), ddltop.step()"
        )


def deaf_flag(words: list[str]) -> str:
    """Give the option with which a Python on this command line shuts ddltop out; empty when there is none."""
    for i, word in enumerate(words):
        if _PYTHON.match(Path(word).name):
            found = _deaf_among(words[i + 1 :])
            if found:
                return found
    return ""


def _deaf_among(options: list[str]) -> str:
    """Look at Python's own options, which end with the script, -c or -m."""
    skip = False
    for option in options:
        if skip:
            skip = False
            continue
        if not option.startswith("-") or option.startswith("--") or option == "-":
            return ""
        for i, letter in enumerate(option[1:], start=1):
            if letter in _DEAF:
                return letter
            if letter in _LAST:
                return ""
            if letter in _WITH_VALUE:
                skip = i == len(option) - 1
                break
    return ""

"""Start the background processes of a run so that no terminal, signal or exit of ours ends them."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path


def start_detached(module: str, *arguments: str, log: Path, environ: Mapping[str, str] | None = None) -> None:
    """Run `python -m module arguments` in a session of its own; what it prints is appended to `log`."""
    with log.open("ab") as output:
        subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=None if environ is None else dict(environ),
            start_new_session=True,
            cwd="/",
        )

"""`ddltop agent`: the agent of this node, for jobs whose ranks cannot start it."""

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

NAME = "agent"
HELP = "run the agent of this node in the foreground"


def add_options(parser: ArgumentParser) -> None:
    """Declare options."""
    parser.add_argument("--run-dir", type=Path, help="directory of the run (default: $DDLTOP_RUN_DIR)")
    parser.add_argument("--collector", metavar="tcp://HOST:PORT", help="collector on another node")
    parser.add_argument("--key-file", type=Path, help="CURVE keys of the run, copied from the collector's node")


def run(options: Namespace) -> int:
    """Become the agent: it is the training side's program, not ours."""
    import os

    words = [sys.executable, "-m", "ddltop_agents.node"]
    for name in ("run_dir", "collector", "key_file"):
        value = getattr(options, name)
        if value is not None:
            words += [f"--{name.replace('_', '-')}", str(value)]
    os.execv(sys.executable, words)

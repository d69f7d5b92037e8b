"""What the commands that ask ranks have in common: which run, which ranks, how long to wait."""

import os
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from pathlib import Path

from ddltop.wire.environment import ENV_KEY_FILE


def add_target_options(parser: ArgumentParser) -> None:
    """Declare the run and its keys."""
    parser.add_argument(
        "target", nargs="?", metavar="RUN|ENDPOINT", help="a run's id (or how it begins), or tcp://HOST:PORT"
    )
    parser.add_argument("--key-file", type=Path, default=os.environ.get(ENV_KEY_FILE), help="CURVE keys for tcp://")


def add_rank_option(parser: ArgumentParser) -> None:
    """Declare --rank."""
    parser.add_argument("--rank", type=_ranks, default=(), metavar="R[,R...]", help="these ranks only (default: all)")


def find_collector(options: Namespace) -> tuple[str, Path | None]:
    """Give the endpoint of the run's collector and its key file; raise NoRunError or UsageError."""
    from ddltop.errors import UsageError
    from ddltop.sources.runs import find_live_runs, pick_live_run

    if options.target and options.target.startswith("tcp://"):
        if options.key_file is None:
            raise UsageError("a collector on TCP admits only its own keys", "give --key-file, copied from its node")
        return options.target, Path(options.key_file)
    return pick_live_run(options.target, find_live_runs()).run_dir.collector_endpoint, None


def _ranks(text: str) -> tuple[int, ...]:
    try:
        ranks = tuple(sorted({int(word) for word in text.split(",")}))
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is no list of ranks: write 0,3") from None
    if ranks[0] < 0:
        raise ArgumentTypeError("ranks count from 0")
    return ranks

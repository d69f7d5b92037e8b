"""`ddltop attach [RUN|ENDPOINT]`, and bare `ddltop`: look at a live run."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from ddltop.cli.viewing import add_viewing_options, show
from ddltop.wire.environment import ENV_KEY_FILE

NAME = "attach"
HELP = "look at a live run (the default command)"


def add_options(parser: ArgumentParser) -> None:
    """Declare options."""
    import os

    parser.add_argument(
        "target", nargs="?", metavar="RUN|ENDPOINT", help="a run's id (or how it begins), or tcp://HOST:PORT"
    )
    parser.add_argument("--key-file", type=Path, default=os.environ.get(ENV_KEY_FILE), help="CURVE keys for tcp://")
    add_viewing_options(parser)


def run(options: Namespace) -> int:
    """Attach and show."""
    from ddltop.errors import UsageError
    from ddltop.sources.live import LiveSource
    from ddltop.sources.runs import find_live_runs, pick_live_run

    if options.target and options.target.startswith("tcp://"):
        if options.key_file is None:
            raise UsageError("a collector on TCP admits only its own keys", "give --key-file, copied from its node")
        source = LiveSource(options.target, Path(options.key_file))
    else:
        live = pick_live_run(options.target, find_live_runs())
        source = LiveSource(live.run_dir.collector_endpoint)
    try:
        return show(source, options)
    finally:
        source.close()

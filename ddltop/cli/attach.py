"""`ddltop attach [RUN|ENDPOINT]`, and bare `ddltop`: look at a live run."""

from argparse import ArgumentParser, Namespace

from ddltop.cli.asking import add_target_options, find_collector
from ddltop.cli.viewing import add_viewing_options, show

NAME = "attach"
HELP = "look at a live run (the default command)"


def add_options(parser: ArgumentParser) -> None:
    """Declare options."""
    add_target_options(parser)
    add_viewing_options(parser)


def run(options: Namespace) -> int:
    """Attach and show."""
    from ddltop.sources.live import LiveSource

    source = LiveSource(*find_collector(options))
    try:
        return show(source, options)
    finally:
        source.close()

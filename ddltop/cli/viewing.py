"""What every viewing command has in common: options of the screen, and the ways to print instead."""

import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from typing import TYPE_CHECKING

from ddltop.cli import exit_codes
from ddltop.errors import NoRunError, UsageError

if TYPE_CHECKING:
    from ddltop.collector.snapshot import Snapshot
    from ddltop.sources.source import Source

FIRST_STEPS_LIMIT_S = 30.0
POLL_S = 0.5


def add_viewing_options(parser: ArgumentParser) -> None:
    """Declare --once, --json and the options of the screen."""
    printing = parser.add_mutually_exclusive_group()
    printing.add_argument("--once", action="store_true", help="print one card (80 columns) and exit")
    printing.add_argument("--json", action="store_true", help="print one report as JSON and exit")
    parser.add_argument("--ascii", action="store_true", help="ASCII only, no block glyphs")
    parser.add_argument("--theme", choices=("dark", "light"), default=os.environ.get("DDLTOP_THEME", "dark"))


def show(source: "Source", options: Namespace) -> int:
    """Show a source as the options want: the screen, or a card or JSON on stdout."""
    if options.once or options.json:
        print_snapshot(await_steps(source, FIRST_STEPS_LIMIT_S), as_json=options.json, ascii_only=is_ascii(options))
        return exit_codes.OK
    if not sys.stdout.isatty() or not sys.stdin.isatty():
        raise UsageError("the screen needs a terminal", "print instead: --once or --json")
    from ddltop.tui.app import run

    return run(source, theme=options.theme, ascii_only=is_ascii(options), colour="NO_COLOR" not in os.environ)


def await_steps(source: "Source", limit_s: float, is_hopeless: Callable[[], bool] = lambda: False) -> "Snapshot":
    """Wait until a snapshot has figures; the newest without them when the time is up; raise NoRunError without any."""
    import time

    deadline = time.monotonic() + limit_s
    newest = None
    while time.monotonic() < deadline and not is_hopeless():
        snapshot = source.poll(POLL_S)
        newest = snapshot or newest
        if snapshot is not None and (snapshot.assessment is not None or snapshot.run.exit_code is not None):
            return snapshot
        # An answer comes at once: asking again at once would keep the collector busy.
        time.sleep(POLL_S / 2)
    if newest is None:
        raise NoRunError(
            "the collector does not answer", "see collector.log in the run's directory, or run ddltop doctor"
        )
    return newest


def print_snapshot(snapshot: "Snapshot", *, as_json: bool, ascii_only: bool) -> None:
    """Print the JSON report or the text card on stdout."""
    if as_json:
        from ddltop.export.report import to_json

        sys.stdout.write(to_json(snapshot) + "\n")
    else:
        from ddltop.export.text import text_card

        sys.stdout.write(text_card(snapshot, ascii_only=ascii_only) + "\n")


def is_ascii(options: Namespace) -> bool:
    """Tell whether only ASCII may be printed: asked for, or all that stdout can encode."""
    encoding = (sys.stdout.encoding or "ascii").lower().replace("-", "")
    return bool(options.ascii) or not encoding.startswith("utf")

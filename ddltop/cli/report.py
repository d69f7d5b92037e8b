"""`ddltop report [FILE|RUN]`: what a recorded run was like, as text, JSON or Markdown."""

import sys
from argparse import ArgumentParser, Namespace

from ddltop.cli import exit_codes

NAME = "report"
HELP = "report on a recorded run"

FORMATS = ("text", "json", "markdown")


def add_options(parser: ArgumentParser) -> None:
    """Declare options."""
    parser.add_argument("recording", nargs="?", metavar="FILE|RUN", help="a recording (default: the newest)")
    parser.add_argument("--format", choices=FORMATS, default="text")
    parser.add_argument("--ascii", action="store_true", help="ASCII only, no block glyphs")


def run(options: Namespace) -> int:
    """Print the report on stdout."""
    from ddltop.cli.viewing import is_ascii, print_snapshot
    from ddltop.recording.names import find_recording
    from ddltop.sources.replay import read_whole

    snapshot = read_whole(find_recording(options.recording))
    if options.format == "markdown":
        from ddltop.export.markdown import to_markdown

        sys.stdout.write(to_markdown(snapshot) + "\n")
    else:
        print_snapshot(snapshot, as_json=options.format == "json", ascii_only=is_ascii(options))
    return exit_codes.OK

"""`ddltop replay FILE`: look at a recording as if it were live."""

from argparse import ArgumentParser, Namespace

from ddltop.cli.viewing import add_viewing_options, show

NAME = "replay"
HELP = "replay a recording on the same screen"


def add_options(parser: ArgumentParser) -> None:
    """Declare options."""
    parser.add_argument("recording", nargs="?", metavar="FILE|RUN", help="a recording (default: the newest)")
    parser.add_argument("--speed", type=float, default=1.0, help="times the recorded speed (default 1)")
    add_viewing_options(parser)


def run(options: Namespace) -> int:
    """Replay on the screen; with --once or --json print its end."""
    from ddltop.cli import exit_codes
    from ddltop.cli.viewing import is_ascii, print_snapshot
    from ddltop.errors import UsageError
    from ddltop.recording.names import find_recording
    from ddltop.sources.replay import ReplaySource, read_whole

    if not 0 < options.speed <= 1000:
        raise UsageError(f"--speed {options.speed} is not above 0 and up to 1000", "ddltop replay --speed 4 FILE")
    path = find_recording(options.recording)
    if options.once or options.json:
        print_snapshot(read_whole(path), as_json=options.json, ascii_only=is_ascii(options))
        return exit_codes.OK
    source = ReplaySource(path, speed=options.speed)
    try:
        return show(source, options)
    finally:
        source.close()

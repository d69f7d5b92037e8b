"""The command line: parse, run one command, turn an expected failure into a message and an exit code."""

import sys
from argparse import ArgumentParser, Namespace
from importlib import import_module
from typing import cast

from ddltop import __version__
from ddltop.cli import exit_codes
from ddltop.cli.command import Command
from ddltop.errors import DdltopError

COMMANDS = ("run", "attach", "collect", "agent", "replay", "report", "profile", "stacks", "demo", "doctor")

_EPILOG = """\
Bare `ddltop` attaches to the live run. stdout is data, stderr is talk.
Exit codes: 0 fine, 1 finding or regression, 2 usage or set-up; `run` gives its command's own.
"""


def build_parser() -> tuple[ArgumentParser, dict[str, ArgumentParser]]:
    """Build the parser of all commands, and give each command's own by name."""
    from argparse import RawDescriptionHelpFormatter

    parser = ArgumentParser(
        prog="ddltop",
        description="top for distributed training: measured against predicted speed-up, and who is to blame.",
        epilog=_EPILOG,
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"ddltop {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    parsers = {}
    for name in COMMANDS:
        module = cast("Command", import_module(f"ddltop.cli.{name}"))
        parsers[name] = commands.add_parser(
            module.NAME, help=module.HELP, description=module.HELP, formatter_class=RawDescriptionHelpFormatter
        )
        module.add_options(parsers[name])
        parsers[name].set_defaults(run=module.run)
    return parser, parsers


def parse(arguments: list[str]) -> Namespace:
    """Parse; without a command it is `attach`."""
    parser, _ = build_parser()
    is_bare = not arguments or (arguments[0].startswith("-") and arguments[0] not in ("-h", "--help", "--version"))
    return parser.parse_args(["attach", *arguments] if is_bare else arguments)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; give the exit code."""
    options = parse(sys.argv[1:] if arguments is None else arguments)
    try:
        return int(options.run(options))
    except DdltopError as error:
        print(f"ddltop: {error}", file=sys.stderr)
        return exit_codes.USAGE
    except BrokenPipeError:
        # The reader of our output (head, less) has gone: nothing is wrong.
        sys.stderr.close()
        return exit_codes.OK
    except KeyboardInterrupt:
        return 130

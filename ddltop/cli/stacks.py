"""`ddltop stacks [RUN]`: what every thread of the ranks is doing now."""

import sys
from argparse import ArgumentParser, Namespace

from ddltop.cli import exit_codes
from ddltop.cli.asking import add_rank_option, add_target_options, find_collector

NAME = "stacks"
HELP = "print the Python stacks of a live run's ranks"
# The rank's own thread answers; only native code that never lets go of the interpreter keeps it from that.
LIMIT_S = 10.0


def add_options(parser: ArgumentParser) -> None:
    """Declare options."""
    add_target_options(parser)
    add_rank_option(parser)


def run(options: Namespace) -> int:
    """Ask and print; 1 when a rank gave no stacks."""
    from ddltop.presentation.words import plain_lines
    from ddltop.sources.on_demand import ask

    endpoint, key_file = find_collector(options)
    answers = ask(
        endpoint, key_file, kind="stacks", ranks=options.rank, limit_s=LIMIT_S, on_answer=lambda _answer: None
    )
    for answer in answers:
        if answer.error:
            print(f"ddltop: {answer.label}: {answer.error}; try py-spy dump --native on its node", file=sys.stderr)
        else:
            sys.stdout.write(f"=== {answer.label}\n{plain_lines(answer.content.decode(errors='replace'))}")
    return exit_codes.FINDING if any(answer.error for answer in answers) else exit_codes.OK

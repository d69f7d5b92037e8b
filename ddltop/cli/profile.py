"""`ddltop profile [RUN]`: a torch.profiler trace of some steps, split into computing, communication and idle."""

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from ddltop.cli import exit_codes
from ddltop.cli.asking import add_rank_option, add_target_options, find_collector

if TYPE_CHECKING:
    from ddltop.sources.on_demand import Answer

NAME = "profile"
HELP = "profile some steps of a live run with torch.profiler"


def add_options(parser: ArgumentParser) -> None:
    """Declare options."""
    add_target_options(parser)
    add_rank_option(parser)
    parser.add_argument("--steps", type=int, default=5, metavar="K", help="optimizer steps to profile (default 5)")
    parser.add_argument("-o", "--output", type=Path, default=Path(), metavar="DIR", help="where the traces go")
    parser.add_argument("--timeout", type=float, default=120.0, metavar="S", help="longest silence, seconds")


def run(options: Namespace) -> int:
    """Ask, save the traces and print how they split; 1 when a rank gave none."""
    from ddltop.errors import UsageError
    from ddltop.sources.on_demand import ask

    if not 1 <= options.steps <= 100:
        raise UsageError(f"--steps {options.steps}: a profile takes 1 to 100 steps", "a trace grows by MBs a step")
    options.output.mkdir(parents=True, exist_ok=True)
    endpoint, key_file = find_collector(options)
    print(f"ddltop: profiling {options.steps} steps; they run slower meanwhile", file=sys.stderr)
    answers = ask(
        endpoint,
        key_file,
        kind="profile",
        ranks=options.rank,
        num_steps=options.steps,
        limit_s=options.timeout,
        on_answer=lambda answer: _save(answer, options.output),
    )
    for answer in answers:
        if answer.error:
            print(f"ddltop: {answer.label}: {answer.error}", file=sys.stderr)
        else:
            _print_split(answer, options)
    return exit_codes.FINDING if any(answer.error for answer in answers) else exit_codes.OK


def _path(answer: "Answer", folder: Path) -> Path:
    return folder / f"trace-r{answer.rank}.json.gz"


def _save(answer: "Answer", folder: Path) -> None:
    if not answer.error:
        _path(answer, folder).write_bytes(answer.content)


def _print_split(answer: "Answer", options: Namespace) -> None:
    import gzip
    import json

    from ddltop.export.profile import split_card
    from ddltop.model.trace_split import split_trace

    path = _path(answer, options.output)
    try:
        events = json.loads(gzip.decompress(answer.content))["traceEvents"]
        card = split_card(answer.label, split_trace(events), options.steps)
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        card = f"{answer.label}  the trace cannot be split: {error}"
    sys.stdout.write(f"{card}\n            trace: {path} (open it in Perfetto or chrome://tracing)\n")

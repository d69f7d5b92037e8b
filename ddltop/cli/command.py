"""What a command is: it names itself, declares its options, and runs."""

from argparse import ArgumentParser, Namespace
from typing import Protocol


class Command(Protocol):
    """One command of the command line; a module of ddltop.cli with these names.

    Heavy imports belong inside `run`: `ddltop --help` loads every command module and must stay under 150 ms.
    """

    NAME: str
    HELP: str

    def add_options(self, parser: ArgumentParser) -> None:
        """Declare options and arguments."""
        ...

    def run(self, options: Namespace) -> int:
        """Do it; give the exit code. A DdltopError is printed by `main`."""
        ...

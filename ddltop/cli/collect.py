"""`ddltop collect`: the collector of one run, headless; records, outlives every viewer."""

import os
import signal
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from ddltop.cli import exit_codes
from ddltop.errors import UsageError
from ddltop.wire.environment import ENV_RUN_DIR

if TYPE_CHECKING:
    from ddltop.collector.service import Sink, TcpEndpoint
    from ddltop.wire.endpoints import RunDir, RunFile

NAME = "collect"
HELP = "run the collector of a run in the foreground (headless, records)"


def add_options(parser: ArgumentParser) -> None:
    """Declare options."""
    parser.add_argument("--run-dir", type=Path, default=os.environ.get(ENV_RUN_DIR), help="directory of the run")
    parser.add_argument("--bind", metavar="tcp://ADDRESS:PORT", help="listen for agents of other nodes too (CURVE)")
    parser.add_argument("--recording", type=Path, help="file to record to (default: in $XDG_STATE_HOME/ddltop)")
    parser.add_argument("--no-recording", action="store_true", help="do not record")


def run(options: Namespace) -> int:
    """Collect until the run is over and nobody looks."""
    from ddltop.collector.ingest import Ingest
    from ddltop.collector.service import Collector
    from ddltop.wire.endpoints import RunDir, private_directory
    from ddltop.wire.locks import hold_lock

    if options.bind is not None and not options.bind.startswith("tcp://"):
        raise UsageError(f"--bind {options.bind} is no TCP endpoint", "ddltop collect --bind tcp://0.0.0.0:5577")
    path = _run_dir_path(options)
    if options.bind is None and not path.is_dir():
        # Started by an agent for a run that has been cleared away meanwhile: not to be made anew.
        raise UsageError(
            f"there is no run directory {path}", "runs make their own: ddltop run -- torchrun ... train.py"
        )
    run_dir = RunDir(private_directory(path))
    lock = hold_lock(run_dir.collector_lock)
    if lock is None:
        print(f"ddltop: run {run_dir.run_id} has a collector already", file=sys.stderr)
        return exit_codes.OK
    run_file = _describe(run_dir)
    tcp = _tcp_endpoint(run_dir, options.bind)
    ingest = Ingest(run_dir.run_id, command=run_file.command, started_at=run_file.started_us / 1e6)
    sink = _open_sink(options, run_dir, run_file.command)
    is_stopped = _stop_on_signals()
    collector = Collector(run_dir, ingest, sink, tcp=tcp, launcher_pid=run_file.launcher_pid)
    collector.run(is_stopped, run_dir.finished_mark.touch)
    _remove(run_dir)
    return exit_codes.OK


def _run_dir_path(options: Namespace) -> Path:
    from ddltop.wire.endpoints import runs_root

    if options.run_dir is not None:
        return Path(options.run_dir)
    if options.bind is None:
        raise UsageError("no run directory", "give --run-dir, or --bind tcp://ADDRESS:PORT for a run on other nodes")
    return runs_root() / f"collect-{os.getpid()}"


def _describe(run_dir: "RunDir") -> "RunFile":
    """Read run.json, or write one for a collector that was started first."""
    import time

    from ddltop import __version__
    from ddltop.wire.endpoints import RunFile, node_name

    run_file = run_dir.read()
    if run_file is None:
        started_us = time.time_ns() // 1000
        run_file = RunFile(
            run_id=run_dir.run_id, command=(), started_us=started_us, version=__version__, node=node_name()
        )
        run_dir.write(run_file)
    return run_file


def _tcp_endpoint(run_dir: "RunDir", bind: str | None) -> "TcpEndpoint | None":
    if bind is None:
        return None
    from ddltop.collector.keys import ensure_keys
    from ddltop.collector.service import TcpEndpoint

    key_file = ensure_keys(run_dir.key_file)
    print(
        f"ddltop: on the other nodes, with a copy of {key_file}:\n"
        f"  DDLTOP_RUN_DIR=... ddltop agent --collector {bind} --key-file ...",
        file=sys.stderr,
    )
    return TcpEndpoint(address=bind, key_file=key_file)


def _open_sink(options: Namespace, run_dir: "RunDir", command: tuple[str, ...]) -> "Sink":
    from ddltop.errors import RecordingError
    from ddltop.recording.worker import NoRecording, RecorderThread, new_recording_path

    if options.no_recording:
        return NoRecording()
    try:
        path = options.recording or new_recording_path(run_dir.run_id, command)
        sink = RecorderThread(path)
    except (OSError, RecordingError) as error:
        print(f"ddltop: the run is not recorded: {error}", file=sys.stderr)
        return NoRecording()
    run_dir.recording_pointer.write_text(str(path))
    return sink


def _stop_on_signals() -> Callable[[], bool]:
    """Give a question that is answered yes once somebody wants this process to end."""
    wanted: list[int] = []

    def stop(number: int, _frame: FrameType | None) -> None:
        wanted.append(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    # The SSH session that started the run may end: the collector goes on.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    return lambda: bool(wanted)


def _remove(run_dir: "RunDir") -> None:
    """Remove the run directory of a run that is over, logs that say something kept aside."""
    import shutil

    shutil.rmtree(run_dir.path, ignore_errors=True)

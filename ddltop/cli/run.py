"""`ddltop run -- CMD ...`: run a training command with the probes injected and nothing else changed."""

import os
import secrets
import signal
import subprocess
import sys
import time
from argparse import REMAINDER, ArgumentParser, Namespace
from pathlib import Path
from types import FrameType

from ddltop.errors import DdltopError, UsageError

NAME = "run"
HELP = "run a training command with the probes injected, no code change"

COLLECTOR_START_LIMIT_S = 3.0
FINISH_LIMIT_S = 6.0
_FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT)


def add_options(parser: ArgumentParser) -> None:
    """Declare options."""
    parser.usage = "ddltop run [--buckets off|auto|force] [--quiet] -- CMD ..."
    parser.add_argument(
        "--buckets",
        choices=("off", "auto", "force"),
        default="auto",
        help="time DDP's buckets: not at all, where the result stays bit-equal (default), or wherever DDP allows it",
    )
    parser.add_argument("--quiet", action="store_true", help="do not say how to look")
    parser.add_argument("words", nargs=REMAINDER, metavar="CMD", help="python, torchrun, srun ... and its arguments")


def run(options: Namespace) -> int:
    """Run the command; give its exit code."""
    words = options.words[1:] if options.words[:1] == ["--"] else options.words
    if not words:
        raise UsageError("no command to run", "ddltop run -- torchrun --nproc-per-node 2 train.py")
    launch = prepare_run(tuple(words), buckets=options.buckets)
    if launch is not None and not options.quiet:
        print(f"ddltop: watching run {launch.run_id}; to look: ddltop", file=sys.stderr)
    return _run_command(words, launch)


class Launch:
    """A prepared run: its directory, and the environment that arms the probes."""

    def __init__(self, run_dir_path: Path, environ: dict[str, str]) -> None:
        self.run_dir_path = run_dir_path
        self.environ = environ

    @property
    def run_id(self) -> str:
        """Name of the run."""
        return self.run_dir_path.name


def prepare_run(words: tuple[str, ...], *, buckets: str = "auto") -> Launch | None:
    """Make the run directory and start its collector; None when that fails: the command runs all the same."""
    from ddltop import __version__
    from ddltop.sources.runs import sweep_stale_runs
    from ddltop.wire.endpoints import RunDir, RunFile, node_name, private_directory, runs_root
    from ddltop.wire.environment import ENV_BUCKETS, ENV_RUN_DIR
    from ddltop.wire.processes import start_detached

    try:
        run_id = f"{_stem(words)}-{time.strftime('%H%M%S')}-{secrets.token_hex(2)}"
        root = runs_root()
        sweep_stale_runs(root)
        run_dir = RunDir(private_directory(root / run_id))
        run_dir.write(
            RunFile(
                run_id=run_id,
                command=words,
                started_us=time.time_ns() // 1000,
                version=__version__,
                node=node_name(),
                launcher_pid=os.getpid(),
            )
        )
        start_detached("ddltop", "collect", "--run-dir", str(run_dir.path), log=run_dir.log("collector"))
        _await_collector(run_dir.path)
    except (OSError, DdltopError) as error:
        print(f"ddltop: this run is not watched: {error}", file=sys.stderr)
        return None
    environ = dict(os.environ)
    environ[ENV_RUN_DIR] = str(run_dir.path)
    environ["PYTHONPATH"] = os.pathsep.join([shim_folder(), *filter(None, [environ.get("PYTHONPATH")])])
    if buckets != "auto":
        environ[ENV_BUCKETS] = buckets
    return Launch(run_dir.path, environ)


def finish_run(launch: Launch, exit_code: int) -> bool:
    """Tell the collector that the command has ended, and wait shortly until its recording is complete.

    Gives whether any rank was measured; True as well when the collector cannot say.
    """
    from ddltop.sources.live import LiveSource
    from ddltop.wire.endpoints import RunDir
    from ddltop.wire.locks import is_locked
    from ddltop.wire.messages import RunEnd

    run_dir = RunDir(launch.run_dir_path)
    if not is_locked(run_dir.collector_lock):
        return True
    source = LiveSource(run_dir.collector_endpoint)
    try:
        snapshot = source.poll(FINISH_LIMIT_S)
        source.tell(RunEnd(run_id=run_dir.run_id, exit_code=exit_code), FINISH_LIMIT_S)
    finally:
        source.close()
    deadline = time.monotonic() + FINISH_LIMIT_S
    while time.monotonic() < deadline and is_locked(run_dir.collector_lock) and not run_dir.finished_mark.exists():
        time.sleep(0.05)
    return snapshot is None or bool(snapshot.ranks)


def _run_command(words: list[str], launch: Launch | None) -> int:
    environ = launch.environ if launch is not None else None
    try:
        process = subprocess.Popen(words, env=environ)
    except OSError as error:
        if launch is not None:
            finish_run(launch, 127)
        raise UsageError(f"{words[0]} cannot be run: {error.strerror}", "give the command after --") from error
    _pass_signals_on(process)
    exit_code = process.wait()
    if launch is not None:
        _finish_quietly(launch, words, exit_code)
    # A shell's way of saying that a signal ended the command.
    return exit_code if exit_code >= 0 else 128 - exit_code


def _finish_quietly(launch: Launch, words: list[str], exit_code: int) -> None:
    from ddltop.cli.reach import why_unreached

    reason = why_unreached(words, launch.run_dir_path)
    try:
        if not finish_run(launch, exit_code):
            print(f"ddltop: no training was measured: {reason}", file=sys.stderr)
    except (OSError, DdltopError) as error:
        print(f"ddltop: the recording may lack its end: {error}", file=sys.stderr)


def _pass_signals_on(process: "subprocess.Popen[bytes]") -> None:
    """Pass signals to the command; Ctrl-C reaches it through the terminal already."""

    def pass_on(number: int, _frame: FrameType | None) -> None:
        if process.poll() is None:
            process.send_signal(number)

    for number in _FORWARDED:
        signal.signal(number, pass_on)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _await_collector(run_dir_path: Path) -> None:
    """Wait until the collector listens; go on without it after 3 s: an agent starts another."""
    from ddltop.wire.endpoints import RunDir

    socket_path = Path(RunDir(run_dir_path).collector_endpoint.removeprefix("ipc://"))
    deadline = time.monotonic() + COLLECTOR_START_LIMIT_S
    while not socket_path.exists() and time.monotonic() < deadline:
        time.sleep(0.02)


def shim_folder() -> str:
    """Give the folder whose sitecustomize arms the probes; raise UsageError when it is not installed."""
    from importlib.util import find_spec

    spec = find_spec("ddltop_agents")
    if spec is None or not spec.submodule_search_locations:
        raise UsageError("the package ddltop_agents is not installed", "pip install ddltop")
    return str(Path(next(iter(spec.submodule_search_locations))) / "shim")


def _stem(words: tuple[str, ...]) -> str:
    """Name a run after the script it trains with."""
    scripts = [Path(word).stem for word in words if word.endswith(".py")]
    stem = scripts[0] if scripts else Path(words[0]).name
    return "".join(c if c.isalnum() or c in "-_" else "-" for c in stem)[:24]

"""`ddltop demo`: a real two-rank training, or simulated ranks, on the real screen."""

import os
import re
import signal
import subprocess
import sys
import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from ddltop.cli.viewing import FIRST_STEPS_LIMIT_S, add_viewing_options, await_steps, is_ascii, print_snapshot, show
from ddltop.errors import UsageError

if TYPE_CHECKING:
    from ddltop.cli.run import Launch
    from ddltop.collector.snapshot import Snapshot
    from ddltop.sources.live import LiveSource

NAME = "demo"
HELP = "watch a real 2-rank DDP training on this machine's CPU (--simulate: without torch)"

END_LIMIT_S = 15.0
POLL_S = 0.5
MODELS = ("tiny", "cnn", "alexnet", "googlenet", "resnet50")


def add_options(parser: ArgumentParser) -> None:
    """Declare options."""
    parser.add_argument("--model", choices=MODELS, default="cnn", help="network to train (default cnn)")
    parser.add_argument(
        "--fault", type=fault, action="append", default=[], metavar="SPEC", help="e.g. backward-delay:rank=1,ms=40"
    )
    parser.add_argument("--ranks", type=int, help="number of ranks (default 2; simulated 16)")
    parser.add_argument("--nodes", type=int, default=4, help="simulated nodes (default 4)")
    parser.add_argument("--duration", type=duration, metavar="TIME", help="e.g. 30s (default: 20s without a terminal)")
    parser.add_argument("--simulate", action="store_true", help="simulated ranks over the real protocol, no torch")
    add_viewing_options(parser)


def fault(text: str) -> str:
    """Check a fault before anything starts and give it back; raise ArgumentTypeError."""
    if not re.fullmatch(r"(loader|forward|backward)-delay:rank=(\d+|all),ms=\d+(\.\d+)?(,(from|to|every)=\d+)*", text):
        raise ArgumentTypeError(
            f"{text!r} is no fault; write KIND:rank=R,ms=T, KIND one of loader-delay, forward-delay, backward-delay"
        )
    return text


def duration(text: str) -> float:
    """Parse 30, 30s, 2m or 1h into seconds; raise ArgumentTypeError."""
    units = {"s": 1.0, "m": 60.0, "h": 3600.0}
    number, unit = (text[:-1], text[-1]) if text[-1:] in units else (text, "s")
    try:
        seconds = float(number) * units[unit]
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e7:
        raise ArgumentTypeError(f"{text!r} is no duration such as 30s or 2m")
    return seconds


def run(options: Namespace) -> int:
    """Start the training and look at it; without a terminal print the card after `--duration`."""
    from ddltop.cli.run import finish_run, prepare_run

    has_screen = sys.stdout.isatty() and sys.stdin.isatty() and not options.once and not options.json
    seconds = options.duration or (3600.0 if has_screen else 20.0)
    words = _simulation(options, seconds) if options.simulate else _training(options, seconds)
    launch = prepare_run(tuple(words))
    if launch is None:
        raise UsageError("the demo cannot be watched", "ddltop doctor says what is missing")
    with (launch.run_dir_path / "demo.log").open("wb") as log:
        environ = dict(launch.environ, DDLTOP_RUN_DIR=str(launch.run_dir_path))
        process = subprocess.Popen(
            words, env=environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    _leave_on_hangup()
    try:
        if has_screen:
            return _watch(launch, options)
        return _print_card(launch, options, process)
    finally:
        _end(process)
        finish_run(launch, process.returncode if process.returncode is not None else -1)


def _leave_on_hangup() -> None:
    """Make a closed terminal or a SIGTERM end the training too: it runs in a session of its own."""

    def leave(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    for number in (signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, leave)


def _watch(launch: "Launch", options: Namespace) -> int:
    from ddltop.sources.live import LiveSource
    from ddltop.wire.endpoints import RunDir

    source = LiveSource(RunDir(launch.run_dir_path).collector_endpoint)
    try:
        return show(source, options)
    finally:
        source.close()


def _print_card(launch: "Launch", options: Namespace, process: "subprocess.Popen[bytes]") -> int:
    """Let the training run to its end, keep the last snapshot on the way, and print it."""
    from ddltop.sources.live import LiveSource
    from ddltop.wire.endpoints import RunDir

    source = LiveSource(RunDir(launch.run_dir_path).collector_endpoint)
    try:
        snapshot = await_steps(source, FIRST_STEPS_LIMIT_S * 3, lambda: process.poll() is not None)
        while _is_running(process, POLL_S):
            snapshot = source.poll(POLL_S) or snapshot
        snapshot = _last_snapshot(source, snapshot)
    finally:
        source.close()
    print_snapshot(snapshot, as_json=options.json, ascii_only=is_ascii(options))
    if process.returncode:
        log = (launch.run_dir_path / "demo.log").read_text(errors="replace")
        print(f"ddltop: the training ended with exit code {process.returncode}:\n{log[-2000:]}", file=sys.stderr)
    return process.returncode or 0


def _last_snapshot(source: "LiveSource", snapshot: "Snapshot") -> "Snapshot":
    """Take snapshots until the last steps of the ended ranks have come."""
    from ddltop.collector.snapshot import RunState

    deadline = time.monotonic() + 3.0
    while snapshot.state is not RunState.ENDED and time.monotonic() < deadline:
        time.sleep(POLL_S / 2)
        snapshot = source.poll(POLL_S) or snapshot
    return snapshot


def _is_running(process: "subprocess.Popen[bytes]", wait_s: float) -> bool:
    try:
        process.wait(wait_s)
    except subprocess.TimeoutExpired:
        return True
    return False


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End the training that we started: torchrun passes the signal to its ranks."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(END_LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.wait()


def _training(options: Namespace, seconds: float) -> list[str]:
    from importlib.util import find_spec

    if find_spec("torch") is None:
        raise UsageError("the demo trains with torch, which is not installed", "ddltop demo --simulate needs none")
    script = _demo_folder() / "train.py"
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={options.ranks or 2}"]
    words += [str(script), "--model", options.model, "--duration", str(seconds)]
    for fault in options.fault:
        words += ["--fault", fault]
    return words


def _simulation(options: Namespace, seconds: float) -> list[str]:
    words = [sys.executable, "-m", "ddltop_agents.simulate", "--ranks", str(options.ranks or 16)]
    words += ["--nodes", str(options.nodes), "--duration", str(seconds)]
    for fault in options.fault:
        words += ["--fault", fault]
    return words


def _demo_folder() -> Path:
    from importlib.util import find_spec

    spec = find_spec("ddltop.demo")
    if spec is None or not spec.submodule_search_locations:
        raise UsageError("the demo is not installed", "pip install 'ddltop[demo]'")
    return Path(next(iter(spec.submodule_search_locations)))

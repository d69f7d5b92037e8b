"""`ddltop doctor`: is everything here that ddltop needs, and what to do when not."""

import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ddltop.cli import exit_codes
from ddltop.errors import DdltopError

NAME = "doctor"
HELP = "check that this machine has what ddltop needs"


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the doctor: `is_needed` ones make it fail."""

    name: str
    is_fine: bool
    is_needed: bool
    what: str


def add_options(parser: ArgumentParser) -> None:
    """Declare options: none."""
    del parser


def run(options: Namespace) -> int:
    """Print a line per check; exit 2 when a needed one fails."""
    del options
    has_failed = False
    for check in all_checks():
        mark = "ok  " if check.is_fine else "FAIL" if check.is_needed else "note"
        sys.stdout.write(f"{mark} {check.name:<12} {check.what}\n")
        has_failed |= check.is_needed and not check.is_fine
    return exit_codes.USAGE if has_failed else exit_codes.OK


def all_checks() -> Iterator[Check]:
    """Run the checks in order."""
    checks: tuple[Callable[[], Check], ...] = (
        _check_python,
        _check_torch,
        _check_zmq,
        _check_run_directory,
        _check_recordings,
        _check_injection,
        _check_gpu,
        _check_terminal,
    )
    for check in checks:
        try:
            yield check()
        except (DdltopError, OSError, ImportError) as error:
            yield Check(check.__name__.removeprefix("_check_"), False, True, str(error).replace("\n", ";"))


def _check_python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    return Check("python", sys.version_info >= (3, 11), True, f"{version} at {sys.executable}")


def _check_torch() -> Check:
    from importlib.metadata import PackageNotFoundError, version

    try:
        found = version("torch")
    except PackageNotFoundError:
        return Check(
            "torch", False, False, "not in this Python: fine on a head node; ranks need ddltop beside their torch"
        )
    major, minor = (int(part) for part in found.split(".")[:2])
    is_known = (major, minor) >= (2, 6)
    return Check("torch", is_known, False, found if is_known else f"{found}: ddltop is made for 2.6 and newer")


def _check_zmq() -> Check:
    import zmq

    return Check(
        "zeromq", bool(zmq.has("curve")), True, f"{zmq.zmq_version()}, CURVE {'yes' if zmq.has('curve') else 'no'}"
    )


def _check_run_directory() -> Check:
    from ddltop.wire.endpoints import RunDir, runs_root

    root = runs_root()
    RunDir(root / ("x" * 40)).agent_endpoint("node")
    return Check("run dir", True, True, f"{root} (private to you)")


def _check_recordings() -> Check:
    import shutil

    from ddltop.recording.names import default_directory

    directory = default_directory()
    free = shutil.disk_usage(directory).free
    return Check("recordings", free > 2**30, False, f"{directory}, {free / 2**30:.1f} GiB free")


def _check_injection() -> Check:
    """Start a Python the way `ddltop run` does and see whether the probes arm in it."""
    import subprocess

    from ddltop.cli.run import shim_folder
    from ddltop.wire.environment import ENV_RUN_DIR

    environ = dict(os.environ, PYTHONPATH=shim_folder())
    environ[ENV_RUN_DIR] = "/nonexistent"
    code = "import sys; print(any(type(f).__module__ == 'ddltop_agents.attach' for f in sys.meta_path))"
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, env=environ, capture_output=True, text=True, timeout=30
    )
    is_armed = done.stdout.strip() == "True"
    return Check("injection", is_armed, True, "probes arm in this Python" if is_armed else done.stderr.strip()[-200:])


def _check_gpu() -> Check:
    import pynvml

    try:
        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
        pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        return Check("gpu", True, False, f"no GPU here ({error})")
    return Check("gpu", True, False, f"{count} GPUs")


def _check_terminal() -> Check:
    encoding = sys.stdout.encoding or "ascii"
    is_utf = encoding.lower().replace("-", "").startswith("utf")
    return Check(
        "terminal", True, False, f"TERM={os.environ.get('TERM', '')}, {encoding}{'' if is_utf else ': ASCII mode'}"
    )

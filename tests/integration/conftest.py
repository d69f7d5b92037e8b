"""Real runs: a private state and run directory per test, and commands with a deadline."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
TRAIN = ROOT / "demo" / "train.py"


@dataclass(frozen=True)
class Lab:
    """A user's machine: home, state, and the commands of the environment that runs the tests."""

    home: Path
    environ: Mapping[str, str]

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "ddltop", *words]

    def ddltop(self, *words: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        return self.execute(self.command(*words), timeout=timeout)

    def torchrun(self, *arguments: str, ranks: int = 2) -> list[str]:
        return [*self.torchrun_of(str(TRAIN), ranks=ranks), *arguments]

    def torchrun_of(self, script: str, ranks: int = 2) -> list[str]:
        return [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", script]

    def execute(self, words: list[str], timeout: float = 120) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words,
            env=dict(self.environ),
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def start(self, words: list[str], **options: Any) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            words,
            env=dict(self.environ),
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options,
        )

    def report(self) -> dict[str, Any]:
        done = self.ddltop("report", "--format", "json")
        assert done.returncode == 0, done.stderr
        report: dict[str, Any] = json.loads(done.stdout)
        return report

    def watch_training(self, *arguments: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
        """Train under `ddltop run` and report on it."""
        done = self.ddltop("run", "--", *self.torchrun(*arguments), timeout=180)
        return done, self.report()

    @property
    def run_dirs(self) -> list[Path]:
        root = self.home / ".ddltop" / "run"
        return sorted(root.iterdir()) if root.is_dir() else []


@contextmanager
def make_lab() -> Iterator[Lab]:
    # Not tmp_path: a Unix socket's path has 107 bytes.
    tmp_path = Path(tempfile.mkdtemp(prefix="ddltop-test-"))
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("DDLTOP_", "XDG_"))}
    environ |= {"HOME": str(tmp_path), "OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"}
    yield Lab(home=tmp_path, environ=environ)
    shutil.rmtree(tmp_path, ignore_errors=True)


@pytest.fixture
def lab() -> Iterator[Lab]:
    with make_lab() as made:
        yield made


@pytest.fixture
def wait_for() -> Callable[[Callable[[], Any], float], Any]:
    """Wait until a question has a true answer, and give it; fail at the deadline."""
    import time

    def wait(question: Callable[[], Any], deadline_s: float) -> Any:
        end = time.monotonic() + deadline_s
        while time.monotonic() < end:
            answer = question()
            if answer:
                return answer
            time.sleep(0.05)
        raise AssertionError(f"nothing came true within {deadline_s} s: {question}")

    return wait

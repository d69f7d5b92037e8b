"""A stub libnvidia-ml.so.1 and the way to sample over it: the real binding, in a process of its own."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).with_name("nvml.c")

# Each argument is the content of the control file for one more sample of the same sensor.
_CODE = """
import json, os, sys
from pathlib import Path
import msgspec
from ddltop_agents.node.gpu import GpuSensor
sensor = GpuSensor()
taken = []
for answers in sys.argv[1:]:
    Path(os.environ["FAKE_NVML"]).write_text(answers)
    gpus, status = sensor.sample()
    taken.append((status, msgspec.to_builtins(gpus)))
print(json.dumps(taken))
"""

Taken = tuple[str, list[dict[str, Any]]]


def has_compiler() -> bool:
    return shutil.which("gcc") is not None


@dataclass(frozen=True, slots=True)
class FakeNvml:
    """A folder with the stub library, for LD_LIBRARY_PATH; empty: a machine without the library."""

    folder: Path

    def build(self, *defines: str) -> "FakeNvml":
        library = self.folder / "libnvidia-ml.so.1"
        flags = ["-shared", "-fPIC", "-Wall", "-Werror", "-Wl,-soname,libnvidia-ml.so.1"]
        words = ["gcc", *flags, *(f"-D{define}" for define in defines), "-o", str(library), str(SOURCE)]
        subprocess.run(words, check=True, timeout=60)
        return self

    def sample(self, *answers: str) -> list[Taken]:
        """Sample once for each text of answers, with one sensor; status and GPUs of each. It may not say a word."""
        environ = dict(os.environ, LD_LIBRARY_PATH=str(self.folder), FAKE_NVML=str(self.folder / "control"))
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", _CODE, *answers],
            env=environ,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return [(status, gpus) for status, gpus in json.loads(done.stdout)]

    def sample_once(self, answers: str) -> Taken:
        return self.sample(answers)[0]

"""Where the processes of a run find each other: one private directory per run, sockets inside it.

A path socket in a 0700 directory is the only transport another user of the head node can neither read nor
inject into without keys, so everything on one machine uses it; between machines CURVE over TCP.
"""

import os
import socket
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import msgspec

from ddltop.errors import UsageError
from ddltop.wire.environment import ENV_RUN_DIR

# sockaddr_un.sun_path holds 108 bytes with its end mark (Linux, unix(7)).
MAX_SOCKET_PATH = 107
# A run's id has at most 40 characters, an agent's socket 19, and there are two slashes.
LONGEST_IN_ROOT = 61


class RunFile(msgspec.Struct, frozen=True, kw_only=True):
    """run.json in a run directory: what a viewer needs to know before it connects."""

    run_id: str
    command: tuple[str, ...]
    started_us: int
    version: str
    node: str  # where the run directory, and so the collector, lives
    launcher_pid: int | None = None  # `ddltop run`, which tells the collector when the command has ended


@dataclass(frozen=True, slots=True)
class RunDir:
    """The private directory of one run, and the names of the files in it."""

    path: Path

    @property
    def run_id(self) -> str:
        """Name of the run: the directory's own name."""
        return self.path.name

    @property
    def run_file(self) -> Path:
        """Description of the run, JSON of `RunFile`."""
        return self.path / "run.json"

    @property
    def collector_lock(self) -> Path:
        """Locked (flock) by the collector while it lives."""
        return self.path / "collector.lock"

    @property
    def recording_pointer(self) -> Path:
        """Text file that holds the path of the run's recording."""
        return self.path / "recording"

    @property
    def key_file(self) -> Path:
        """CURVE keys of the run, when its collector listens on TCP."""
        return self.path / "curve.json"

    @property
    def finished_mark(self) -> Path:
        """Exists once the recording of the run is complete."""
        return self.path / "finished"

    @property
    def unreached_mark(self) -> Path:
        """Text file: why a Python of this run could not be armed, by the first that could not."""
        return self.path / "unreached"

    def agent_lock(self, node: str) -> Path:
        """File locked (flock) by the agent of `node` while it lives."""
        return self.path / f"agent-{_short(node)}.lock"

    def log(self, role: str) -> Path:
        """File that takes what a background process prints."""
        return self.path / f"{role}.log"

    @property
    def collector_endpoint(self) -> str:
        """ZeroMQ endpoint of the collector's ROUTER; raise UsageError when the path is too long."""
        return _ipc(self.path / "collector.sock")

    def agent_endpoint(self, node: str) -> str:
        """ZeroMQ endpoint of the PULL socket of the agent of `node`."""
        return _ipc(self.path / f"agent-{_short(node)}.sock")

    def requests_endpoint(self, node: str) -> str:
        """ZeroMQ endpoint of the PUB socket on which the agent of `node` passes requests on to its ranks."""
        return _ipc(self.path / f"asks-{_short(node)}.sock")

    def write(self, run: RunFile) -> None:
        """Write run.json so that a reader sees all of it or nothing."""
        draft = self.path / f"run.json.{os.getpid()}"
        draft.write_bytes(msgspec.json.encode(run))
        draft.replace(self.run_file)

    def read(self) -> RunFile | None:
        """Read run.json; None when it is missing or not readable."""
        try:
            return msgspec.json.decode(self.run_file.read_bytes(), type=RunFile)
        except (OSError, msgspec.DecodeError):
            return None


def runs_root(environ: Mapping[str, str] | None = None) -> Path:
    """Give the directory that holds this user's run directories, created 0700; raise UsageError when it is not ours."""
    environ = os.environ if environ is None else environ
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    if runtime and Path(runtime).is_dir() and Path(runtime).stat().st_uid == os.getuid():
        return private_directory(Path(runtime) / "ddltop")
    try:
        home = Path.home() / ".ddltop" / "run"
        if len(os.fsencode(home)) + LONGEST_IN_ROOT <= MAX_SOCKET_PATH:
            return private_directory(home)
    except (OSError, RuntimeError):
        pass
    # No usable home (a container with a random uid), or too long a path: the owner and mode check keeps others out.
    return private_directory(Path("/tmp") / f"ddltop-{os.getuid()}")


def private_directory(path: Path) -> Path:
    """Create `path` for this user alone and return it; raise UsageError when somebody else could enter it."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise UsageError(f"{path} is not a directory of user {os.getuid()}", f"remove it or set {ENV_RUN_DIR}")
    if status.st_mode & 0o077:
        path.chmod(0o700)
    return path


def node_name() -> str:
    """Name this node: its host name without the domain, printable characters only."""
    name = socket.gethostname().split(".")[0]
    return "".join(c for c in name if c.isprintable() and not c.isspace())[:64] or "node"


def _short(node: str) -> str:
    return blake2b(node.encode(), digest_size=4).hexdigest()


def _ipc(path: Path) -> str:
    if len(os.fsencode(path)) > MAX_SOCKET_PATH:
        raise UsageError(
            f"the socket path {path} is longer than the {MAX_SOCKET_PATH} bytes Unix allows",
            f"set {ENV_RUN_DIR} to a directory with a shorter path",
        )
    return f"ipc://{path}"

"""The ranks of this node: who has said hello, and whose process is gone."""

from collections.abc import Callable
from pathlib import Path

from ddltop.wire.messages import RankBye, RankHello


def is_alive(pid: int) -> bool:
    """Tell whether a process of that number exists and is no zombie."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        return status.rpartition(")")[2].split()[0] != "Z"
    except (OSError, IndexError):
        return False


class Members:
    """Track the ranks of one node by the epoch of their process."""

    def __init__(self, is_alive: Callable[[int], bool] = is_alive) -> None:
        self._is_alive = is_alive
        self._present: dict[str, RankHello] = {}
        self._gone: set[str] = set()

    @property
    def has_met_any(self) -> bool:
        """Tell whether any rank has ever said hello."""
        return bool(self._present or self._gone)

    @property
    def is_empty(self) -> bool:
        """Tell whether no rank is left."""
        return not self._present

    @property
    def pids(self) -> dict[int, int]:
        """Map rank to process id for the ranks that are present."""
        # The sensors' thread asks while the agent's own adds and removes: a copy is taken in one go.
        return {hello.rank: hello.pid for hello in tuple(self._present.values())}

    def greet(self, hello: RankHello) -> bool:
        """Note a rank; tell whether this is new: a first hello or changed facts."""
        if hello.epoch in self._gone or self._present.get(hello.epoch) == hello:
            return False
        self._present[hello.epoch] = hello
        return True

    def leave(self, bye: RankBye) -> None:
        """Note a rank that has said goodbye."""
        if self._present.pop(bye.epoch, None) is not None:
            self._gone.add(bye.epoch)

    def find_lost(self) -> list[RankBye]:
        """Give a goodbye in the name of every rank whose process is gone without one."""
        lost = [hello for hello in self._present.values() if not self._is_alive(hello.pid)]
        byes = [RankBye(epoch=hello.epoch, rank=hello.rank, reason="lost") for hello in lost]
        for bye in byes:
            self.leave(bye)
        return byes

    def hellos(self) -> tuple[RankHello, ...]:
        """Give the hello of every rank present, for a collector that has just come."""
        return tuple(self._present.values())

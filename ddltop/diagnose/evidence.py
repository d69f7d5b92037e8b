"""What a rule may look at."""

from dataclasses import dataclass

from ddltop.model.assessment import Assessment
from ddltop.model.wait import Arrivals
from ddltop.model.window import Window


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Evidence:
    """A window of steps and all that has been derived from it."""

    window: Window
    arrivals: Arrivals
    assessment: Assessment
    rank_nodes: dict[int, str]  # rank -> node
    world_size: int
    backend: str
    device: str

    def label(self, rank: int) -> str:
        """Name a rank as the screen does: r3@node1."""
        return f"r{rank}@{self.rank_nodes.get(rank, '?')}"

"""What the user has chosen to see; one immutable value that every picture is made from."""

from dataclasses import dataclass
from enum import StrEnum

from ddltop.collector.snapshot import Snapshot


class Page(StrEnum):
    """What fills the screen."""

    OVERVIEW = "overview"
    FINDINGS = "findings"
    HELP = "help"


class Sort(StrEnum):
    """Order of the ranks."""

    LATE = "latest first"
    RANK = "by rank"
    T_ITER = "slowest first"


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A snapshot and how to look at it; `age_s` is the time since the snapshot came."""

    snapshot: Snapshot | None
    page: Page = Page.OVERVIEW
    sort: Sort = Sort.LATE
    scroll: int = 0
    age_s: float = 0.0
    is_replay: bool = False
    is_paused: bool = False
    refresh_s: float = 0.5
    message: str = ""

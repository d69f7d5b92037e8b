"""What a rule returns: a finding without its history, or what it lacks to have an opinion."""

from collections.abc import Callable
from dataclasses import dataclass

from ddltop.diagnose.evidence import Evidence
from ddltop.diagnose.finding import Code, Severity
from ddltop.diagnose.policy import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A finding of one look; fields as in `Finding`."""

    code: Code
    severity: Severity
    ranks: tuple[int, ...]
    nodes: tuple[str, ...]
    share_of_time: float
    evidence: dict[str, float]
    why: str
    next_step: str
    since_step: int | None = None  # where in the window it began; None: all of the window


@dataclass(frozen=True, slots=True, kw_only=True)
class Abstention:
    """A rule without an opinion: `missing` says what it would need."""

    codes: tuple[Code, ...]
    missing: str


Verdict = list[Draft] | Abstention
Rule = Callable[[Evidence, Policy], Verdict]

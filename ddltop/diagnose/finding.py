"""What the diagnosis says: a finding, its code and its severity."""

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """How much a finding matters; a healthy run has none of WARNING or above."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"

    @property
    def order(self) -> int:
        """Rank the severity: 0 info, 1 warning, 2 critical."""
        return list(Severity).index(self)


class Code(StrEnum):
    """Finding codes; each has an entry in docs/diagnoses.md."""

    INPUT_BOUND = "input-bound"
    COMM_BANDWIDTH_BOUND = "comm-bandwidth-bound"
    COMPUTE_BOUND = "compute-bound"
    INPUT_STRAGGLER = "input-straggler"
    FORWARD_STRAGGLER = "forward-straggler"
    BACKWARD_STRAGGLER = "backward-straggler"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One cause of lost time, by name, with its evidence and what to do."""

    code: Code
    severity: Severity
    ranks: tuple[int, ...]
    nodes: tuple[str, ...]
    share_of_time: float  # of t_iter, 0..1
    evidence: dict[str, float]  # figure with its unit in the name -> value
    why: str
    next_step: str
    first_step: int
    last_step: int
    is_active: bool = True

"""The parts of a step as pictures show them: one meaning, one word, one glyph, one colour role, everywhere."""

from dataclasses import dataclass
from enum import StrEnum

from ddltop.model.assessment import GapKind, GapPart, PhaseMeans


class Role(StrEnum):
    """What a colour or a glyph means."""

    INPUT = "input"
    COMPUTE = "compute"
    BACKWARD = "backward"
    HIDDEN = "hidden"
    WAIT = "wait"
    TRANSFER = "transfer"
    COLLECTIVE = "collective"
    UPDATE = "update"
    REST = "rest"


GLYPHS: dict[Role, str] = {
    Role.INPUT: "▚",
    Role.COMPUTE: "█",
    Role.BACKWARD: "█",
    Role.HIDDEN: "▓",
    Role.WAIT: "░",
    Role.TRANSFER: "▒",
    Role.COLLECTIVE: "▞",
    Role.UPDATE: "▄",
    Role.REST: "·",
}

ASCII_GLYPHS: dict[Role, str] = {
    Role.INPUT: "i",
    Role.COMPUTE: "#",
    Role.BACKWARD: "B",
    Role.HIDDEN: "%",
    Role.WAIT: ".",
    Role.TRANSFER: "=",
    Role.COLLECTIVE: "c",
    Role.UPDATE: "u",
    Role.REST: "-",
}


# Sums of measured times differ by rounding.
NOTHING_S = 1e-7
_COMMUNICATION = (Role.HIDDEN, Role.WAIT, Role.TRANSFER, Role.COLLECTIVE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part of a step, seconds."""

    role: Role
    label: str
    seconds: float


def step_parts(means: PhaseMeans) -> tuple[Part, ...]:
    """Cut a step into parts that add up to t_iter, in the order in which they happen; unmeasured parts are left out.

    Hidden communication runs beside backward, so it is shown as the part of backward that carries it.
    """
    backward, hidden = means.t_b, means.hidden_comm
    carried = min(hidden, backward) if hidden is not None and backward is not None else None
    plain = backward - carried if backward is not None and carried is not None else backward
    exposed = means.exposed_transfer if means.exposed_wait is not None else means.t_c_no
    collectives = means.exposed_collectives or 0.0
    candidates = (
        (Role.INPUT, "input", _sum(means.t_io, means.t_h2d)),
        (Role.COMPUTE, "forward", means.t_f),
        (Role.BACKWARD, "backward", plain),
        (Role.HIDDEN, "+hidden comm", carried),
        (Role.WAIT, "wait", means.exposed_wait),
        (Role.TRANSFER, "transfer", exposed - collectives if exposed is not None else None),
        (Role.COLLECTIVE, "collectives", collectives),
        (Role.UPDATE, "update", means.t_u),
        (Role.REST, "rest", means.rest),
    )
    return tuple(
        Part(role=role, label=label, seconds=max(0.0, seconds))
        for role, label, seconds in candidates
        # A lone worker communicates nothing: no part, rather than one of 0.0.
        if seconds is not None and (seconds > NOTHING_S or role not in _COMMUNICATION)
    )


GAP_ROLES: dict[GapKind, Role] = {
    GapKind.PREDICTED_COMM: Role.TRANSFER,
    GapKind.SLOWER_TRANSFER: Role.TRANSFER,
    GapKind.WAIT: Role.WAIT,
    GapKind.LOST_OVERLAP: Role.TRANSFER,
    GapKind.OTHER_COMM: Role.COLLECTIVE,
    GapKind.INPUT: Role.INPUT,
    GapKind.H2D: Role.INPUT,
    GapKind.SLOWER_COMPUTE: Role.COMPUTE,
    GapKind.UPDATE: Role.UPDATE,
    GapKind.UNEXPLAINED: Role.REST,
}

GAP_LABELS: dict[GapKind, str] = {
    GapKind.PREDICTED_COMM: "unavoidable transfer",
    GapKind.SLOWER_TRANSFER: "slower transfer",
    GapKind.WAIT: "wait for late ranks",
    GapKind.LOST_OVERLAP: "lost overlap",
    GapKind.OTHER_COMM: "other collectives",
    GapKind.INPUT: "input",
    GapKind.H2D: "host to device",
    GapKind.SLOWER_COMPUTE: "slower computing",
    GapKind.UPDATE: "update",
    GapKind.UNEXPLAINED: "unexplained",
}


# A part of the gap below this share of it is shown together with the other small ones.
SMALL_SHARE = 0.02


def gap_parts(gap: tuple[GapPart, ...]) -> tuple[Part, ...]:
    """Give the parts of the gap, largest first, the small ones as one "other": they still add up, seconds."""
    threshold = SMALL_SHARE * sum(abs(part.seconds) for part in gap)
    parts = [
        Part(role=GAP_ROLES[part.part], label=GAP_LABELS[part.part], seconds=part.seconds)
        for part in sorted(gap, key=lambda part: -part.seconds)
        if abs(part.seconds) > threshold
    ]
    other = sum(part.seconds for part in gap if abs(part.seconds) <= threshold)
    if parts and abs(other) > threshold / 2:
        parts.append(Part(role=Role.REST, label="other", seconds=other))
    return tuple(parts)


def _sum(first: float | None, second: float | None) -> float | None:
    known = [value for value in (first, second) if value is not None]
    return sum(known) if known else None

"""The parts of one iteration, in the words of the performance model (arXiv 1711.05979)."""

from enum import StrEnum


class Phase(StrEnum):
    """One part of an optimizer step, in seconds.

    T_IO + T_H2D + T_F + T_B + T_C_NO + T_U + REST = T_ITER. T_C is all communication, T_C_NO the part
    of it that backward does not hide.
    """

    T_ITER = "t_iter"
    T_IO = "t_io"
    T_H2D = "t_h2d"
    T_F = "t_f"
    T_B = "t_b"
    T_C = "t_c"
    T_C_NO = "t_c_no"
    T_U = "t_u"
    REST = "rest"


PHASES: tuple[Phase, ...] = tuple(Phase)
"""Column order of every phase matrix, on the wire and in memory."""

PHASE_INDEX: dict[Phase, int] = {phase: i for i, phase in enumerate(PHASES)}

ADDITIVE_PHASES: tuple[Phase, ...] = (
    Phase.T_IO,
    Phase.T_H2D,
    Phase.T_F,
    Phase.T_B,
    Phase.T_C_NO,
    Phase.T_U,
    Phase.REST,
)
"""The phases that add up to T_ITER."""

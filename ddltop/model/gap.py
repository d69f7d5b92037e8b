"""Why N workers are not N times as fast: t_iter(N) - t_iter(1) in named parts that add up."""

from dataclasses import dataclass

from ddltop.model.assessment import GapKind, GapPart, PhaseMeans


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What the schedule (8)-(10) says of this model on this network, seconds."""

    t_c: float
    t_c_no: float
    t_c_no_low: float  # with the network at its fast quarter
    t_c_no_high: float  # and at its slow quarter


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """What a step's all-reduces do in all, hidden or not, mean seconds."""

    transfer: float
    wait: float  # of the typical ranks


def split_gap(
    *,
    t_iter_n: float,
    t_iter_1: float,
    typical: PhaseMeans,
    on_the_wire: Wire | None,
    predicted: Prediction | None,
) -> tuple[GapPart, ...]:
    """Split t_iter(N) - t_iter(1), seconds; `typical` are the means of the typical ranks.

    All parts come, in GapKind order; UNEXPLAINED takes what no measurement names, so the sum is exact.
    """
    seconds = dict.fromkeys(GapKind, 0.0)
    seconds |= _communication(typical, on_the_wire, predicted)
    seconds |= _input_and_computing(typical, t_iter_1)
    named = sum(seconds.values())
    seconds[GapKind.UNEXPLAINED] = t_iter_n - t_iter_1 - named
    return tuple(GapPart(part=kind, seconds=seconds[kind], share=seconds[kind] / t_iter_n) for kind in GapKind)


def _communication(typical: PhaseMeans, on_the_wire: Wire | None, predicted: Prediction | None) -> dict[GapKind, float]:
    """Split exposed communication: wait, what the model expects, slower transfer, lost overlap, other collectives."""
    if typical.t_c_no is None:
        return {}
    wait = min(typical.exposed_wait or 0.0, typical.t_c_no)
    exposed = typical.t_c_no - wait
    other = min(typical.exposed_collectives or 0.0, exposed)
    if predicted is None:
        return {GapKind.WAIT: wait, GapKind.OTHER_COMM: other}
    exposed -= other
    expected = min(predicted.t_c_no, exposed)
    excess = exposed - expected
    slower = pushed_out = 0.0
    if on_the_wire is not None:
        # Gradients that took longer on the wire than predicted explain so much of the excess, and no more.
        slower = min(excess, max(0.0, on_the_wire.transfer - predicted.t_c))
        # A wait behind backward costs nothing itself, but delays every later bucket by as much.
        pushed_out = min(excess - slower, max(0.0, on_the_wire.wait - wait))
    return {
        GapKind.WAIT: wait + pushed_out,
        GapKind.PREDICTED_COMM: expected,
        GapKind.SLOWER_TRANSFER: slower,
        GapKind.LOST_OVERLAP: excess - slower - pushed_out,
        GapKind.OTHER_COMM: other,
    }


def _input_and_computing(typical: PhaseMeans, t_iter_1: float) -> dict[GapKind, float]:
    """Name the input that computing did not hide (or, input-bound, the computing that input did not hide)."""
    io, h2d = typical.t_io or 0.0, typical.t_h2d or 0.0
    computing = (typical.t_f or 0.0) + (typical.t_b or 0.0) + (typical.t_u or 0.0)
    own = max(io + h2d, computing)
    is_computing_longer = computing >= io + h2d
    parts = {GapKind.INPUT: io, GapKind.H2D: h2d} if is_computing_longer else {GapKind.INPUT: computing}
    # Against a baseline of another run the same work may take longer or shorter here.
    parts[GapKind.SLOWER_COMPUTE] = own - t_iter_1
    return parts

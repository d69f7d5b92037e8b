"""Pack steps into the columns of the wire; little-endian, no numpy: a training script may lack it."""

import sys
from array import array
from collections.abc import Iterable, Sequence

from ddltop.wire.collectives import DTYPES
from ddltop.wire.messages import RankSteps
from ddltop.wire.phases import PHASES

from .assembly import StepMeasure

_DTYPE_CODES = {dtype: code for code, dtype in enumerate(DTYPES)}


def pack_steps(
    measures: Sequence[StepMeasure],
    *,
    epoch: str,
    rank: int,
    seq: int,
    wall_minus_perf_ns: int,
    dropped: int,
    overhead_us: float,
) -> RankSteps:
    """Pack steps into one message; `wall_minus_perf_ns` turns perf_counter into wall-clock nanoseconds."""
    buckets = [bucket for measure in measures for bucket in measure.buckets]
    collectives = [sums for measure in measures for sums in measure.collectives]
    return RankSteps(
        epoch=epoch,
        rank=rank,
        seq=seq,
        steps=_pack("I", (m.step for m in measures)),
        start_us=_pack("Q", ((m.start_ns + wall_minus_perf_ns) // 1000 for m in measures)),
        phases=_pack("f", (getattr(m, phase) for m in measures for phase in PHASES)),
        num_samples=_pack("f", (m.num_samples for m in measures)),
        num_micro_steps=_pack("H", (min(m.num_micro_steps, 65535) for m in measures)),
        flags=_pack("B", (m.flags for m in measures)),
        backward_start=_pack("f", (m.backward_start for m in measures)),
        backward_end=_pack("f", (m.backward_end for m in measures)),
        bucket_counts=_pack("H", (len(m.buckets) for m in measures)),
        bucket_index=_pack("H", (b.index for b in buckets)),
        bucket_nbytes=_pack("Q", (b.nbytes for b in buckets)),
        bucket_ready=_pack("f", (b.ready for b in buckets)),
        bucket_start=_pack("f", (b.start for b in buckets)),
        bucket_end=_pack("f", (b.end for b in buckets)),
        bucket_dtype=_pack("B", (_DTYPE_CODES.get(b.dtype, 0) for b in buckets)),
        num_tokens=_pack("f", (m.num_tokens for m in measures)),
        evaluation=_pack("f", (m.evaluation for m in measures)),
        host_ahead=_pack("f", (m.host_ahead for m in measures)),
        collective_counts=_pack("H", (len(m.collectives) for m in measures)),
        collective_kind=_pack("B", (c.kind for c in collectives)),
        collective_place=_pack("B", (c.place for c in collectives)),
        collective_calls=_pack("H", (min(c.num_calls, 65535) for c in collectives)),
        collective_nbytes=_pack("Q", (c.nbytes for c in collectives)),
        collective_exposed=_pack("f", (c.exposed for c in collectives)),
        dropped=dropped,
        overhead_us=overhead_us,
    )


def _pack(typecode: str, values: Iterable[float]) -> bytes:
    column = array(typecode, values)
    if sys.byteorder == "big":
        column.byteswap()
    return column.tobytes()

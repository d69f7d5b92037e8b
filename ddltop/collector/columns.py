"""Unpack and check the columns of a RankSteps message: sizes agree, values are finite or NaN, in range.

Legend: S steps, P phases, K bucket records of all steps.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ddltop.errors import WireError
from ddltop.wire.messages import RankSteps
from ddltop.wire.phases import PHASES

# No phase of a step lasts a day, and none is negative beyond the rounding of float32.
MAX_SECONDS = 86_400.0
MIN_SECONDS = -1e-3
MAX_BUCKETS_PER_STEP = 1024
MAX_BUCKET_BYTES = 2**40


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepColumns:
    """The arrays of one RankSteps message."""

    steps_S: NDArray[np.int64]
    phases_SP: NDArray[np.float32]
    num_samples_S: NDArray[np.float32]
    num_micro_steps_S: NDArray[np.float32]
    backward_S2: NDArray[np.float32]  # start, end
    bucket_counts_S: NDArray[np.int64]
    bucket_nbytes_K: NDArray[np.float64]
    bucket_times_K3: NDArray[np.float32]  # ready, start, end


def unpack_steps(message: RankSteps) -> StepColumns:
    """Unpack; raise WireError naming the first column that is wrong."""
    steps = _column(message.steps, "<u4", None, "steps").astype(np.int64)
    num_steps = steps.size
    if num_steps == 0:
        raise _wrong("steps", "is empty")
    if np.any(np.diff(steps) <= 0):
        raise _wrong("steps", "does not increase")
    counts = _column(message.bucket_counts, "<u2", num_steps, "bucket_counts").astype(np.int64)
    if counts.max(initial=0) > MAX_BUCKETS_PER_STEP:
        raise _wrong("bucket_counts", f"is above {MAX_BUCKETS_PER_STEP}")
    num_buckets = int(counts.sum())
    phases = _seconds(message.phases, num_steps * len(PHASES), "phases").reshape(num_steps, len(PHASES))
    samples = _column(message.num_samples, "<f4", num_steps, "num_samples")
    if np.any(np.isinf(samples) | (samples < 0)):
        raise _wrong("num_samples", "is infinite or negative")
    backward = [_seconds(getattr(message, name), num_steps, name) for name in ("backward_start", "backward_end")]
    times = [
        _seconds(getattr(message, name), num_buckets, name) for name in ("bucket_ready", "bucket_start", "bucket_end")
    ]
    nbytes = _column(message.bucket_nbytes, "<u8", num_buckets, "bucket_nbytes")
    if nbytes.max(initial=0) > MAX_BUCKET_BYTES:
        raise _wrong("bucket_nbytes", "is above 1 TiB")
    return StepColumns(
        steps_S=steps,
        phases_SP=phases,
        num_samples_S=samples,
        num_micro_steps_S=_column(message.num_micro_steps, "<u2", num_steps, "num_micro_steps").astype(np.float32),
        backward_S2=np.stack(backward, axis=1),
        bucket_counts_S=counts,
        bucket_nbytes_K=nbytes.astype(np.float64),
        bucket_times_K3=np.stack(times, axis=1),
    )


def _column(blob: bytes, dtype: str, size: int | None, name: str) -> NDArray[Any]:
    item_bytes = np.dtype(dtype).itemsize
    if len(blob) % item_bytes:
        raise _wrong(name, f"has {len(blob)} bytes, no multiple of {item_bytes}")
    column = np.frombuffer(blob, dtype=dtype)
    if size is not None and column.size != size:
        raise _wrong(name, f"has {column.size} values, expected {size}")
    return column


def _seconds(blob: bytes, size: int, name: str) -> NDArray[np.float32]:
    column = _column(blob, "<f4", size, name).astype(np.float32)
    if np.any(np.isinf(column) | (column > MAX_SECONDS) | (column < MIN_SECONDS)):
        raise _wrong(name, f"has a value outside {MIN_SECONDS}..{MAX_SECONDS:.0f} s")
    return column


def _wrong(name: str, what: str) -> WireError:
    return WireError(f"column {name} of a rank_steps message {what}", "run the same ddltop version on all nodes")

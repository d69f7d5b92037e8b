"""Unpack and check the columns of a RankSteps message: sizes agree, values are finite or NaN, in range.

Legend: S steps, P phases, K bucket records and G records of other collectives of all steps.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ddltop.errors import WireError
from ddltop.wire.collectives import COLLECTIVE_KINDS, COLLECTIVE_PLACES, DTYPES
from ddltop.wire.messages import RankSteps
from ddltop.wire.phases import PHASES

# No phase of a step lasts a day, and none is negative beyond the rounding of float32.
MAX_SECONDS = 86_400.0
MIN_SECONDS = -1e-3
MAX_BUCKETS_PER_STEP = 1024
MAX_BUCKET_BYTES = 2**40
MAX_COLLECTIVES_PER_STEP = len(COLLECTIVE_KINDS) * len(COLLECTIVE_PLACES)
MAX_COLLECTIVE_BYTES = 2**50


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
    bucket_dtype_K: NDArray[np.uint8]  # position in DTYPES
    num_tokens_S: NDArray[np.float32]
    evaluation_S: NDArray[np.float32]
    host_ahead_S: NDArray[np.float32]
    flags_S: NDArray[np.uint8]
    collective_counts_S: NDArray[np.int64]
    collective_key_G2: NDArray[np.uint8]  # position in COLLECTIVE_KINDS, in COLLECTIVE_PLACES
    collective_sums_G3: NDArray[np.float32]  # calls, bytes, seconds exposed


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
    backward = [_seconds(getattr(message, name), num_steps, name) for name in ("backward_start", "backward_end")]
    times = [
        _seconds(getattr(message, name), num_buckets, name) for name in ("bucket_ready", "bucket_start", "bucket_end")
    ]
    nbytes = _column(message.bucket_nbytes, "<u8", num_buckets, "bucket_nbytes")
    if nbytes.max(initial=0) > MAX_BUCKET_BYTES:
        raise _wrong("bucket_nbytes", "is above 1 TiB")
    collective_counts, keys, sums = _collectives(message, num_steps)
    return StepColumns(
        steps_S=steps,
        phases_SP=phases,
        num_samples_S=_counts(message.num_samples, num_steps, "num_samples"),
        num_micro_steps_S=_column(message.num_micro_steps, "<u2", num_steps, "num_micro_steps").astype(np.float32),
        backward_S2=np.stack(backward, axis=1),
        bucket_counts_S=counts,
        bucket_nbytes_K=nbytes.astype(np.float64),
        bucket_times_K3=np.stack(times, axis=1),
        bucket_dtype_K=_codes(message.bucket_dtype or bytes(num_buckets), num_buckets, len(DTYPES), "bucket_dtype"),
        num_tokens_S=_counts(message.num_tokens or _nan(num_steps), num_steps, "num_tokens"),
        evaluation_S=_seconds(message.evaluation or _nan(num_steps), num_steps, "evaluation"),
        host_ahead_S=_seconds(message.host_ahead or _nan(num_steps), num_steps, "host_ahead"),
        flags_S=_column(message.flags, "<u1", num_steps, "flags"),
        collective_counts_S=collective_counts,
        collective_key_G2=keys,
        collective_sums_G3=sums,
    )


def _collectives(
    message: RankSteps, num_steps: int
) -> tuple[NDArray[np.int64], NDArray[np.uint8], NDArray[np.float32]]:
    """Unpack the sums of other collectives: how many a step has, whose they are, what they come to."""
    blob = message.collective_counts or bytes(2 * num_steps)
    counts = _column(blob, "<u2", num_steps, "collective_counts").astype(np.int64)
    if counts.max(initial=0) > MAX_COLLECTIVES_PER_STEP:
        raise _wrong("collective_counts", f"is above {MAX_COLLECTIVES_PER_STEP}")
    size = int(counts.sum())
    kinds = _codes(message.collective_kind, size, len(COLLECTIVE_KINDS), "collective_kind")
    places = _codes(message.collective_place, size, len(COLLECTIVE_PLACES), "collective_place")
    calls = _column(message.collective_calls, "<u2", size, "collective_calls")
    nbytes = _column(message.collective_nbytes, "<u8", size, "collective_nbytes")
    if nbytes.max(initial=0) > MAX_COLLECTIVE_BYTES:
        raise _wrong("collective_nbytes", "is above 1 PiB")
    exposed = _seconds(message.collective_exposed, size, "collective_exposed")
    sums = np.stack([calls.astype(np.float32), nbytes.astype(np.float32), exposed], axis=1)
    return counts, np.stack([kinds, places], axis=1), sums


def _nan(size: int) -> bytes:
    return np.full(size, np.nan, dtype="<f4").tobytes()


def _counts(blob: bytes, size: int, name: str) -> NDArray[np.float32]:
    column: NDArray[np.float32] = _column(blob, "<f4", size, name)
    if np.any(np.isinf(column) | (column < 0)):
        raise _wrong(name, "is infinite or negative")
    return column


def _codes(blob: bytes, size: int, num_codes: int, name: str) -> NDArray[np.uint8]:
    column: NDArray[np.uint8] = _column(blob, "<u1", size, name)
    if column.max(initial=0) >= num_codes:
        raise _wrong(name, f"has a code above {num_codes - 1}")
    return column


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

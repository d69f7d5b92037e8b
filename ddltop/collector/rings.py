"""The bounded memory of a run: the newest steps of all ranks, as arrays.

Legend: C slots (a step s lives in slot s % C), R ranks, P phases, F further figures of a step, B buckets.
float32 seconds, NaN is not measured or not arrived.
"""

import numpy as np
from numpy.typing import NDArray

from ddltop.collector.columns import StepColumns
from ddltop.model.window import Collectives, Window
from ddltop.wire.collectives import COLLECTIVE_KINDS, COLLECTIVE_PLACES, DTYPES
from ddltop.wire.phases import PHASE_INDEX, PHASES, Phase

MEMORY_BYTES = 64 * 2**20
MIN_SLOTS, MAX_SLOTS = 256, 65_536
MIN_BUCKET_SLOTS = 64
# Kinds of collectives that memory is laid out for, and that are kept at most: rarer ones are left out.
USUAL_COLLECTIVES, MAX_COLLECTIVES = 4, 12

Array = NDArray[np.float32]

# F: num_samples, num_micro_steps, num_tokens, evaluation, host_ahead, backward_start, backward_end
_NUM_FIGURES = 7


class StepRing:
    """Steps of one generation of a run: fixed ranks; the buckets may change their layout once or twice."""

    def __init__(self, num_ranks: int, memory_bytes: int = MEMORY_BYTES) -> None:
        self.num_ranks = num_ranks
        self._memory_bytes = memory_bytes
        bytes_per_slot = num_ranks * ((len(PHASES) + _NUM_FIGURES + 3 * USUAL_COLLECTIVES) * 4 + 1)
        self.num_slots = int(np.clip(memory_bytes // 2 // bytes_per_slot, MIN_SLOTS, MAX_SLOTS))
        self._step_of_slot_C = np.full(self.num_slots, -1, dtype=np.int64)
        self._phases_CRP = self._empty(self.num_slots, num_ranks, len(PHASES))
        self._figures_CRF = self._empty(self.num_slots, num_ranks, _NUM_FIGURES)
        self._flags_CR = np.zeros((self.num_slots, num_ranks), dtype=np.uint8)
        self._collectives_CR3: dict[tuple[int, int], Array] = {}  # by kind and place: calls, bytes, exposed
        self._bucket_nbytes_B: NDArray[np.float64] = np.empty(0)
        self._bucket_dtypes_B: NDArray[np.uint8] = np.empty(0, dtype=np.uint8)
        self._buckets_since = 0
        self._num_bucket_slots = 0
        self._bucket_step_of_slot_C = np.empty(0, dtype=np.int64)
        self._buckets_CRB3 = self._empty(0, num_ranks, 0, 3)

    def put(self, rank: int, columns: StepColumns) -> None:
        """Store the steps of one rank; steps older than the ring are ignored."""
        newest = int(self._step_of_slot_C.max())
        fresh = columns.steps_S > newest - self.num_slots
        if columns.steps_S.size > self.num_slots:
            fresh[: -self.num_slots] = False
        steps = columns.steps_S[fresh]
        if steps.size:
            slots = steps % self.num_slots
            self._claim(slots, steps)
            self._phases_CRP[slots, rank] = columns.phases_SP[fresh]
            self._figures_CRF[slots, rank] = _figures_SF(columns)[fresh]
            self._flags_CR[slots, rank] = columns.flags_S[fresh]
            self._put_collectives(rank, columns, fresh)
        self._put_buckets(rank, columns)

    def window(self, first_step: int, last_step: int, ranks: list[int]) -> Window:
        """Give the steps first..last (inclusive) that the ring still holds, for the given ranks."""
        wanted = np.arange(max(0, first_step, last_step - self.num_slots + 1), last_step + 1)
        steps = wanted[self._step_of_slot_C[wanted % self.num_slots] == wanted]
        slots = steps % self.num_slots
        nbytes, buckets = self._bucket_window(steps, ranks)
        phases = self._phases_CRP[slots][:, ranks].astype(np.float64)
        figures = self._figures_CRF[slots][:, ranks].astype(np.float64)
        is_detailed = np.isfinite(phases[..., PHASE_INDEX[Phase.REST]])
        return Window(
            steps_S=steps,
            ranks=tuple(ranks),
            phases_SRP=phases,
            num_samples_SR=figures[..., 0],
            num_micro_steps_SR=figures[..., 1],
            num_tokens_SR=figures[..., 2],
            evaluation_SR=figures[..., 3],
            host_ahead_SR=figures[..., 4],
            backward_start_SR=figures[..., 5],
            backward_end_SR=figures[..., 6],
            flags_SR=self._flags_CR[slots][:, ranks],
            bucket_dtypes_B=tuple(DTYPES[code] for code in self._bucket_dtypes_B),
            collectives=self._collective_window(slots, ranks, is_detailed),
            bucket_nbytes_B=nbytes,
            bucket_ready_SRB=buckets[..., 0],
            bucket_start_SRB=buckets[..., 1],
            bucket_end_SRB=buckets[..., 2],
        )

    def _claim(self, slots: NDArray[np.int64], steps: NDArray[np.int64]) -> None:
        """Clear the slots that still hold an older step."""
        stale = slots[self._step_of_slot_C[slots] != steps]
        for array in (self._phases_CRP, self._figures_CRF, *self._collectives_CR3.values()):
            array[stale] = np.nan
        self._flags_CR[stale] = 0
        self._step_of_slot_C[slots] = steps

    def _put_collectives(self, rank: int, columns: StepColumns, fresh: NDArray[np.bool_]) -> None:
        step_of_G = np.repeat(np.arange(columns.steps_S.size), columns.collective_counts_S)
        for key in {(int(kind), int(place)) for kind, place in columns.collective_key_G2}:
            if key not in self._collectives_CR3:
                if len(self._collectives_CR3) >= MAX_COLLECTIVES:
                    continue
                self._collectives_CR3[key] = self._empty(self.num_slots, self.num_ranks, 3)
            chosen_G = (columns.collective_key_G2 == key).all(axis=1) & fresh[step_of_G]
            slots = columns.steps_S[step_of_G[chosen_G]] % self.num_slots
            self._collectives_CR3[key][slots, rank] = columns.collective_sums_G3[chosen_G]

    def _collective_window(
        self, slots: NDArray[np.int64], ranks: list[int], is_detailed_SR: NDArray[np.bool_]
    ) -> tuple[Collectives, ...]:
        found = []
        for (kind, place), held_CR3 in sorted(self._collectives_CR3.items()):
            sums = held_CR3[slots][:, ranks].astype(np.float64)
            sums[np.isnan(sums) & is_detailed_SR[:, :, None]] = 0.0
            if np.any(sums[..., 0] > 0):
                found.append(
                    Collectives(
                        kind=COLLECTIVE_KINDS[kind],
                        place=COLLECTIVE_PLACES[place],
                        calls_SR=sums[..., 0],
                        nbytes_SR=sums[..., 1],
                        exposed_SR=sums[..., 2],
                    )
                )
        return tuple(found)

    def _put_buckets(self, rank: int, columns: StepColumns) -> None:
        ends = np.cumsum(columns.bucket_counts_S)
        for step, end, count in zip(columns.steps_S, ends, columns.bucket_counts_S, strict=True):
            if not count:
                continue
            rows = slice(end - count, end)
            if not self._fits_layout(columns.bucket_nbytes_K[rows], int(step)):
                continue
            self._bucket_dtypes_B = columns.bucket_dtype_K[rows]
            slot = int(step) % self._num_bucket_slots
            if self._bucket_step_of_slot_C[slot] > step:
                continue
            if self._bucket_step_of_slot_C[slot] != step:
                self._bucket_step_of_slot_C[slot] = step
                self._buckets_CRB3[slot] = np.nan
            self._buckets_CRB3[slot, rank] = columns.bucket_times_K3[rows]

    def _fits_layout(self, nbytes_B: NDArray[np.float64], step: int) -> bool:
        """Tell whether a step has the present buckets; a later step with others starts a new layout.

        DDP rebuilds its buckets after the first step, in the order in which gradients arrived.
        """
        if np.array_equal(nbytes_B, self._bucket_nbytes_B):
            return True
        if step < self._buckets_since:
            return False
        self._bucket_nbytes_B = nbytes_B.copy()
        self._buckets_since = step
        room = self._memory_bytes // 2 // max(1, self.num_ranks * nbytes_B.size * 12)
        self._num_bucket_slots = int(np.clip(room, MIN_BUCKET_SLOTS, self.num_slots))
        self._bucket_step_of_slot_C = np.full(self._num_bucket_slots, -1, dtype=np.int64)
        self._buckets_CRB3 = self._empty(self._num_bucket_slots, self.num_ranks, nbytes_B.size, 3)
        return True

    def _bucket_window(
        self, steps_S: NDArray[np.int64], ranks: list[int]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        num_buckets = self._bucket_nbytes_B.size
        times = np.full((steps_S.size, len(ranks), num_buckets, 3), np.nan)
        if num_buckets:
            slots = steps_S % self._num_bucket_slots
            held = self._bucket_step_of_slot_C[slots] == steps_S
            times[held] = self._buckets_CRB3[slots[held]][:, ranks]
        return self._bucket_nbytes_B.copy(), times

    @staticmethod
    def _empty(*shape: int) -> Array:
        return np.full(shape, np.nan, dtype=np.float32)


def _figures_SF(columns: StepColumns) -> Array:
    return np.column_stack(
        [
            columns.num_samples_S,
            columns.num_micro_steps_S,
            columns.num_tokens_S,
            columns.evaluation_S,
            columns.host_ahead_S,
            columns.backward_S2,
        ]
    )

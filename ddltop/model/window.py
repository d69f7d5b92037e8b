"""Measurements of consecutive steps on all ranks: what the model and the diagnosis look at.

Legend: S steps, R ranks, P phases (`PHASES` order), B buckets in launch order. Times are float64 seconds;
NaN means not measured. Bucket and backward times count from the start of the same rank's step, so no two
ranks' clocks are ever compared.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ddltop.wire.collectives import CollectiveKind, CollectivePlace
from ddltop.wire.phases import PHASE_INDEX, Phase

# Kinds that no rank leaves before the last one has entered: who stays longest came first.
SYNCHRONISING = frozenset(
    (
        CollectiveKind.ALL_REDUCE,
        CollectiveKind.ALL_GATHER,
        CollectiveKind.REDUCE_SCATTER,
        CollectiveKind.ALL_TO_ALL,
        CollectiveKind.BARRIER,
    )
)

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Collectives:
    """Calls of one kind from one part of the step, DDP's buckets apart; 0 in a step without any."""

    kind: CollectiveKind
    place: CollectivePlace
    calls_SR: Floats
    nbytes_SR: Floats
    exposed_SR: Floats  # seconds that the step waited for them

    @property
    def is_synchronising(self) -> bool:
        """Tell whether no rank leaves such a call before the last one has entered it."""
        return self.kind in SYNCHRONISING


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Window:
    """Steps `steps_S` as measured on `ranks`; only steps that every live rank has completed."""

    steps_S: NDArray[np.int64]
    ranks: tuple[int, ...]
    phases_SRP: Floats
    num_samples_SR: Floats
    num_micro_steps_SR: Floats
    num_tokens_SR: Floats
    evaluation_SR: Floats  # beside the step, in no phase of it
    host_ahead_SR: Floats  # least lead of the host over the device
    flags_SR: NDArray[np.uint8]  # bits of StepFlag; 0 also where nothing has arrived
    backward_start_SR: Floats
    backward_end_SR: Floats
    bucket_nbytes_B: Floats
    bucket_ready_SRB: Floats
    bucket_start_SRB: Floats
    bucket_end_SRB: Floats
    bucket_dtypes_B: tuple[str, ...]
    collectives: tuple[Collectives, ...]

    @property
    def num_steps(self) -> int:
        """Number of steps S."""
        return int(self.steps_S.size)

    @property
    def num_ranks(self) -> int:
        """Number of ranks R."""
        return len(self.ranks)

    @property
    def num_buckets(self) -> int:
        """Number of buckets B; 0 when buckets are not timed."""
        return int(self.bucket_nbytes_B.size)

    @property
    def is_detailed_SR(self) -> NDArray[np.bool_]:
        """Where the phases are measured, and not t_iter alone, shape [S, R]."""
        return np.isfinite(self.phase_SR(Phase.REST))

    def phase_SR(self, phase: Phase) -> Floats:
        """Give one phase of every step and rank, shape [S, R], seconds."""
        return self.phases_SRP[:, :, PHASE_INDEX[phase]]

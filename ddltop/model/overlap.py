"""When buckets travel while backward computes: wait-free backpropagation, equations (8)-(10) of docs/model.md.

Legend: B buckets in launch order (the one that backward fills first comes first). Seconds from any common origin.
"""

from dataclasses import dataclass

import numpy as np

from ddltop.model.window import Floats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Schedule:
    """When each bucket's all-reduce starts and ends on a network that carries one at a time."""

    start_B: Floats
    end_B: Floats
    t_c: float  # busy time of the network
    t_c_no: float  # what remains after backward


def wfbp_schedule(ready_B: Floats, transfer_B: Floats, backward_end: float) -> Schedule:
    """(9), (10) Schedule buckets that are ready at `ready_B` and take `transfer_B`; `backward_end` on the same clock.

    Shapes [B], seconds. start(l) = max(end of the bucket before, ready(l)).
    """
    start_B = np.empty_like(ready_B)
    free = -np.inf
    for i, (ready, transfer) in enumerate(zip(ready_B, transfer_B, strict=True)):
        start_B[i] = max(free, ready)
        free = start_B[i] + transfer
    end_B = start_B + transfer_B
    last = float(end_B[-1]) if end_B.size else backward_end
    return Schedule(start_B=start_B, end_B=end_B, t_c=float(transfer_B.sum()), t_c_no=max(0.0, last - backward_end))


def ready_times(t_f: float, t_b_B: Floats) -> Floats:
    """(8) When each bucket is ready if backward spends `t_b_B` on its layers in turn, shape [B], seconds."""
    return t_f + np.cumsum(t_b_B)


def merged_schedule(transfer: float, backward_end: float) -> Schedule:
    """One all-reduce of everything after backward (SyncEASGD): nothing is hidden."""
    return Schedule(
        start_B=np.array([backward_end]), end_B=np.array([backward_end + transfer]), t_c=transfer, t_c_no=transfer
    )

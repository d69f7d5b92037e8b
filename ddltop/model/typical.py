"""The typical ranks of a window: the half with the least work of its own, which a minority of slow ranks cannot move.

t_iter(1) and the gap are read off them. A straggler's delay then shows as what it is for the others, a wait,
and not as slower computing of an average rank that does not exist.

Legend: S steps, R ranks.
"""

import numpy as np
from numpy.typing import NDArray

from ddltop.model.averages import mean_over
from ddltop.model.window import Window
from ddltop.wire.phases import Phase

_OWN_WORK = (Phase.T_IO, Phase.T_H2D, Phase.T_F, Phase.T_B, Phase.T_U, Phase.REST)


def typical_ranks(window: Window) -> NDArray[np.bool_]:
    """Mark the ranks whose mean own work is at most the lower median of all, shape [R]."""
    work_R = np.zeros(window.num_ranks)
    for phase in _OWN_WORK:
        work_R += np.nan_to_num(mean_over(window.phase_SR(phase), axis=0))
    lower_median = np.sort(work_R)[(window.num_ranks - 1) // 2]
    return np.asarray(work_R <= lower_median)

"""The job waits for data: not one rank, the typical one."""

import numpy as np

from ddltop.diagnose.draft import Abstention, Draft, Verdict
from ddltop.diagnose.evidence import Evidence
from ddltop.diagnose.finding import Code, Severity
from ddltop.diagnose.policy import Policy
from ddltop.model.averages import mean_over
from ddltop.units import format_time
from ddltop.wire.phases import Phase


def check_input_bound(evidence: Evidence, policy: Policy) -> Verdict:
    """Find out whether the typical rank spends a good part of its time waiting for the next batch."""
    window = evidence.window
    if window.num_steps < policy.min_steps:
        return Abstention(codes=(Code.INPUT_BOUND,), missing=f"{policy.min_steps} steps")
    waited_SR = np.nan_to_num(window.phase_SR(Phase.T_IO)) + np.nan_to_num(window.phase_SR(Phase.T_H2D))
    waited_R = np.sort(mean_over(waited_SR, axis=0))
    # The lower median: one slow loader is an input-straggler, not this.
    typical = float(waited_R[(waited_R.size - 1) // 2])
    t_iter = evidence.assessment.phases.t_iter
    if not t_iter or typical / t_iter < policy.input_warning_ratio:
        return []
    share = typical / t_iter
    return [
        Draft(
            code=Code.INPUT_BOUND,
            severity=Severity.CRITICAL if share >= policy.input_critical_ratio else Severity.WARNING,
            ranks=(),
            nodes=(),
            share_of_time=share,
            evidence={"typical_t_io_s": typical, "t_iter_s": t_iter},
            why=f"the typical rank waits {format_time(typical)} of every {format_time(t_iter)} step for its next batch",
            next_step=(
                "give the DataLoader more num_workers (up to the cores per rank), persistent_workers=True and a "
                "prefetch_factor of 4; if the cores are busy already, decode less: cached, smaller or packed samples"
            ),
        )
    ]

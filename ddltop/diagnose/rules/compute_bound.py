"""Nothing to complain about: the devices compute nearly all the time."""

from ddltop.diagnose.draft import Abstention, Draft, Verdict
from ddltop.diagnose.evidence import Evidence
from ddltop.diagnose.finding import Code, Severity
from ddltop.diagnose.policy import Policy
from ddltop.units import format_share, format_time


def check_compute_bound(evidence: Evidence, policy: Policy) -> Verdict:
    """Say that computing is the limit when input and exposed communication are small."""
    phases = evidence.assessment.phases
    needed = (phases.t_iter, phases.t_f, phases.t_b, phases.t_u, phases.t_c_no)
    if evidence.window.num_steps < policy.min_steps or any(value is None for value in needed):
        return Abstention(codes=(Code.COMPUTE_BOUND,), missing=f"all phases of {policy.min_steps} steps")
    t_iter = phases.t_iter or 0.0
    waited = (phases.t_io or 0.0) + (phases.t_h2d or 0.0) + (phases.t_c_no or 0.0)
    computing = (phases.t_f or 0.0) + (phases.t_b or 0.0) + (phases.t_u or 0.0)
    if t_iter <= 0 or waited / t_iter >= policy.compute_bound_ratio or computing / t_iter < 0.5:
        return []
    return [
        Draft(
            code=Code.COMPUTE_BOUND,
            severity=Severity.INFO,
            ranks=(),
            nodes=(),
            share_of_time=computing / t_iter,
            evidence={"computing_s": computing, "waiting_s": waited, "t_iter_s": t_iter},
            why=(
                f"{format_time(computing)} of every {format_time(t_iter)} step is computing; input and exposed "
                f"communication are {format_share(waited / t_iter)}"
            ),
            next_step="nothing is wrong with the scaling: only faster computing helps (mixed precision, torch.compile)",
        )
    ]

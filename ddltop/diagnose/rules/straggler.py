"""A rank that holds all the others up, named with the phase in which it loses the time.

The all-reduce makes every rank look equally slow; who enters it last does not.
"""

from ddltop.diagnose.draft import Abstention, Draft, Verdict
from ddltop.diagnose.evidence import Evidence
from ddltop.diagnose.finding import Code, Severity
from ddltop.diagnose.policy import Policy
from ddltop.diagnose.votes import Straggler, find_straggler, is_decidable
from ddltop.units import format_share, format_time
from ddltop.wire.phases import Phase

CODES = {
    Phase.T_IO: Code.INPUT_STRAGGLER,
    Phase.T_F: Code.FORWARD_STRAGGLER,
    Phase.T_B: Code.BACKWARD_STRAGGLER,
}
_WORDS = {Phase.T_IO: "waiting for its input", Phase.T_F: "in forward", Phase.T_B: "in backward"}
CRITICAL_RATIO = 0.30


def check_straggler(evidence: Evidence, policy: Policy) -> Verdict:
    """Find a rank that is last in most steps and say in which phase."""
    if not is_decidable(evidence, policy):
        return Abstention(codes=tuple(CODES.values()), missing=_missing(evidence, policy))
    straggler = find_straggler(evidence, policy)
    if straggler is None or straggler.phase is None:
        return []
    return [_draft(evidence, straggler, straggler.phase)]


def _draft(evidence: Evidence, straggler: Straggler, phase: Phase) -> Draft:
    label = evidence.label(straggler.rank)
    node = evidence.rank_nodes.get(straggler.rank, "?")
    what = "the all-reduce" if evidence.window.num_buckets else "the collectives"
    return Draft(
        code=CODES[phase],
        severity=Severity.CRITICAL if straggler.cost_share >= CRITICAL_RATIO else Severity.WARNING,
        ranks=(straggler.rank,),
        nodes=(node,),
        share_of_time=straggler.cost_share,
        evidence={
            "last_share": straggler.votes,
            "lateness_s": straggler.lateness_s,
            f"{phase.value}_excess_s": straggler.excess_s,
        },
        why=(
            f"{label} enters {what} last in {format_share(straggler.votes)} of steps, "
            f"{format_time(straggler.lateness_s)} late: it spends {format_time(straggler.excess_s)} more "
            f"than the others {_WORDS[phase]}"
        ),
        next_step=_next_step(phase, label, node),
        since_step=straggler.since_step,
    )


def _next_step(phase: Phase, label: str, node: str) -> str:
    if phase is Phase.T_IO:
        return (
            f"look at the data path of {label}: its disk or NFS mount on {node}, its DataLoader's num_workers and "
            f"prefetch_factor, larger samples in its shard"
        )
    where = "forward" if phase is Phase.T_F else "backward"
    return (
        f"compare {label} with its neighbours: clocks and temperature of its device, other processes on {node} (top), "
        f"longer samples or extra work in its {where} (py-spy dump)"
    )


def _missing(evidence: Evidence, policy: Policy) -> str:
    if evidence.window.num_ranks < 2:
        return "a second rank"
    return f"bucket times, or other collectives, of all ranks in {policy.straggler_min_steps} steps"

"""The network carries the gradients too slowly to hide them behind backward."""

from ddltop.diagnose.draft import Abstention, Draft, Verdict
from ddltop.diagnose.evidence import Evidence
from ddltop.diagnose.finding import Code, Severity
from ddltop.diagnose.policy import Policy
from ddltop.units import format_bytes, format_rate, format_share, format_time


def check_comm_bandwidth_bound(evidence: Evidence, policy: Policy) -> Verdict:
    """Find out whether exposed transfer (not waiting) is large and bandwidth, not latency, its reason."""
    phases, speed = evidence.assessment.phases, evidence.assessment.speedup
    buckets = [b for b in evidence.assessment.buckets if b.transfer_s is not None]
    if evidence.window.num_steps < policy.min_steps or phases.exposed_transfer is None or not buckets:
        return Abstention(codes=(Code.COMM_BANDWIDTH_BOUND,), missing=f"bucket times in {policy.min_steps} steps")
    if not phases.t_iter:
        return []
    # Of the gradients: what other collectives take is not mended by smaller ones.
    exposed = phases.exposed_transfer - (phases.exposed_collectives or 0.0)
    share = exposed / phases.t_iter
    if share < policy.transfer_warning_ratio or not _is_bandwidth(evidence, policy):
        return []
    nbytes = sum(bucket.nbytes for bucket in buckets)
    seconds = sum(bucket.transfer_s or 0.0 for bucket in buckets)
    busbw = nbytes / seconds * 2 * (evidence.world_size - 1) / evidence.world_size if seconds else 0.0
    return [
        Draft(
            code=Code.COMM_BANDWIDTH_BOUND,
            severity=Severity.CRITICAL if share >= policy.transfer_critical_ratio else Severity.WARNING,
            ranks=(),
            nodes=(),
            share_of_time=share,
            evidence={
                "exposed_transfer_s": exposed,
                "gradient_bytes": float(nbytes),
                "busbw_bytes_per_s": busbw,
                "network_a_s": speed.network_a or 0.0,
                "network_b_s_per_byte": speed.network_b or 0.0,
            },
            why=(
                f"{format_bytes(nbytes)} of gradients a step at {format_rate(busbw)} bus bandwidth leave "
                f"{format_time(exposed)} ({format_share(share)}) that backward cannot hide"
            ),
            next_step=(
                "send less or less often: bf16 gradients (fp16_compress_hook / bf16_compress_hook), a larger batch "
                "per rank, gradient accumulation under no_sync(); or use a faster link (NCCL_SOCKET_IFNAME, RDMA)"
            ),
        )
    ]


def _is_bandwidth(evidence: Evidence, policy: Policy) -> bool:
    """Tell whether b M makes up most of T(M) over the step's buckets; yes when a and b are not known apart."""
    a, b = evidence.assessment.speedup.network_a, evidence.assessment.speedup.network_b
    if a is None or b is None:
        return True
    buckets = evidence.assessment.buckets
    volume = b * sum(bucket.nbytes for bucket in buckets)
    return volume >= policy.bandwidth_share * (volume + a * len(buckets))

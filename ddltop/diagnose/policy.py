"""Every threshold of the diagnosis, with its unit and its reason."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Thresholds; ratios are of t_iter unless said otherwise."""

    # Fewer steps cannot tell a habit from a hiccup: 20 coin tosses fall 15 times on one side once in 50 tries.
    min_steps: int = 20

    # A rank later than this is worth a name: below 2 ms the host's scheduling decides, below 10 % hardly anybody
    # gains. Two healthy ranks that share two cores with their monitor were seen 4 ms late (16 %) in 67 % of 60 steps,
    # and 8 ms (18 %) in 75 %.
    late_s: float = 2e-3
    late_ratio: float = 0.10
    # Share of steps in which the same rank must come last, later than the above. By chance it is 1/N or less.
    late_votes: float = 0.8
    straggler_min_steps: int = 40
    # One phase's excess must explain at least this share of the lateness to be named, and not much more than all of
    # it: else another phase of that rank is as much shorter, which is how crowded cores look, not a straggler.
    phase_explains: float = 0.5
    phase_exceeds: float = 1.6

    # Input that the typical rank waits for. Below a tenth more workers for the loader change little.
    input_warning_ratio: float = 0.10
    input_critical_ratio: float = 0.30

    # Exposed transfer (not waits). Shi, Wang and Chu call a framework communication-bound from about here on:
    # 15 % of t_iter exposed is an efficiency below 0.85.
    transfer_warning_ratio: float = 0.15
    transfer_critical_ratio: float = 0.40
    # Bandwidth, not latency, is to blame when b M is at least this share of T(M) over the step's buckets.
    bandwidth_share: float = 0.5

    # Computing is the limit when all waiting (input, exposed communication) is below this.
    compute_bound_ratio: float = 0.15

    # A finding must hold in so many looks in a row to appear, and fail in so many to go: no flicker.
    looks_to_appear: int = 3
    looks_to_go: int = 3
    # Findings kept, past ones included.
    max_findings: int = 200

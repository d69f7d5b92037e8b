"""Rules, one file each: evidence in, drafts of findings out."""

from ddltop.diagnose.draft import Rule
from ddltop.diagnose.rules.comm_bandwidth_bound import check_comm_bandwidth_bound
from ddltop.diagnose.rules.compute_bound import check_compute_bound
from ddltop.diagnose.rules.input_bound import check_input_bound
from ddltop.diagnose.rules.straggler import check_straggler

RULES: tuple[Rule, ...] = (check_straggler, check_input_bound, check_comm_bandwidth_bound, check_compute_bound)
"""All rules, in the order in which they look."""

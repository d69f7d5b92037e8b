"""The report as Markdown: a heading, the findings, and the card."""

from ddltop.collector.snapshot import Snapshot
from ddltop.export.text import text_card
from ddltop.presentation.words import plain, title_of
from ddltop.units import format_share


def to_markdown(snapshot: Snapshot) -> str:
    """Write a report that reads well in a ticket or a pull request."""
    lines = [f"## ddltop: {title_of(snapshot)}", ""]
    for finding in snapshot.findings:
        ranks = ", ".join(f"r{rank}" for rank in finding.ranks)
        head = f"**{finding.code.value}** {ranks}".strip()
        lines.append(f"- {head} ({format_share(finding.share_of_time)} of time): {plain(finding.why)}.")
        lines.append(f"  Next: {plain(finding.next_step)}.")
    if not snapshot.findings:
        lines.append("No findings.")
    return "\n".join([*lines, "", "```text", text_card(snapshot), "```"])

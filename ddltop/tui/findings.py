"""What is wrong, who, why and what to do next."""

from rich.text import Text

from ddltop.collector.snapshot import Snapshot
from ddltop.diagnose.finding import Finding, Severity
from ddltop.presentation.words import plain
from ddltop.tui.canvas import heading, line, wrap_words
from ddltop.tui.doubts import doubt_lines
from ddltop.tui.look import Look
from ddltop.tui.step import collective_lines
from ddltop.units import format_number, format_share, format_time

INDENT = 4
MAX_COLLECTIVES = 8
MAX_NAMED = 3


def finding_lines(snapshot: Snapshot, width: int, look: Look, max_lines: int) -> list[Text]:
    """Draw as many active findings as fit, the gravest first, each whole if it can be; the rest as a count."""
    active = [finding for finding in snapshot.findings if finding.is_active]
    if not active:
        return [line(heading("FINDINGS", look), ("none: nothing stands out", look.dim))]
    first = _block(active[0], snapshot, width, look)
    if max_lines <= len(first):
        # Not even one fits whole: its heading says the least.
        return first[: max(1, max_lines)]
    lines = [line(heading("FINDINGS", look))]
    num_drawn = 0
    for finding in active:
        block = _block(finding, snapshot, width, look)
        if len(lines) + len(block) > max_lines and num_drawn:
            break
        lines += block
        num_drawn += 1
    if num_drawn < len(active):
        lines[0].append(f"{len(active) - num_drawn} more: d", look.dim)
    return lines[: max(1, max_lines)]


def first_finding_height(snapshot: Snapshot, width: int, look: Look) -> int:
    """Give the lines that the heading and the gravest active finding need."""
    first = next((finding for finding in snapshot.findings if finding.is_active), None)
    return 1 if first is None else 1 + len(_block(first, snapshot, width, look))


def _block(finding: Finding, snapshot: Snapshot, width: int, look: Look) -> list[Text]:
    return [
        _head(finding, snapshot, width, look),
        *wrap_words(plain(finding.why), width, look.text, line((" " * INDENT, "none")), INDENT),
        *wrap_words(plain(finding.next_step), width, look.text, _arrow(look), INDENT + 3),
    ]


def _head(finding: Finding, snapshot: Snapshot, width: int, look: Look) -> Text:
    style = {Severity.INFO: look.good, Severity.WARNING: look.warn, Severity.CRITICAL: look.accent}[finding.severity]
    if not finding.is_active:
        style = look.dim
    mark = {Severity.INFO: look.pick("·", "-"), Severity.WARNING: "!", Severity.CRITICAL: "!!"}[finding.severity]
    when = (
        f"since step {finding.first_step:,}"
        if finding.is_active
        else f"steps {finding.first_step:,}-{finding.last_step:,}"
    )
    left = line((f" {mark:<2} ", style), (finding.code.value, style), (f"  {_who(finding, snapshot)}", look.number))
    share = f"  {format_share(finding.share_of_time)} of time"
    for fact in (f"{share}, {when}", share):
        if left.cell_len + len(fact) <= width:
            left.append(fact, look.dim)
            break
    return left


def _who(finding: Finding, snapshot: Snapshot) -> str:
    labels = {rank.rank: plain(rank.label) for rank in snapshot.ranks}
    named = ", ".join(labels.get(rank, f"r{rank}") for rank in finding.ranks[:MAX_NAMED])
    more = len(finding.ranks) - MAX_NAMED
    return f"{named} and {more:,} more" if more > 0 else named


def _arrow(look: Look) -> Text:
    return line((" " * INDENT, "none"), (look.pick("→  ", "-> "), look.marker))


def findings_page(snapshot: Snapshot, width: int, look: Look) -> list[Text]:
    """Draw all findings, past ones too, with their evidence; what else the ranks exchange; what figures lack."""
    none = "" if snapshot.findings else "none so far"
    lines = [line(heading("FINDINGS", look), (none, look.dim))]
    for finding in snapshot.findings:
        lines.append(line())
        lines += _block(finding, snapshot, width, look)
        evidence = "   ".join(f"{name} {_figure(name, value)}" for name, value in finding.evidence.items())
        lines += wrap_words(evidence, width, look.dim, line((" " * INDENT, "none")), INDENT)
    collectives = collective_lines(snapshot.assessment, width, look, MAX_COLLECTIVES) if snapshot.assessment else []
    for more in (collectives, doubt_lines(snapshot, width, look)):
        lines += [line(), *more] if more else []
    return lines


def _figure(name: str, value: float) -> str:
    if name.endswith("_s"):
        return format_time(value)
    if name.endswith("_share"):
        return format_share(value)
    return format_number(value)

"""What the figures lack: ranks that are missing, steps that were lost, phases that are inferred or not measured."""

from rich.text import Text

from ddltop.collector.snapshot import Quality, Snapshot
from ddltop.presentation.words import plain
from ddltop.tui.canvas import heading, line, wrap_words
from ddltop.tui.look import Look

INDENT = 12
MAX_NAMED = 8


def doubt_lines(snapshot: Snapshot, width: int, look: Look) -> list[Text]:
    """Draw what is lost and what is not measured; no line when nothing is."""
    lines: list[Text] = []
    lost = _lost(snapshot.quality)
    if lost:
        lines += wrap_words("; ".join(lost), width, look.warn, line(heading("DATA LOST", look)), INDENT)
    for title, reasons in (("UNMEASURED", snapshot.run.unmeasured), ("NOTE", snapshot.run.notes)):
        for reason, names in _by_reason(reasons).items():
            first = line(heading(title, look))
            lines += wrap_words(f"{', '.join(names)}: {reason}", width, look.dim, first, INDENT)
    return lines


def _lost(quality: Quality) -> list[str]:
    counts = (
        (quality.dropped, "steps dropped by a probe"),
        (quality.lost_batches, "batches lost on the way"),
        (quality.rejected, "frames refused"),
    )
    lost = [f"{count:,} {what}" for count, what in counts if count]
    missing = quality.missing_ranks
    if missing:
        names = ", ".join(f"r{rank}" for rank in missing[:MAX_NAMED])
        more = len(missing) - MAX_NAMED
        lost.insert(0, f"missing {names}" + (f" and {more:,} more" if more > 0 else ""))
    return lost


def _by_reason(reason_of: dict[str, str]) -> dict[str, list[str]]:
    """Join the figures of which the same is said."""
    reasons: dict[str, list[str]] = {}
    for name, why in sorted(reason_of.items()):
        reasons.setdefault(plain(why), []).append(plain(name))
    return reasons

"""The screen before the first figures: what is missing, and how a run is started."""

from rich.text import Text

from ddltop.collector.snapshot import RunState, Snapshot
from ddltop.presentation.words import state_of
from ddltop.tui.canvas import line
from ddltop.tui.look import Look

MAX_NAMED = 16


def no_figures_page(snapshot: Snapshot, look: Look) -> list[Text]:
    """Draw what a run without figures is waiting for, or that it waits no more."""
    if snapshot.state is RunState.ENDED:
        return _ended(snapshot, look)
    if not snapshot.ranks:
        return waiting_page(look, "no rank has reported yet")
    names = ", ".join(f"r{rank.rank}" for rank in snapshot.ranks[:MAX_NAMED])
    names += ", ..." if len(snapshot.ranks) > MAX_NAMED else ""
    here = f"{len(snapshot.ranks):,} of {snapshot.run.world_size:,} ranks are here ({names})"
    return waiting_page(look, f"{here}; first steps ...")


def waiting_page(look: Look, what: str) -> list[Text]:
    """Draw what is waited for, and how to start a run that reports."""
    return [
        line(),
        line(("  Waiting: ", look.title), (what, look.text)),
        line(),
        line(("  A run reports by itself when it is started so:", look.dim)),
        line(("     ddltop run -- torchrun --nproc-per-node 8 train.py", look.number)),
        line(("  or when its script says", look.dim)),
        line(("     import ddltop; ddltop.instrument()", look.number)),
        line(),
        line(("  It measures every rank that builds a DistributedDataParallel model.", look.dim)),
    ]


def _ended(snapshot: Snapshot, look: Look) -> list[Text]:
    has_failed = bool(snapshot.run.exit_code)
    return [
        line(),
        line(
            ("  The run has ", look.title),
            (state_of(snapshot), look.accent if has_failed else look.number),
            (", before three steps were complete on all ranks.", look.title),
        ),
        line(),
        line(("  There is nothing to show. " + ("Its own output says why." if has_failed else ""), look.dim)),
    ]

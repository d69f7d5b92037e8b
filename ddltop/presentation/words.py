"""The sentences that a card and a screen share."""

from pathlib import Path

from ddltop.collector.snapshot import RankLine, RunState, Snapshot
from ddltop.model.assessment import CollectiveFigures, RankFigures, SpeedUp
from ddltop.units import format_bytes, format_number, format_speedup, format_time
from ddltop.wire.collectives import CollectivePlace

# A deviation within this is called what it is: on the prediction.
ON_PREDICTION = 0.03


def plain(text: str) -> str:
    """Remove what a terminal would obey: control, escape and direction characters of strings from the wire."""
    return "".join(c if c.isprintable() else "?" for c in text)


def plain_lines(text: str) -> str:
    """Remove what a terminal would obey from text of several lines."""
    return "".join(plain(line) + "\n" for line in text.splitlines())


def title_of(snapshot: Snapshot) -> str:
    """Name the model and how it is trained: ResNet50  ddp/nccl  8 ranks, 2 nodes."""
    run = snapshot.run
    name = plain(run.model) or script_of(run.command) or plain(run.run_id)
    ranks = f"{run.world_size} rank{'s' if run.world_size != 1 else ''}"
    nodes = f"{run.num_nodes} node{'s' if run.num_nodes != 1 else ''}"
    strategy = "" if run.strategy == "none" else plain(run.strategy)
    how = "/".join(part for part in (strategy, plain(run.backend)) if part) if run.backend else ""
    return "  ".join(part for part in (name, how, f"{ranks}, {nodes}" if run.world_size else "") if part)


def network_of(snapshot: Snapshot) -> str:
    """Say where the cost of an all-reduce comes from, or why there is none."""
    speed = snapshot.assessment.speedup if snapshot.assessment else None
    if speed is None:
        return "not known yet"
    if speed.network_source is not None:
        return speed.network_source.value
    if speed.ideal == 1:
        return "none: one worker"
    if snapshot.run.strategy not in ("", "ddp"):
        how = "gradients that the script exchanges itself" if snapshot.run.strategy == "none" else snapshot.run.strategy
        return f"not modelled for {plain(how)}"
    return "not known yet"


def collective_of(sums: CollectiveFigures) -> str:
    """Write the collectives of one kind: 3x all_gather in forward, 12.0 MB, 4.1 ms."""
    calls = f"{sums.calls:.1f}".removesuffix(".0")
    where = "between steps" if sums.place is CollectivePlace.BETWEEN else f"in {sums.place.value}"
    size = f", {format_bytes(round(sums.nbytes))}" if sums.nbytes >= 1 else ""
    return f"{calls}x {sums.kind.value} {where}{size}, {format_time(sums.exposed_s)}"


def script_of(command: tuple[str, ...]) -> str:
    """Give the script a command runs, without its folder; no argument, they may be secret."""
    scripts = [Path(word).name for word in command if word.endswith(".py")]
    return plain(scripts[0] if scripts else Path(command[0]).name) if command else ""


def state_of(snapshot: Snapshot) -> str:
    """Say in a word what the run is doing."""
    if snapshot.state is RunState.ENDED and snapshot.run.exit_code is not None:
        return f"ended, exit {snapshot.run.exit_code}"
    return snapshot.state.value


def verdict_of(speedup: SpeedUp) -> str:
    """Say how the measured speed-up lies to the predicted one; empty when unknown."""
    if speedup.deviation is None:
        return ""
    percent = abs(speedup.deviation) * 100
    if percent < ON_PREDICTION * 100:
        return "as predicted"
    return f"{percent:.0f} % {'below' if speedup.deviation < 0 else 'above'}"


def predicted_of(speedup: SpeedUp) -> str:
    """Write the prediction with its interval: 6.90x (6.6-7.2)."""
    if speedup.predicted is None:
        return "-"
    interval = ""
    if speedup.predicted_low is not None and speedup.predicted_high is not None:
        interval = f" ({format_number(speedup.predicted_low)}-{format_number(speedup.predicted_high)})"
    return format_speedup(speedup.predicted) + interval


def worst_first(snapshot: Snapshot) -> list[tuple[RankLine, RankFigures | None]]:
    """Order the ranks by lateness, the latest first; those without figures come before all: they are missing."""
    figures = {f.rank: f for f in snapshot.assessment.ranks} if snapshot.assessment else {}
    pairs = [(line, figures.get(line.rank)) for line in snapshot.ranks]
    return sorted(pairs, key=lambda pair: -(_lateness(pair[1])))


def _lateness(figures: RankFigures | None) -> float:
    if figures is None:
        return float("inf")
    return figures.lateness_s or 0.0


def is_late(figures: RankFigures) -> bool:
    """Tell whether a rank is late often enough to be worth a line of its own."""
    return (figures.last_share or 0.0) >= 0.5

"""The text card: a run on 80 columns, to print, to paste into a ticket, to grep."""

import textwrap

from ddltop.collector.snapshot import NodeLine, RankState, Snapshot
from ddltop.diagnose.finding import Finding, Severity
from ddltop.model.assessment import Assessment, RankFigures
from ddltop.presentation.bars import allot
from ddltop.presentation.parts import ASCII_GLYPHS, GLYPHS, gap_parts, step_parts
from ddltop.presentation.words import (
    collective_of,
    network_of,
    plain,
    predicted_of,
    state_of,
    title_of,
    verdict_of,
    worst_first,
)
from ddltop.units import (
    format_bytes,
    format_clock,
    format_ms,
    format_number,
    format_rate,
    format_share,
    format_speedup,
    format_time,
)

MAX_RANKS = 16
MAX_FINDINGS = 5
MAX_COLLECTIVES = 6
LABEL_WIDTH = 16
_PHASES = ("t_io", "t_h2d", "t_f", "t_b", "t_c", "t_c_no", "t_u", "rest")
_MARKS = {Severity.INFO: " ", Severity.WARNING: "!", Severity.CRITICAL: "!!"}


def text_card(snapshot: Snapshot, *, width: int = 80, ascii_only: bool = False) -> str:
    """Write the card: no line longer than `width`; ASCII only on request."""
    lines = _head(snapshot)
    if snapshot.assessment is None:
        lines.append("no figures yet: fewer than three steps are complete on all ranks")
    else:
        lines += _speedup(snapshot)
        lines += _step(snapshot.assessment, width, ascii_only)
        lines += _gap(snapshot.assessment, width, ascii_only)
        lines += _collectives(snapshot.assessment, width)
        lines += _findings(snapshot, width)
        lines += _ranks(snapshot)
    for node in snapshot.nodes[:MAX_RANKS]:
        lines += _node(node, width)
    lines += _quality(snapshot, width)
    card = "\n".join(line.rstrip()[:width] for line in lines)
    return card.encode("ascii", "replace").decode() if ascii_only else card


def _head(snapshot: Snapshot) -> list[str]:
    assessment = snapshot.assessment
    pace = [f"step {snapshot.num_steps:,}"]
    if assessment is not None:
        pace.append(f"{format_number(assessment.steps_per_s)} it/s")
        pace.append(f"{format_number(assessment.samples_per_s)} samples/s")
        if assessment.batch_per_rank is not None:
            pace.append(f"batch {format_number(assessment.batch_per_rank)} per rank")
    pace.append(format_clock(snapshot.duration_s))
    return [f"ddltop  {title_of(snapshot)}   {state_of(snapshot)}", "   ".join(pace)]


def _speedup(snapshot: Snapshot) -> list[str]:
    assert snapshot.assessment is not None
    speed = snapshot.assessment.speedup
    verdict = verdict_of(speed)
    return [
        f"SPEED-UP    measured {format_speedup(speed.measured)}  predicted {predicted_of(speed)}  "
        f"ideal {speed.ideal:.0f}x  {verdict}",
        f"            baseline: {speed.baseline_source.value}",
        f"            network: {network_of(snapshot)}",
    ]


def _step(assessment: Assessment, width: int, ascii_only: bool) -> list[str]:
    typical = assessment.typical
    parts = step_parts(typical)
    glyphs = ASCII_GLYPHS if ascii_only else GLYPHS
    cells = allot([part.seconds for part in parts], width - 12)
    bar = "".join(glyphs[part.role] * count for part, count in zip(parts, cells, strict=True))
    legend = [f"{glyphs[part.role]} {part.label} {format_ms(part.seconds)}" for part in parts]
    return [
        f"STEP        {format_time(typical.t_iter)} on the typical rank, steps "
        f"{assessment.first_step:,}-{assessment.last_step:,}; ms:",
        f"            {bar}",
        *_wrap(legend, width),
        *_wrap([f"{name} {format_ms(getattr(typical, name))}" for name in _PHASES], width),
    ]


def _wrap(items: list[str], width: int) -> list[str]:
    """Set items side by side, never breaking one."""
    lines = [" " * 12]
    for item in items:
        if len(lines[-1]) + len(item) > width:
            lines.append(" " * 12)
        lines[-1] += item + "  "
    return lines


def _gap(assessment: Assessment, width: int, ascii_only: bool) -> list[str]:
    if not assessment.gap:
        return []
    total = sum(part.seconds for part in assessment.gap)
    glyphs = ASCII_GLYPHS if ascii_only else GLYPHS
    shown = gap_parts(assessment.gap)
    longest = max((part.seconds for part in shown), default=0.0)
    room = width - 46
    lines = []
    for part in shown:
        cells = max(1, round(part.seconds / longest * room)) if longest > 0 and part.seconds > 0 else 0
        bar = glyphs[part.role] * cells
        lines.append(f"            {part.label:<20} {format_ms(part.seconds):>7}  {bar}")
    return [f"OVER IDEAL  {format_time(total)} a step more than one worker needs; ms:", *lines]


def _collectives(assessment: Assessment, width: int) -> list[str]:
    """Write the collectives beside DDP's buckets, the costliest ones; nothing when there are none."""
    if not assessment.collectives:
        return []
    first, *more = _wrap([collective_of(sums) for sums in assessment.collectives[:MAX_COLLECTIVES]], width)
    return [f"COLLECTIVE  {first[12:]}", *more]


def _findings(snapshot: Snapshot, width: int) -> list[str]:
    if not snapshot.findings:
        return ["FINDINGS    none"]
    lines = ["FINDINGS"]
    for finding in snapshot.findings[:MAX_FINDINGS]:
        lines += _finding(finding, snapshot, width)
    more = len(snapshot.findings) - MAX_FINDINGS
    return lines + ([f"  ... {more} more"] if more > 0 else [])


def _finding(finding: Finding, snapshot: Snapshot, width: int) -> list[str]:
    labels = {line.rank: plain(line.label) for line in snapshot.ranks}
    who = ", ".join(labels.get(rank, f"r{rank}") for rank in finding.ranks)
    when = f"steps {finding.first_step:,}-{finding.last_step:,}" + ("" if finding.is_active else ", over")
    head = "  ".join(part for part in (finding.code.value, who) if part)
    return [
        f"{_MARKS[finding.severity]:<2} {head}   {format_share(finding.share_of_time)} of time, {when}",
        *textwrap.wrap(plain(finding.why), width, initial_indent="   ", subsequent_indent="   "),
        *textwrap.wrap(plain(finding.next_step), width, initial_indent="   -> ", subsequent_indent="      "),
    ]


def _ranks(snapshot: Snapshot) -> list[str]:
    pairs = worst_first(snapshot)
    lines = [
        f"{'RANK, ms':<{LABEL_WIDTH}} "
        + " ".join(f"{name:>7}" for name in ("late", "io", "fwd", "bwd", "wait", "transf"))
        + "    upd  last"
    ]
    for line, figures in pairs[:MAX_RANKS]:
        label = plain(line.label)[:LABEL_WIDTH]
        columns = _rank_columns(figures)
        if line.state in (RankState.LOST, RankState.SILENT):
            # In place of its share of steps: whether it is there at all matters more.
            columns = f"{columns[:-6]} {line.state.value}"
        lines.append(f"{label:<{LABEL_WIDTH}} {columns}")
    rest = pairs[MAX_RANKS:]
    if rest:
        latest = max((f.lateness_s or 0.0 for _, f in rest if f is not None), default=0.0)
        lines.append(f"... {len(rest)} more, at most {format_ms(latest)} ms late")
    return lines


def _rank_columns(figures: RankFigures | None) -> str:
    if figures is None:
        return "no figures"
    p = figures.phases
    columns = (figures.lateness_s, p.t_io, p.t_f, p.t_b, p.exposed_wait, p.exposed_transfer)
    text = " ".join(f"{format_ms(value):>7}" for value in columns)
    return f"{text} {format_ms(p.t_u):>6} {format_share(figures.last_share):>5}"


def _node(line: NodeLine, width: int) -> list[str]:
    sample = line.sample
    if sample is None:
        return [f"NODE        {plain(line.node)}  no samples yet"]
    host = sample.host
    parts = [plain(line.node), f"CPU {format_share(host.cpu_ratio)} of {host.num_cpus}"]
    parts.append(f"memory {format_bytes(host.memory_used_bytes)} of {format_bytes(host.memory_total_bytes)}")
    if sample.gpus:
        busy = [gpu.utilization_ratio for gpu in sample.gpus if gpu.utilization_ratio is not None]
        parts.append(f"{len(sample.gpus)} GPU {format_share(sum(busy) / len(busy)) if busy else '-'}")
    else:
        parts.append(sample.gpu_status)
    nic = max(sample.nics, key=lambda n: (n.rx_bytes_per_s or 0) + (n.tx_bytes_per_s or 0), default=None)
    if nic is not None:
        parts.append(f"{plain(nic.name)} tx {format_rate(nic.tx_bytes_per_s)} rx {format_rate(nic.rx_bytes_per_s)}")
    first, *more = _wrap(parts, width)
    return [f"NODE{first[4:]}", *more]


def _quality(snapshot: Snapshot, width: int) -> list[str]:
    quality = snapshot.quality
    lost = [
        f"{count:,} {what}"
        for count, what in (
            (quality.dropped, "steps dropped by a probe"),
            (quality.lost_batches, "batches lost on the way"),
            (quality.rejected, "frames refused"),
            (len(quality.missing_ranks), "ranks missing"),
        )
        if count
    ]
    sentences = [f"QUALITY     {', '.join(lost)}"] if lost else []
    sentences += [f"NOTE        {plain(name)}: {plain(text)}" for name, text in sorted(snapshot.run.notes.items())]
    sentences += [f"UNMEASURED  {plain(name)}: {plain(why)}" for name, why in sorted(snapshot.run.unmeasured.items())]
    return [line for text in sentences for line in textwrap.wrap(text, width, subsequent_indent=" " * 12)]

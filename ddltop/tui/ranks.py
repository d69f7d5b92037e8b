"""The ranks: the latest first, each with its phases, its device and its recent lateness; the rest in one line."""

from rich.text import Text

from ddltop.collector.snapshot import RankLine, RankState, Snapshot
from ddltop.model.assessment import RankFigures
from ddltop.presentation.bars import sparkline
from ddltop.presentation.words import is_late, plain, worst_first
from ddltop.tui.canvas import fit, line
from ddltop.tui.look import Look
from ddltop.tui.view import Sort, View
from ddltop.units import format_ms, format_share
from ddltop.wire.messages import GpuSample

LABEL_WIDTH = 15
HISTORY_STEPS = 60
_COLUMNS = ("late", "io", "fwd", "bwd", "wait", "xfer", "upd")
_CELL = 6
# The scale of the sparklines is never finer than this: noise must look like noise.
MIN_TOP_S = 5e-3

Pair = tuple[RankLine, RankFigures | None]


def rank_lines(view: View, width: int, look: Look, max_lines: int) -> list[Text]:
    """Draw the table in `max_lines` lines, its head and the line for the rest included."""
    snapshot = view.snapshot
    assert snapshot is not None
    pairs = _sorted(snapshot, view.sort)
    has_gpu = any(node.sample and node.sample.gpus for node in snapshot.nodes)
    room = max(1, max_lines - 1)
    first = max(0, min(view.scroll, len(pairs) - room))
    shown = pairs[first : first + room]
    if len(pairs) > room:
        shown = shown[: max(1, room - 1)]
    lines = [_head(width, look, has_gpu, view.sort)]
    top = _top(snapshot)
    lines += [_row(pair, snapshot, width, look, has_gpu, top) for pair in shown]
    if len(shown) < len(pairs):
        lines.append(_rest(pairs, shown, look))
    return lines[:max_lines]


def _sorted(snapshot: Snapshot, sort: Sort) -> list[Pair]:
    pairs = worst_first(snapshot)
    if sort is Sort.RANK:
        pairs.sort(key=lambda pair: pair[0].rank)
    elif sort is Sort.T_ITER:
        pairs.sort(key=lambda pair: -((pair[1].phases.t_iter or 0.0) if pair[1] else float("inf")))
    return pairs


def _head(width: int, look: Look, has_gpu: bool, sort: Sort) -> Text:
    names = "".join(f"{name:>{_CELL}}" for name in _columns_for(width))
    device = f"{'GPU%':>6}{'MHz':>6}{'C':>4}" if has_gpu else f"{'CPU%':>6}"
    note = "" if sort is Sort.LATE else f" ({sort.value})"
    room = width - LABEL_WIDTH - 1 - len(names) - len(device)
    history = f"  lateness, {HISTORY_STEPS} steps{note}" if room >= 24 else f"  lateness{note}"
    return fit(line((f" {'RANK':<{LABEL_WIDTH - 5}} ms", look.title), (f" {names}{device}{history}", look.dim)), width)


def _columns_for(width: int) -> tuple[str, ...]:
    fitting = max(1, (width - LABEL_WIDTH - 8) // _CELL)
    return _COLUMNS[:fitting]


def _row(pair: Pair, snapshot: Snapshot, width: int, look: Look, has_gpu: bool, top: float) -> Text:
    rank, figures = pair
    late = figures is not None and is_late(figures)
    name_style = look.accent if late or rank.state in (RankState.LOST, RankState.SILENT) else look.text
    row = line((f" {plain(rank.label):<{LABEL_WIDTH}}"[: LABEL_WIDTH + 1], name_style))
    if rank.state in (RankState.LOST, RankState.SILENT):
        row.append(f"  {rank.state.value} after step {rank.last_step:,}", look.accent)
        return fit(row, width)
    values = _values(figures)
    for name in _columns_for(width):
        style = look.accent if late and name == "late" else look.text
        row.append(f"{format_ms(values.get(name)):>{_CELL}}", style)
    row.append(_device(rank, snapshot, has_gpu), look.text)
    room = min(HISTORY_STEPS, width - row.cell_len - 3)
    if room >= 6:
        history = snapshot.history.lateness.get(rank.rank, ())[-HISTORY_STEPS:]
        spark = sparkline(history, room, top, ascii_only=look.ascii_only)
        row.append(f"  {spark}", look.accent if late else look.dim)
    return fit(row, width)


def _values(figures: RankFigures | None) -> dict[str, float | None]:
    if figures is None:
        return {}
    p = figures.phases
    reading = p.t_io + (p.t_h2d or 0.0) if p.t_io is not None else None
    values = (figures.lateness_s, reading, p.t_f, p.t_b, p.exposed_wait, p.exposed_transfer, p.t_u)
    return dict(zip(_COLUMNS, values, strict=True))


def _device(rank: RankLine, snapshot: Snapshot, has_gpu: bool) -> str:
    sample = next((node.sample for node in snapshot.nodes if node.node == rank.node), None)
    if has_gpu:
        gpu = next((gpu for gpu in sample.gpus if gpu.uuid == rank.gpu_uuid), None) if sample else None
        return _gpu(gpu)
    cpu = sample.host.rank_cpu_ratio.get(rank.rank) if sample else None
    return f"{format_share(cpu).removesuffix(' %'):>6}"


def _gpu(gpu: GpuSample | None) -> str:
    if gpu is None:
        return f"{'-':>6}{'-':>6}{'-':>4}"
    utilization = format_share(gpu.utilization_ratio).removesuffix(" %")
    clock = f"{gpu.sm_clock_mhz:.0f}" if gpu.sm_clock_mhz is not None else "-"
    temperature = f"{gpu.temperature_c:.0f}" if gpu.temperature_c is not None else "-"
    return f"{utilization:>6}{clock:>6}{temperature:>4}"


def _top(snapshot: Snapshot) -> float:
    """One scale for all sparklines: the largest lateness in them."""
    recent = [value for history in snapshot.history.lateness.values() for value in history[-HISTORY_STEPS:]]
    finite = [value for value in recent if value == value]
    return max([MIN_TOP_S, *finite])


def _rest(pairs: list[Pair], shown: list[Pair], look: Look) -> Text:
    hidden = [pair for pair in pairs if pair not in shown]
    num_late = sum(1 for _, figures in hidden if figures is not None and is_late(figures))
    what = "none of them late" if num_late == 0 else f"{num_late} of them late"
    return line((f" {look.pick('…', '...')} {len(hidden):,} more, {what}", look.dim if num_late == 0 else look.warn))

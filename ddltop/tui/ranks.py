"""The ranks: the latest first, each with its phases, its device and its recent lateness; the rest in one line."""

from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
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

HISTORY_STEPS = 60
# The scale of the sparklines is never finer than this: noise must look like noise.
MIN_TOP_S = 5e-3

_COLUMNS = ("late", "io", "fwd", "bwd", "wait", "xfer", "upd")
_DROPPED_FIRST = ("xfer", "upd", "io", "wait", "fwd", "bwd")
_CELL = 6
_GPU_WIDTH, _CPU_WIDTH = 16, 6
_MIN_LABEL, _MAX_LABEL = 9, 24
# Columns give way to this many cells of history, unless the screen is narrower than that makes sense.
_MIN_HISTORY = 12
_NARROW = 60

Pair = tuple[RankLine, RankFigures | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    """The columns of the table, in cells; `top_s` is the full height of every sparkline."""

    label: int
    columns: tuple[str, ...]
    has_gpu: bool
    history: int
    top_s: float


def rank_lines(view: View, width: int, look: Look, max_lines: int) -> list[Text]:
    """Draw the table in `max_lines` lines, its head and the line for the rest included."""
    snapshot = view.snapshot
    assert snapshot is not None
    pairs = _sorted(snapshot, view.sort)
    count = num_rows(len(pairs), max_lines)
    first = max(0, min(view.scroll, len(pairs) - count))
    shown = pairs[first : first + count]
    table = _table(snapshot, width)
    lines = [_head(table, width, look, view.sort)]
    lines += [_row(pair, snapshot, table, width, look) for pair in shown]
    if count < len(pairs):
        lines.append(_rest(pairs[:first] + pairs[first + count :], look))
    return lines[:max_lines]


def num_rows(num_ranks: int, max_lines: int) -> int:
    """Give how many ranks `max_lines` lines can show, beside the head and the line for the rest."""
    room = max(1, max_lines - 1)
    return num_ranks if num_ranks <= room else max(1, room - 1)


def _table(snapshot: Snapshot, width: int) -> _Table:
    has_gpu = any(node.sample and node.sample.gpus for node in snapshot.nodes)
    longest = max((cell_len(rank.label) for rank in snapshot.ranks), default=0)
    label = min(max(_MIN_LABEL, longest), _MAX_LABEL if width >= 100 else 15)
    room = width - label - 2 - (_GPU_WIDTH if has_gpu else _CPU_WIDTH)
    num_columns = (room - (_MIN_HISTORY + 3 if width >= _NARROW else 0)) // _CELL
    dropped = _DROPPED_FIRST[: max(0, len(_COLUMNS) - num_columns)]
    columns = tuple(name for name in _COLUMNS if name not in dropped)
    history = min(HISTORY_STEPS, room - _CELL * len(columns) - 3)
    return _Table(label=label, columns=columns, has_gpu=has_gpu, history=history, top_s=_top(snapshot))


def _sorted(snapshot: Snapshot, sort: Sort) -> list[Pair]:
    pairs = worst_first(snapshot)
    if sort is Sort.RANK:
        pairs.sort(key=lambda pair: pair[0].rank)
    elif sort is Sort.T_ITER:
        pairs.sort(key=lambda pair: -((pair[1].phases.t_iter or 0.0) if pair[1] else float("inf")))
    return pairs


def _head(table: _Table, width: int, look: Look, sort: Sort) -> Text:
    names = "".join(f"{name:>{_CELL}}" for name in table.columns)
    device = f"{'GPU%':>6}{'MHz':>6}{'C':>4}" if table.has_gpu else f"{'CPU%':>6}"
    title = f" {'RANK':<{table.label - 2}} ms"
    return fit(line((title, look.title), (f"{names}{device}", look.dim), (f"  {_note(table, sort)}", look.dim)), width)


def _note(table: _Table, sort: Sort) -> str:
    """Say what the sparklines are, and the order when it is not the usual one, as far as there is room."""
    full = f"lateness, {HISTORY_STEPS} steps"
    forms = (full, "lateness") if sort is Sort.LATE else (f"{full}, {sort.value}", sort.value)
    return next((form for form in forms if len(form) <= table.history), "")


def _row(pair: Pair, snapshot: Snapshot, table: _Table, width: int, look: Look) -> Text:
    rank, figures = pair
    late = figures is not None and is_late(figures)
    is_gone = rank.state in (RankState.LOST, RankState.SILENT)
    label = _elided(plain(rank.label), table.label, look)
    row = line((f" {label} ", look.accent if late or is_gone else look.text))
    if is_gone:
        row.append(f"  {rank.state.value} after step {rank.last_step:,}", look.accent)
        return fit(row, width)
    values = _values(figures)
    for name in table.columns:
        style = look.accent if late and name == "late" else look.text
        row.append(f"{format_ms(values.get(name)):>{_CELL}}", style)
    row.append(_device(rank, snapshot, table.has_gpu), look.text)
    if table.history >= 6:
        history = snapshot.history.lateness.get(rank.rank, ())[-HISTORY_STEPS:]
        spark = sparkline(history, table.history, table.top_s, ascii_only=look.ascii_only)
        row.append(f"  {spark}", look.accent if late else look.dim)
    return fit(row, width)


def _elided(label: str, width: int, look: Look) -> str:
    """Fit `r3@host` to a width; what is cut is the middle, for hosts of a cluster differ at their end."""
    if cell_len(label) <= width:
        return set_cell_size(label, width)
    head = label[: label.find("@") + 1]
    mark = look.pick("…", "..")
    tail = label[len(head) :][-max(1, width - cell_len(head + mark)) :]
    return set_cell_size(head + mark + tail, width)


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


def _rest(hidden: list[Pair], look: Look) -> Text:
    num_late = sum(1 for _, figures in hidden if figures is not None and is_late(figures))
    what = "none of them late" if num_late == 0 else f"{num_late} of them late"
    return line((f" {look.pick('…', '...')} {len(hidden):,} more, {what}", look.dim if num_late == 0 else look.warn))

"""The nodes: CPU, memory, GPUs and the busiest interfaces against their link speed."""

from rich.text import Text

from ddltop.collector.snapshot import NodeLine, Snapshot
from ddltop.presentation.words import plain
from ddltop.tui.canvas import fit, line
from ddltop.tui.look import Look
from ddltop.units import format_rate, format_share
from ddltop.wire.messages import GpuSample, NicSample, NodeSample

# A node that has sent nothing for this long is marked: batches come twice a second.
OLD_S = 3.0
GIB = 2**30


def node_lines(snapshot: Snapshot, width: int, look: Look, max_lines: int) -> list[Text]:
    """Draw a line per node and one per busy interface, as far as there is room; the rest as a count."""
    if max_lines <= 0 or not snapshot.nodes:
        return []
    nics_each = max(0, (max_lines - len(snapshot.nodes)) // len(snapshot.nodes))
    lines: list[Text] = []
    for i, node in enumerate(snapshot.nodes):
        if len(lines) >= max_lines - 1 and i < len(snapshot.nodes) - 1:
            lines.append(line((f" {look.pick('…', '...')} {len(snapshot.nodes) - i} more nodes", look.dim)))
            break
        lines.append(_node(node, width, look, has_nic_lines=nics_each > 0))
        if node.sample is not None and nics_each:
            lines += [_nic(nic, width, look) for nic in busiest(node.sample)[: min(3, nics_each)]]
    return lines[:max_lines]


def busiest(sample: NodeSample) -> list[NicSample]:
    """Order the interfaces that are up or moving bytes, the busiest first."""
    in_use = [nic for nic in sample.nics if nic.operstate == "up" or _rate(nic) > 0]
    return sorted(in_use, key=lambda nic: (-_rate(nic), nic.name))


def _rate(nic: NicSample) -> float:
    return (nic.rx_bytes_per_s or 0.0) + (nic.tx_bytes_per_s or 0.0)


def _node(node: NodeLine, width: int, look: Look, *, has_nic_lines: bool) -> Text:
    text = line((f" {plain(node.node)[:14]:<15}", look.title))
    sample = node.sample
    if sample is None:
        text.append("no samples yet", look.dim)
        return fit(text, width)
    if node.age_s > OLD_S:
        text.append(f"silent for {node.age_s:.0f} s  ", look.accent)
    text.append(f"CPU {format_share(sample.host.cpu_ratio):>5} of {sample.host.num_cpus}", look.text)
    text.append(f"  mem {_memory(sample)}", look.text)
    text.append(f"  {_gpus(sample)}", look.text if sample.gpus else look.dim)
    if not has_nic_lines:
        for nic in busiest(sample)[:1]:
            text.append(f"  {plain(nic.name)} {format_rate(_rate(nic))}", look.text)
    return fit(text, width)


def _memory(sample: NodeSample) -> str:
    used, total = sample.host.memory_used_bytes, sample.host.memory_total_bytes
    if used is None or total is None:
        return "-"
    return f"{used / GIB:.1f} of {total / GIB:.1f} GiB"


def _gpus(sample: NodeSample) -> str:
    if not sample.gpus:
        return sample.gpu_status
    busy = _mean([gpu.utilization_ratio for gpu in sample.gpus])
    power = _mean([gpu.power_w for gpu in sample.gpus])
    text = f"{len(sample.gpus)} GPUs {format_share(busy)}"
    text += f" {power:.0f} W each" if power is not None else ""
    reasons = sorted({reason for gpu in sample.gpus for reason in _alarming(gpu)})
    return text + (f"  throttled: {', '.join(reasons)}" if reasons else "")


def _alarming(gpu: GpuSample) -> list[str]:
    return [
        reason for reason in gpu.throttle_reasons if "thermal" in reason or "slowdown" in reason or "brake" in reason
    ]


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _nic(nic: NicSample, width: int, look: Look) -> Text:
    text = line((f"   {plain(nic.name)[:12]:<13}", look.dim))
    text.append(f"tx {format_rate(nic.tx_bytes_per_s):>10}  rx {format_rate(nic.rx_bytes_per_s):>10}", look.text)
    busier = max(nic.tx_bytes_per_s or 0.0, nic.rx_bytes_per_s or 0.0)
    if nic.speed_bytes_per_s:
        share = busier / nic.speed_bytes_per_s
        text.append(f"  {format_share(share):>5} of {format_rate(nic.speed_bytes_per_s)} ", look.dim)
        room = min(20, width - text.cell_len - 2)
        filled = min(room, round(share * room))
        if room >= 6:
            text.append(look.pick("▰", "#") * filled, look.warn if share > 0.9 else look.good)
            text.append(look.pick("▱", ".") * (room - filled), look.dim)
    else:
        text.append("  link speed not known", look.dim)
    return fit(text, width)

"""A training with timers of its own and torch.profiler: the independent measurement that ours is held against.

Run by torchrun; writes OUT.rankR, JSON: seconds per step of each phase by the script's own timers, and by the profiler.
"""

import json
import sys
import time
from collections import defaultdict
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

STEPS, WARM_UP = 60, 20


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    layers = [nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 1536), nn.ReLU(), nn.Linear(1536, 512), nn.ReLU()]
    model = DistributedDataParallel(nn.Sequential(*layers, nn.Linear(512, 10)), bucket_cap_mb=1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = TensorDataset(torch.randn(64 * STEPS, 512), torch.randint(0, 10, (64 * STEPS,)))
    batches = iter(DataLoader(data, batch_size=64))
    spent: dict[str, list[float]] = defaultdict(list)
    # acc_events=True keeps the profiler from one synchronising flush per step.
    profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], acc_events=True)
    for step in range(STEPS):
        if step == WARM_UP:
            profiler.start()
        marks = [time.perf_counter()]
        images, labels = next(batches)
        marks.append(time.perf_counter())
        loss = nn.functional.cross_entropy(model(images), labels)
        marks.append(time.perf_counter())
        loss.backward()
        marks.append(time.perf_counter())
        optimizer.step()
        marks.append(time.perf_counter())
        optimizer.zero_grad()
        for name, begin, end in zip(("t_io", "t_f", "backward", "t_u"), marks, marks[1:], strict=False):
            spent[name].append(end - begin)
    profiler.stop()
    figures = json.dumps({"timers": spent, "profiler": profiled(profiler)})
    Path(f"{sys.argv[1]}.rank{rank}").write_text(figures)
    dist.barrier()
    dist.destroy_process_group()
    time.sleep(0.1)


def profiled(profiler: "torch.profiler.profile") -> dict[str, float]:
    """Seconds over the profiled steps: DDP's forward, the optimizer, and the union of gloo's all-reduces."""
    events = profiler.events()
    sums = {
        "ddp_forward": sum(e.time_range.elapsed_us() for e in events if e.name == "DistributedDataParallel.forward"),
        "t_u": sum(e.time_range.elapsed_us() for e in events if e.name.startswith("Optimizer.step#")),
        "t_c": union([(e.time_range.start, e.time_range.end) for e in events if e.name == "gloo:all_reduce"]),
    }
    return {name: microseconds * 1e-6 for name, microseconds in sums.items()}


def union(intervals: list[tuple[float, float]]) -> float:
    total, reach = 0.0, float("-inf")
    for begin, end in sorted(intervals):
        total += max(0.0, end - max(begin, reach))
        reach = max(reach, end)
    return total


if __name__ == "__main__":
    main()

"""A training with timers of its own and torch.profiler: the independent measurement that ours is held against.

Run by torchrun as `measured_script.py OUT profiler|timers`; writes OUT.rankR, JSON: seconds per step of each phase by
the script's own timers, and by the profiler. With `timers` the script also has a communication hook of its own, which
times each all-reduce from its launch to its end, and hooks on the parameters that tell when backward has computed.
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
    own = OwnTimers(model) if sys.argv[2] == "timers" else None
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = TensorDataset(torch.randn(64 * STEPS, 512), torch.randint(0, 10, (64 * STEPS,)))
    batches = iter(DataLoader(data, batch_size=64))
    spent: dict[str, list[float]] = defaultdict(list)
    # acc_events=True keeps the profiler from one synchronising flush per step.
    profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], acc_events=True)
    for step in range(STEPS):
        if step == WARM_UP and own is None:
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
        # Freed here: else the old batch is freed inside the timer around next(), after next() has returned.
        del images, labels
        for name, begin, end in zip(("t_io", "t_f", "backward", "t_u"), marks, marks[1:], strict=False):
            spent[name].append(end - begin)
        if own is not None:
            spent["t_b"].append(own.computed - marks[2])
            spent["t_c"].append(union(own.take_intervals()))
    if own is None:
        profiler.stop()
    figures = json.dumps({"timers": spent, "profiler": profiled(profiler) if own is None else {}})
    Path(f"{sys.argv[1]}.rank{rank}").write_text(figures)
    dist.barrier()
    dist.destroy_process_group()
    time.sleep(0.1)


class OwnTimers:
    """When backward has computed its last gradient, and when each all-reduce was launched and had ended."""

    def __init__(self, model: DistributedDataParallel) -> None:
        self.computed = 0.0
        self._intervals: list[list[float]] = []
        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(self._note_gradient)
        model.register_comm_hook(None, self._all_reduce)

    def take_intervals(self) -> list[tuple[float, float]]:
        intervals, self._intervals = self._intervals, []
        return [(begin, end) for begin, end in intervals]

    def _note_gradient(self, _parameter: torch.Tensor) -> None:
        self.computed = time.perf_counter()

    def _all_reduce(self, _state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        interval = [time.perf_counter(), 0.0]
        self._intervals.append(interval)
        buffer = bucket.buffer().div_(dist.get_world_size())

        def note_end(done: torch.futures.Future[list[torch.Tensor]]) -> torch.Tensor:
            interval[1] = time.perf_counter()
            return done.value()[0]

        future = dist.all_reduce(buffer, async_op=True).get_future().then(note_end)
        # Filling a bucket and launching it is the last thing that backward computes.
        self.computed = time.perf_counter()
        return future


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

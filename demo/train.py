"""A real DistributedDataParallel training on synthetic images, on CPUs over gloo. It knows nothing of ddltop.

torchrun --standalone --nproc-per-node 2 demo/train.py --model cnn --steps 200
"""

import argparse
import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from faults import Faults, inject, parse_fault
from networks import DEFAULTS, NETWORKS, TINY_FEATURES
from synthetic import NUM_CLASSES, Collate, SyntheticImages
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

# Every rank must leave the loop at the same step: rank 0 looks at the clock and tells the others, this often.
STEPS_BETWEEN_CLOCKS = 10
# gloo can abort the interpreter when it ends while its threads still work (seen without any instrumentation).
GRACE_S = 0.1


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description="Train on synthetic images with DistributedDataParallel (gloo, CPU).")
    parser.add_argument("--model", choices=list(NETWORKS), default="cnn")
    parser.add_argument("--steps", type=int, help="stop after so many optimizer steps")
    parser.add_argument("--duration", type=float, help="stop after so many seconds")
    parser.add_argument("--image-size", type=int, help="pixels; 224 is the size of the papers")
    parser.add_argument("--batch", type=int, help="samples per rank and micro-step")
    parser.add_argument("--accumulate", type=int, default=1, help="micro-steps per optimizer step (no_sync)")
    parser.add_argument("--bucket-cap-mb", type=float)
    parser.add_argument("--workers", type=int, default=0, help="DataLoader workers")
    parser.add_argument("--threads", type=int, default=1, help="torch threads per rank")
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log-every", type=int, default=50)
    parser.add_argument("--fault", type=parse_fault, action="append", default=[], metavar="KIND:rank=R,ms=T")
    parser.add_argument("--fail-at", type=int, help="exit with code 3 before this step")
    parser.add_argument("--timers", type=Path, help="write this script's own timings, JSON lines, to FILE.rankR")
    options = parser.parse_args(arguments)
    if options.steps is None and options.duration is None:
        options.steps = 200
    size, batch, cap = DEFAULTS[options.model]
    options.image_size = options.image_size or size
    options.batch = options.batch or batch
    options.bucket_cap_mb = options.bucket_cap_mb or cap
    return options


def join_group() -> None:
    """Join the process group of the launcher; without a launcher be the only rank."""
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
        return
    store = Path(tempfile.mkdtemp()) / "store"
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)


class Clock:
    """Write down how long each phase took, with timers of this script's own."""

    def __init__(self, path: Path | None) -> None:
        self._file = path.with_name(f"{path.name}.rank{dist.get_rank()}").open("w") if path else None
        self.spent: dict[str, float] = {}

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time one phase."""
        begin = time.perf_counter()
        yield
        self.spent[name] = self.spent.get(name, 0.0) + time.perf_counter() - begin

    def end_step(self, step: int) -> None:
        """Write the step down."""
        if self._file is not None:
            self._file.write(json.dumps({"step": step, **self.spent}) + "\n")
        self.spent = {}

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


def make_loader(options: argparse.Namespace, faults: Faults) -> DataLoader[tuple[Tensor, Tensor]]:
    """Make this rank's loader."""
    is_flat = options.model == "tiny"
    shape = (TINY_FEATURES,) if is_flat else (3, options.image_size, options.image_size)
    data = SyntheticImages(shape, options.seed)
    sampler: DistributedSampler[tuple[Tensor, Tensor]] = DistributedSampler(data, seed=options.seed)
    return DataLoader(
        data,
        batch_size=options.batch,
        sampler=sampler,
        num_workers=options.workers,
        collate_fn=Collate(faults),
        drop_last=True,
        persistent_workers=options.workers > 0,
    )


def batches(loader: DataLoader[tuple[Tensor, Tensor]]) -> Iterator[tuple[Tensor, Tensor]]:
    """Give batches for ever, epoch after epoch."""
    epoch = 0
    while True:
        if isinstance(loader.sampler, DistributedSampler):
            loader.sampler.set_epoch(epoch)
        yield from loader
        epoch += 1


def is_over(options: argparse.Namespace, step: int, begun: float) -> bool:
    """Tell, alike on all ranks, whether to stop before this step."""
    if options.steps is not None and step >= options.steps:
        return True
    if options.duration is None or step % STEPS_BETWEEN_CLOCKS:
        return False
    verdict = torch.tensor([float(time.monotonic() - begun > options.duration)])
    dist.broadcast(verdict, 0)
    return bool(verdict.item())


def train(options: argparse.Namespace) -> float:
    """Train; give the last loss of this rank."""
    rank = dist.get_rank()
    torch.manual_seed(options.seed)
    faults = Faults(options.fault, rank)
    model = NETWORKS[options.model](NUM_CLASSES)
    inject(model, faults)
    ddp = DistributedDataParallel(model, bucket_cap_mb=options.bucket_cap_mb)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=options.lr, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    source = batches(make_loader(options, faults))
    clock = Clock(options.timers)
    begun, loss, step = time.monotonic(), torch.zeros(()), 0
    while not is_over(options, step, begun):
        if step == options.fail_at:
            sys.exit(3)
        faults.step = step
        for micro_step in range(options.accumulate):
            is_last = micro_step == options.accumulate - 1
            with contextlib.nullcontext() if is_last else ddp.no_sync():
                with clock.phase("t_io"):
                    images, labels = next(source)
                with clock.phase("t_f"):
                    loss = criterion(ddp(images), labels) / options.accumulate
                with clock.phase("t_b_and_wait"):
                    loss.backward()
        with clock.phase("t_u"):
            optimizer.step()
        optimizer.zero_grad()
        clock.end_step(step)
        step += 1
        if rank == 0 and step % options.log_every == 0:
            pace = step * options.batch * options.accumulate * dist.get_world_size() / (time.monotonic() - begun)
            print(f"step {step}  loss {loss.item():.4f}  {pace:.0f} samples/s", flush=True)
    clock.close()
    return loss.item()


def main() -> None:
    """Train and leave the group in order."""
    options = parse()
    torch.set_num_threads(options.threads)
    join_group()
    loss = train(options)
    if dist.get_rank() == 0:
        print(f"final loss {loss!r}", flush=True)
    dist.barrier()
    dist.destroy_process_group()
    time.sleep(GRACE_S)


if __name__ == "__main__":
    main()

"""A real DistributedDataParallel training on synthetic images, on CPUs over gloo. It knows nothing of ddltop.

torchrun --standalone --nproc-per-node 2 demo/train.py --model cnn --steps 200
"""

import argparse
import contextlib
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from faults import Faults, inject, parse_fault
from networks import DEFAULTS, NETWORKS, TINY_FEATURES
from stopwatch import Stopwatch
from synthetic import NUM_CLASSES, NUM_SAMPLES, Collate, SyntheticImages
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

# Every rank must leave the loop at the same step: rank 0 looks at the clock and tells the others, this often.
STEPS_BETWEEN_CLOCKS = 10
# gloo can abort the interpreter when it ends while its threads still work (seen without any instrumentation).
GRACE_S = 0.1

Loader = DataLoader[tuple[Tensor, Tensor]]


def positive(text: str) -> int:
    """Parse a whole number above zero; raise ArgumentTypeError."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number above zero")
    return int(text)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        usage="%(prog)s [options]",
        description="Train on synthetic images with DistributedDataParallel (gloo, CPU).",
    )
    parser.add_argument("--model", choices=list(NETWORKS), default="cnn")
    parser.add_argument("--steps", type=positive, help="stop after so many optimizer steps")
    parser.add_argument("--duration", type=float, help="stop after so many seconds")
    parser.add_argument("--image-size", type=positive, help="pixels; 224 is the size of the papers")
    parser.add_argument("--batch", type=positive, help="samples per rank and micro-step")
    parser.add_argument("--accumulate", type=positive, default=1, help="micro-steps per optimizer step (no_sync)")
    parser.add_argument("--bucket-cap-mb", type=float)
    parser.add_argument("--workers", type=int, default=0, help="DataLoader workers")
    parser.add_argument("--threads", type=positive, default=1, help="torch threads per rank")
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log-every", type=positive, default=50)
    parser.add_argument("--quiet", action="store_true", help="print nothing but the final loss")
    parser.add_argument("--fault", type=parse_fault, action="append", default=[], metavar="KIND:rank=R,ms=T")
    parser.add_argument("--fail-at", type=int, help="exit with code 3 before this step")
    parser.add_argument("--timers", type=Path, help="write this script's own timings, JSON lines, to FILE.rankR")
    parser.add_argument("--profile", type=Path, help="write torch.profiler's trace of rank 0 to FILE; for a few steps")
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
    else:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)


def leave_group() -> None:
    """Leave it, and give gloo's threads time to end."""
    dist.destroy_process_group()
    time.sleep(GRACE_S)


def profile(path: Path | None) -> contextlib.AbstractContextManager[Any]:
    """Record rank 0 with torch.profiler and write a Chrome trace at the end; None: nothing."""
    if path is None or dist.get_rank() != 0:
        return contextlib.nullcontext()
    return torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU],
        on_trace_ready=lambda recorded: recorded.export_chrome_trace(str(path)),
    )


def make_loader(options: argparse.Namespace, faults: Faults) -> Loader:
    """Make this rank's loader."""
    is_flat = options.model == "tiny"
    shape = (TINY_FEATURES,) if is_flat else (3, options.image_size, options.image_size)
    # With less than one whole batch per rank the loader would give none, for ever.
    data = SyntheticImages(shape, options.seed, max(NUM_SAMPLES, options.batch * dist.get_world_size()))
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


def batches(loader: Loader) -> Iterator[tuple[Tensor, Tensor]]:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Trainer:
    """What one optimizer step needs."""

    ddp: DistributedDataParallel
    optimizer: torch.optim.Optimizer
    source: Iterator[tuple[Tensor, Tensor]]
    num_micro_steps: int
    stopwatch: Stopwatch

    def take_step(self) -> Tensor:
        """Take one optimizer step; give this rank's loss, the mean over its micro-steps."""
        loss = torch.zeros(())
        for micro_step in range(self.num_micro_steps):
            is_last = micro_step == self.num_micro_steps - 1
            with contextlib.nullcontext() if is_last else self.ddp.no_sync():
                loss += self._take_micro_step()
        with self.stopwatch.phase("t_u"):
            self.optimizer.step()
        self.optimizer.zero_grad()
        return loss

    def _take_micro_step(self) -> Tensor:
        with self.stopwatch.phase("t_io"):
            images, labels = next(self.source)
        with self.stopwatch.phase("t_f"):
            logits = self.ddp(images)
        with self.stopwatch.phase("t_loss"):
            loss = nn.functional.cross_entropy(logits, labels) / self.num_micro_steps
        with self.stopwatch.phase("t_b_and_wait"):
            loss.backward()
        return loss.detach()


def make_trainer(options: argparse.Namespace, faults: Faults) -> Trainer:
    """Make this rank's part of the training."""
    model = NETWORKS[options.model](NUM_CLASSES)
    inject(model, faults)
    ddp = DistributedDataParallel(model, bucket_cap_mb=options.bucket_cap_mb)
    timers: Path | None = options.timers
    return Trainer(
        ddp=ddp,
        optimizer=torch.optim.SGD(ddp.parameters(), lr=options.lr, momentum=0.9),
        source=batches(make_loader(options, faults)),
        num_micro_steps=options.accumulate,
        stopwatch=Stopwatch(timers and timers.with_name(f"{timers.name}.rank{dist.get_rank()}")),
    )


def train(options: argparse.Namespace) -> float:
    """Train; give the last loss of this rank."""
    torch.manual_seed(options.seed)
    faults = Faults(options.fault, dist.get_rank())
    trainer = make_trainer(options, faults)
    is_talking = dist.get_rank() == 0 and not options.quiet
    num_samples = options.batch * options.accumulate * dist.get_world_size()
    begun, loss, step = time.monotonic(), torch.zeros(()), 0
    while not is_over(options, step, begun):
        if step == options.fail_at:
            sys.exit(3)
        faults.step = step
        loss = trainer.take_step()
        if is_talking and (step + 1) % options.log_every == 0:
            pace = (step + 1) * num_samples / (time.monotonic() - begun)
            print(f"step {step + 1}  loss {loss.item():.4f}  {pace:.0f} samples/s", flush=True)
        trainer.stopwatch.end_step(step)
        step += 1
    trainer.stopwatch.close()
    if is_talking:
        print(f"trained {step} steps in {time.monotonic() - begun:.1f} s", flush=True)
    return loss.item()


def main() -> None:
    """Train and leave the group in order, also when the training fails."""
    options = parse()
    torch.set_num_threads(options.threads)
    join_group()
    try:
        with profile(options.profile):
            loss = train(options)
        if dist.get_rank() == 0:
            print(f"final loss {loss!r}", flush=True)
        dist.barrier()
    finally:
        leave_group()


if __name__ == "__main__":
    main()

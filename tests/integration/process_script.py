"""A small training among other processes; the mode says which. Prints a digest of its parameters."""

import hashlib
import multiprocessing
import os
import queue
import subprocess
import sys
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as Ddp
from torch.utils.data import DataLoader, Dataset

STEPS, BATCH = 40, 8


class Watchful(Dataset[torch.Tensor]):
    """Note in which processes samples are made, and whether any thread of a probe runs there."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    def __len__(self) -> int:
        return STEPS * BATCH

    def __getitem__(self, index: int) -> torch.Tensor:
        names = [thread.name for thread in threading.enumerate()]
        (self.folder / f"worker-{os.getpid()}").write_text(repr(names))
        return torch.full((32,), index / 100)


def train(loader: DataLoader[torch.Tensor], steps: int = STEPS, *, crash_at: int | None = None) -> None:
    torch.manual_seed(0)
    model: nn.Module = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))
    if dist.is_initialized():
        model = Ddp(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for i, batch in enumerate(loader):
        if i == steps:
            break
        if i == crash_at:
            raise RuntimeError("a crash that was asked for")
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.04)
    digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()
    sys.stdout.write(f"digest {digest}\n")  # in one piece: ranks share the pipe


def workers(folder: str, context: str) -> None:
    """Loader workers of every start method."""
    loader = DataLoader(Watchful(folder), batch_size=BATCH, num_workers=2, multiprocessing_context=context)
    train(loader)


def _spawned(rank: int, folder: str) -> None:
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    train(DataLoader(Watchful(folder), batch_size=BATCH))
    dist.destroy_process_group()


def spawn(folder: str) -> None:
    """torch.multiprocessing.spawn: the parent never trains."""
    torch.multiprocessing.spawn(_spawned, args=(folder,), nprocs=2)


def elastic(folder: str) -> None:
    """Crash in the first attempt of torchrun, train through in the second."""
    attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
    # A store for each attempt: in torchrun's own, gloo may read the addresses of the attempt before.
    store = f"file://{folder}/store-{os.getppid()}-{attempt}"
    dist.init_process_group("gloo", init_method=store, rank=int(os.environ["RANK"]), world_size=2)
    is_first = attempt == "0"
    train(DataLoader(Watchful(folder), batch_size=BATCH), crash_at=20 if is_first else None)
    dist.destroy_process_group()


def _child(results: "queue.Queue[object]", backlog: "queue.Queue[int]") -> None:
    # The queue was in use when the fork happened: its lock must not be one that a thread of ours held.
    backlog.put(1)
    backlog.get(timeout=5)
    model = nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(5):
        model(torch.ones(2, 8)).sum().backward()
        optimizer.step()
    results.put([thread.name for thread in threading.enumerate()])


def forks(folder: str) -> None:
    """Forked children while training goes on: they train a little of their own, and end."""
    torch.set_num_threads(1)
    backlog: queue.Queue[int] = queue.Queue()
    context = multiprocessing.get_context("fork")
    names = []

    class Forking(Watchful):
        def __getitem__(self, index: int) -> torch.Tensor:
            if index and index % (10 * BATCH) == 0:
                results = context.Queue()
                child = context.Process(target=_child, args=(results, backlog))
                child.start()
                names.append(results.get(timeout=20))
                child.join(20)
                assert child.exitcode == 0
            return super().__getitem__(index)

    train(DataLoader(Forking(folder), batch_size=BATCH))
    sys.stdout.write(f"threads of children {names}\n")


def second_group(folder: str) -> None:
    """DDP in a group of its own, collectives of the script in another."""
    dist.init_process_group("gloo")
    group = dist.new_group([0, 1])
    pair = dist.new_group([0, 1])
    torch.manual_seed(0)
    model = Ddp(nn.Linear(32, 32), process_group=group)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for batch in DataLoader(Watchful(folder), batch_size=BATCH):
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        dist.all_reduce(loss.detach(), group=pair)
        time.sleep(0.04)
    digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()
    sys.stdout.write(f"digest {digest}\n")  # in one piece: ranks share the pipe
    dist.destroy_process_group()


def tools(folder: str) -> None:
    """Helpers of a training script that never train: other Pythons, one of them deaf."""
    for flags in ([], ["-I"], ["-S"], ["-E"]):
        done = subprocess.run(
            [sys.executable, *flags, "-c", "print(6 * 7)"], capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "42\n", ""), done
    train(DataLoader(Watchful(folder), batch_size=BATCH))


def crash(folder: str) -> None:
    """Fail in the middle."""
    train(DataLoader(Watchful(folder), batch_size=BATCH), crash_at=20)


MODES = {"spawn": spawn, "elastic": elastic, "forks": forks, "second_group": second_group, "tools": tools}
MODES["crash"] = crash

if __name__ == "__main__":
    mode, folder, *rest = sys.argv[1:]
    workers(folder, rest[0]) if mode == "workers" else MODES[mode](folder)

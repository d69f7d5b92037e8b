"""Training loops of every kind, run one after another by two real ranks; the matrix test looks at what was measured.

Run by torchrun as `loops.py OUT CASE...`. Each rank writes a line of JSON per case to OUT.rankR: when the case began
and ended (wall clock, microseconds), how many optimizer steps it made, and a digest of all its parameters. The same
script runs with and without ddltop, and the digests must be the same.
"""

import hashlib
import json
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from ddltop_agents.rank import sampling
from torch import nn
from torch.nn.parallel import DistributedDataParallel as Ddp
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

# Every step in detail, however slow the machine is just now: what sampling leaves out is not asked about here.
sampling.MAX_SHARE = 1e9
STEPS, BATCH = 8, 16
Case = Callable[[], list[nn.Module]]
CASES: dict[str, Case] = {}


def case(run: Case) -> Case:
    CASES[run.__name__] = run
    return run


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    out = Path(f"{sys.argv[1]}.rank{dist.get_rank()}")
    with out.open("w") as lines:
        for name in sys.argv[2:]:
            torch.manual_seed(0)
            dist.barrier()
            begin_us = time.time_ns() // 1000
            models = CASES[name]()
            end_us = time.time_ns() // 1000
            digest = hashlib.sha256(b"".join(_bytes(p) for m in models for p in m.parameters())).hexdigest()
            line = {"case": name, "begin_us": begin_us, "end_us": end_us, "digest": digest}
            lines.write(json.dumps(line) + "\n")
            lines.flush()
            del models
    dist.barrier()
    dist.destroy_process_group()
    time.sleep(0.1)


def _bytes(parameter: torch.Tensor) -> bytes:
    whole = parameter.full_tensor() if hasattr(parameter, "full_tensor") else parameter
    return whole.detach().float().numpy().tobytes()


# What the loops share


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 8))


def dataset(steps: int = STEPS) -> TensorDataset:
    generator = torch.Generator().manual_seed(dist.get_rank() if dist.is_initialized() else 0)
    count = steps * BATCH
    return TensorDataset(
        torch.randn(count, 64, generator=generator), torch.randint(0, 8, (count,), generator=generator)
    )


def batches(steps: int = STEPS, **options: Any) -> Iterable[list[torch.Tensor]]:
    return DataLoader(dataset(steps), batch_size=BATCH, **options)


def sgd(model: nn.Module, **options: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, **options)


def loss_of(model: nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
    time.sleep(0.005)  # or the sampler would measure few of such short steps
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


def train(model: nn.Module, loader: Iterable[list[torch.Tensor]], optimizer: torch.optim.Optimizer) -> None:
    for batch in loader:
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        optimizer.step()


def plainly(**ddp_options: Any) -> list[nn.Module]:
    model = Ddp(network(), **ddp_options)
    train(model, batches(), sgd(model))
    return [model]


# Without a DataLoader: first, for once a process has used one, its steps are told by it


@case
def python_iterator() -> list[nn.Module]:
    model = Ddp(network())
    images, labels = dataset().tensors
    train(model, ([images[i : i + BATCH], labels[i : i + BATCH]] for i in range(0, len(images), BATCH)), sgd(model))
    return [model]


@case
def two_models_without_loader() -> list[nn.Module]:
    first, second = Ddp(network()), Ddp(network())
    one, other = sgd(first), sgd(second)
    images, labels = dataset().tensors
    for i in range(0, len(images), BATCH):
        for model, optimizer in ((first, one), (second, other)):
            optimizer.zero_grad()
            loss_of(model, [images[i : i + BATCH], labels[i : i + BATCH]]).backward()
            optimizer.step()
    return [first, second]


# Where the batches come from


@case
def plain() -> list[nn.Module]:
    return plainly()


@case
def loader_with_workers() -> list[nn.Module]:
    model = Ddp(network())
    train(model, batches(num_workers=2), sgd(model))
    return [model]


@case
def persistent_workers() -> list[nn.Module]:
    model = Ddp(network())
    optimizer = sgd(model)
    loader = batches(STEPS // 2, num_workers=1, persistent_workers=True)
    for _epoch in range(2):
        train(model, loader, optimizer)
    return [model]


class Endless(IterableDataset[list[torch.Tensor]]):
    def __iter__(self) -> Iterator[list[torch.Tensor]]:
        for image, label in dataset():
            yield [image, label]


@case
def iterable_data() -> list[nn.Module]:
    model = Ddp(network())
    train(model, DataLoader(Endless(), batch_size=BATCH), sgd(model))
    return [model]


@case
def early_break() -> list[nn.Module]:
    model = Ddp(network())
    optimizer = sgd(model)
    for _epoch in range(2):
        for number, batch in enumerate(batches()):
            if number == STEPS // 2:
                break
            optimizer.zero_grad()
            loss_of(model, batch).backward()
            optimizer.step()
    return [model]


# DDP's own ways


@case
def static_graph() -> list[nn.Module]:
    return plainly(static_graph=True)


@case
def unused_parameters() -> list[nn.Module]:
    class Half(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = network(), network()

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return self.used(images)

    model = Ddp(Half(), find_unused_parameters=True)
    train(model, batches(), sgd(model))
    return [model]


@case
def bucket_view() -> list[nn.Module]:
    return plainly(gradient_as_bucket_view=True)


@case
def small_buckets() -> list[nn.Module]:
    return plainly(bucket_cap_mb=0.1)


@case
def no_sync() -> list[nn.Module]:
    model = Ddp(network())
    optimizer = sgd(model)
    loader = iter(batches(2 * STEPS))
    for _step in range(STEPS):
        optimizer.zero_grad()
        with model.no_sync():
            loss_of(model, next(loader)).backward()
        loss_of(model, next(loader)).backward()
        optimizer.step()
    return [model]


@case
def accumulation_with_sync() -> list[nn.Module]:
    model = Ddp(network())
    optimizer = sgd(model)
    loader = iter(batches(2 * STEPS))
    for _step in range(STEPS):
        optimizer.zero_grad()
        for _micro_step in range(2):
            loss_of(model, next(loader)).backward()
        optimizer.step()
    return [model]


def joined(*, divide_by_initial_world_size: bool) -> list[nn.Module]:
    model = Ddp(network(), gradient_as_bucket_view=False)
    optimizer = sgd(model)
    with model.join(divide_by_initial_world_size=divide_by_initial_world_size):
        train(model, batches(STEPS if dist.get_rank() == 0 else STEPS // 2), optimizer)
    return [model]


@case
def join() -> list[nn.Module]:
    return joined(divide_by_initial_world_size=True)


@case
def join_by_present_ranks() -> list[nn.Module]:
    return joined(divide_by_initial_world_size=False)


@case
def buffers() -> list[nn.Module]:
    model = Ddp(nn.Sequential(nn.Linear(64, 256), nn.BatchNorm1d(256), nn.ReLU(), nn.Linear(256, 8)))
    train(model, batches(), sgd(model))
    return [model]


# The user's own communication hooks


def hooked(register: Callable[[Ddp], None]) -> list[nn.Module]:
    model = Ddp(network())
    register(model)
    train(model, batches(), sgd(model))
    return [model]


@case
def fp16_hook() -> list[nn.Module]:
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

    return hooked(lambda model: model.register_comm_hook(None, fp16_compress_hook))


@case
def bf16_wrapped_hook() -> list[nn.Module]:
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    hook = default_hooks.fp16_compress_wrapper(default_hooks.allreduce_hook)
    return hooked(lambda model: model.register_comm_hook(None, hook))


@case
def builtin_hook() -> list[nn.Module]:
    return hooked(lambda model: model._register_builtin_comm_hook(dist.BuiltinCommHookType.ALLREDUCE))


@case
def power_sgd() -> list[nn.Module]:
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as power

    def register(model: Ddp) -> None:
        state = power.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=3)
        model.register_comm_hook(state, power.powerSGD_hook)

    return hooked(register)


@case
def post_local_sgd() -> list[nn.Module]:
    from torch.distributed.algorithms.ddp_comm_hooks import post_localSGD_hook as post
    from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
    from torch.distributed.optim import PostLocalSGDOptimizer

    model = Ddp(network())
    state = post.PostLocalSGDState(process_group=None, subgroup=dist.group.WORLD, start_localSGD_iter=4)
    model.register_comm_hook(state, post.post_localSGD_hook)
    averager = PeriodicModelAverager(period=2, warmup_steps=4)
    train(model, batches(), PostLocalSGDOptimizer(optim=sgd(model), averager=averager))
    return [model]


# Around the step


@case
def two_models() -> list[nn.Module]:
    first, second = Ddp(network()), Ddp(network())
    one, other = sgd(first), sgd(second)
    for batch in batches():
        for model, optimizer in ((first, one), (second, other)):
            optimizer.zero_grad()
            loss_of(model, batch).backward()
            optimizer.step()
    return [first, second]


@case
def grad_scaler() -> list[nn.Module]:
    """Mixed precision; the third step overflows and is skipped."""
    model = Ddp(network())
    optimizer = sgd(model)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    for number, batch in enumerate(batches()):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = loss_of(model, batch)
        if number == 2:
            loss = loss * float("inf")
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    return [model]


@case
def lbfgs() -> list[nn.Module]:
    model = Ddp(network())
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)
    for batch in batches():

        def closure(batch: list[torch.Tensor] = batch) -> torch.Tensor:
            optimizer.zero_grad()
            loss = loss_of(model, batch)
            loss.backward()
            return loss

        optimizer.step(closure)
    return [model]


@case
def two_forwards() -> list[nn.Module]:
    model = Ddp(network())
    optimizer = sgd(model)
    for batch in batches():
        optimizer.zero_grad()
        (loss_of(model, batch) + loss_of(model, [batch[0] * 0.5, batch[1]])).backward()
        optimizer.step()
    return [model]


def checkpointed(*, use_reentrant: bool) -> list[nn.Module]:
    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.rest = nn.Linear(64, 64), network()

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return checkpoint(self.rest, self.first(images), use_reentrant=use_reentrant)

    model = Ddp(Checkpointed(), static_graph=use_reentrant)
    train(model, batches(), sgd(model))
    return [model]


@case
def checkpointing() -> list[nn.Module]:
    return checkpointed(use_reentrant=False)


@case
def reentrant_checkpointing() -> list[nn.Module]:
    return checkpointed(use_reentrant=True)


@case
def evaluation() -> list[nn.Module]:
    """Two epochs, each followed by 30 ms of evaluation: under no_grad, then under inference_mode."""
    model = Ddp(network())
    optimizer = sgd(model)
    for mode in (torch.no_grad, torch.inference_mode):
        train(model, batches(STEPS // 2), optimizer)
        model.eval()
        with mode():
            for batch in batches(3):
                model(batch[0])
                time.sleep(0.010)
        model.train()
    return [model]


@case
def clipping() -> list[nn.Module]:
    model = Ddp(network())
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    for batch in batches():
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return [model]


@case
def fused_optimizer() -> list[nn.Module]:
    model = Ddp(network())
    train(model, batches(), sgd(model, fused=True))
    return [model]


@case
def errors_in_the_loop() -> list[nn.Module]:
    """A forward, a backward and an update that fail, each caught by the loop, which then goes on."""
    model = Ddp(network())
    optimizer = sgd(model)

    def fail(*_arguments: Any) -> None:
        raise RuntimeError("on purpose")

    for number, batch in enumerate(batches()):
        optimizer.zero_grad()
        hook = model.module.register_forward_hook(fail) if number == 2 else None
        try:
            loss = loss_of(model, batch)
        except RuntimeError:
            assert hook is not None
            hook.remove()
            loss = loss_of(model, batch)
        if number == 5:
            step_hook = optimizer.register_step_pre_hook(fail)
            loss.backward()
            try:
                optimizer.step()
            except RuntimeError:
                step_hook.remove()
        else:
            loss.backward()
        optimizer.step()
    return [model]


@case
def zero_redundancy() -> list[nn.Module]:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = Ddp(network())
    train(model, batches(), ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.SGD, lr=0.05))
    return [model]


@case
def own_collectives() -> list[nn.Module]:
    """A metric in a group of its own, an all-gather inside forward, a barrier; 4 KiB each."""

    class Gathering(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = network()

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            parts = [torch.empty(512) for _ in range(2)]
            dist.all_gather(parts, torch.ones(512))
            return self.inner(images)

    model = Ddp(Gathering())
    optimizer = sgd(model)
    group = dist.new_group()
    for batch in batches():
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        optimizer.step()
        dist.all_reduce(torch.ones(1024) * loss.detach(), group=group)
        dist.barrier()
    return [model]


@case
def checkpoint_saved() -> list[nn.Module]:
    """Every second step writes a checkpoint, which takes 20 ms."""

    class Slow:
        def write(self, content: bytes) -> int:
            return len(content)

        def flush(self) -> None:
            time.sleep(0.020)

    model = Ddp(network())
    optimizer = sgd(model)
    for number, batch in enumerate(batches()):
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        optimizer.step()
        if number % 2:
            torch.save(model.state_dict(), Slow())
    return [model]


# Sharded models


@case
def fsdp2() -> list[nn.Module]:
    from torch.distributed.fsdp import fully_shard

    model = network()
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer)
    fully_shard(model)
    train(model, batches(), sgd(model))
    return [model]


@case
def hsdp() -> list[nn.Module]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (2, 1), mesh_dim_names=("replicate", "shard"))
    model = network()
    fully_shard(model, mesh=mesh)
    train(model, batches(), sgd(model))
    return [model]


@case
def fsdp2_accumulation() -> list[nn.Module]:
    from torch.distributed.fsdp import fully_shard

    model: Any = network()
    fully_shard(model)
    optimizer = sgd(model)
    loader = iter(batches(2 * STEPS))
    for _step in range(STEPS):
        optimizer.zero_grad()
        for is_last in (False, True):
            model.set_requires_gradient_sync(is_last)
            loss_of(model, next(loader)).backward()
        optimizer.step()
    return [model]


@case
def fsdp1() -> list[nn.Module]:
    from torch.distributed.fsdp import FullyShardedDataParallel

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = FullyShardedDataParallel(network(), device_id=torch.device("cpu"))
        train(model, batches(), sgd(model))
        with FullyShardedDataParallel.summon_full_params(model):
            whole = network()
            whole.load_state_dict({k: v.clone() for k, v in model.module.state_dict().items()})
    return [whole]


# Without a wrapped model


@case
def without_ddp() -> list[nn.Module]:
    """Gradients are averaged by hand."""
    model = network()
    optimizer = sgd(model)
    for batch in batches():
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
    return [model]


@case
def group_made_anew() -> list[nn.Module]:
    """The process group is destroyed and made again, as after a failure."""
    model = Ddp(network())
    train(model, batches(STEPS // 2), sgd(model))
    inner = model.module
    del model
    dist.barrier()
    time.sleep(0.05)
    rank, world_size = dist.get_rank(), dist.get_world_size()
    dist.destroy_process_group()
    # A store of its own: in the old one the new group may find the old group's addresses, and wait for ever.
    store = f"file://{Path(sys.argv[1]).resolve()}.store"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=world_size)
    again = Ddp(inner)
    train(again, batches(STEPS // 2), sgd(again))
    return [again]


if __name__ == "__main__":
    main()

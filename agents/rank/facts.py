"""What a rank knows about itself and about what it trains. torch is used only where the script has loaded it."""

import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ddltop.wire.endpoints import node_name
from ddltop.wire.messages import RankHello

from .launcher import place_from_environment

# The variables that shape communication, threads and device choice; no secrets among them.
_ENVIRONMENT = (
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "GLOO_SOCKET_IFNAME",
    "MASTER_ADDR",
    "NCCL_ALGO",
    "NCCL_DEBUG",
    "NCCL_IB_DISABLE",
    "NCCL_IB_HCA",
    "NCCL_P2P_DISABLE",
    "NCCL_PROTO",
    "NCCL_SOCKET_IFNAME",
    "OMP_NUM_THREADS",
    "TORCHELASTIC_RUN_ID",
    "TORCH_NCCL_BLOCKING_WAIT",
)
_DDP_FLAGS = ("find_unused_parameters", "gradient_as_bucket_view", "static_graph", "bucket_bytes_cap")
_FRAMEWORKS = ("torch", "tensorflow", "jax", "mxnet")
_DEVICE_PHASES = ("t_h2d", "t_f", "t_b", "t_c", "t_c_no", "t_u", "rest")
_MAX_NAMES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedModel:
    """One wrapped model, or what an optimizer updates in a script without one."""

    strategy: str  # ddp, fsdp, fsdp2, none
    name: str = ""
    device: str = "cpu"
    num_parameters: int = 0
    gradient_bytes: int = 0
    backend: str = ""
    bucket_timing: str = ""
    settings: dict[str, str] = field(default_factory=dict)


def describe_ddp(ddp: Any, bucket_timing: str) -> TrainedModel:
    """Describe a DistributedDataParallel instance."""
    import torch.distributed as dist

    settings = {f"ddp.{name}": str(getattr(ddp, name)) for name in _DDP_FLAGS if hasattr(ddp, name)}
    return _of_parameters(
        ddp.module.parameters(),
        strategy="ddp",
        name=type(ddp.module).__name__,
        backend=str(dist.get_backend(ddp.process_group)),
        bucket_timing=bucket_timing,
        settings=settings,
    )


def describe_fsdp1(module: Any) -> TrainedModel:
    """Describe the outermost FullyShardedDataParallel; its flat parameters are shards, equal on all ranks."""
    import torch.distributed as dist

    group = module.process_group
    shard = _of_parameters(
        module.parameters(),
        strategy="fsdp",
        name=type(module.module).__name__,
        backend=str(dist.get_backend(group)),
        bucket_timing="FSDP exchanges shards, not buckets",
        settings={"fsdp.sharding_strategy": str(getattr(module.sharding_strategy, "name", ""))},
    )
    num_shards = 1 if "NO_SHARD" in shard.settings["fsdp.sharding_strategy"] else group.size()
    return TrainedModel(
        strategy=shard.strategy,
        name=shard.name,
        device=shard.device,
        num_parameters=shard.num_parameters * num_shards,
        gradient_bytes=shard.gradient_bytes * num_shards,
        backend=shard.backend,
        bucket_timing=shard.bucket_timing,
        settings=shard.settings,
    )


def describe_fsdp2(module: Any) -> TrainedModel:
    """Describe the root module of `fully_shard`, whose parameters (DTensor) tell their whole size."""
    return _of_parameters(
        module.parameters(),
        strategy="fsdp2",
        name=type(module).__name__.removeprefix("FSDP"),
        backend=_default_backend(),
        bucket_timing="FSDP exchanges shards, not buckets",
    )


def describe_optimizer(optimizer: Any) -> TrainedModel:
    """Describe what an optimizer updates, in a process that has wrapped no model."""
    return _of_parameters(
        (p for group in optimizer.param_groups for p in group["params"]),
        strategy="none",
        name="",
        backend=_default_backend(),
        bucket_timing="no DistributedDataParallel model in this process",
    )


def describe_script() -> TrainedModel:
    """Describe a loop that names its phases itself."""
    return TrainedModel(strategy="none", bucket_timing="the script names its phases itself")


def merge_models(models: Iterable[TrainedModel]) -> TrainedModel:
    """Describe several models of one process, such as generator and discriminator, as one."""
    first, *others = models
    if not others:
        return first
    all_models = (first, *others)
    names = [model.name for model in all_models]
    refusals = [model.bucket_timing for model in all_models if model.bucket_timing != "on"]
    return TrainedModel(
        strategy=first.strategy,
        name="+".join(names[:_MAX_NAMES]) + ("+..." if len(names) > _MAX_NAMES else ""),
        device=first.device,
        num_parameters=sum(model.num_parameters for model in all_models),
        gradient_bytes=sum(model.gradient_bytes for model in all_models),
        backend=first.backend,
        bucket_timing=refusals[0] if refusals else first.bucket_timing,
        settings=first.settings,
    )


def describe_rank(model: TrainedModel, *, run_id: str, epoch: str) -> RankHello:
    """Describe this rank, training `model`."""
    rank, local_rank, world_size = _place()
    framework = next((name for name in _FRAMEWORKS if name in sys.modules), "python")
    version = str(getattr(sys.modules.get(framework), "__version__", ""))
    return RankHello(
        run_id=run_id,
        epoch=epoch,
        rank=rank,
        local_rank=local_rank,
        world_size=world_size,
        pid=os.getpid(),
        node=node_name(),
        attempt=_whole_number("TORCHELASTIC_RESTART_COUNT"),
        framework="pytorch" if framework == "torch" else framework,
        framework_version=version,
        backend=model.backend,
        device=model.device,
        gpu_uuid=_gpu_uuid(model.device),
        strategy=model.strategy,
        model=model.name,
        num_parameters=model.num_parameters,
        gradient_bytes=model.gradient_bytes,
        bucket_timing=model.bucket_timing,
        settings={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ} | model.settings,
    )


def reasons_unmeasured(hello: RankHello, *, has_clock: bool, failures: Mapping[str, str]) -> dict[str, str]:
    """Say of each figure that is not measured why."""
    unmeasured: dict[str, str] = {}
    is_cpu = hello.device == "cpu"
    if not is_cpu and not has_clock:
        reason = f"ddltop has no clock for the device {hello.device}: only t_iter and t_io are measured"
        unmeasured |= dict.fromkeys(_DEVICE_PHASES, reason)
    elif hello.world_size > 1 and hello.strategy == "ddp" and hello.bucket_timing != "on":
        unmeasured["t_c"] = f"buckets are not timed: {hello.bucket_timing}"
    elif hello.world_size > 1 and not is_cpu and hello.strategy != "ddp":
        unmeasured["t_c"] = "collectives run on streams of their own: only what the step waits for is measured"
    return unmeasured | {f"hook {site}": reason for site, reason in tuple(failures.items())}


def _of_parameters(parameters: Iterable[Any], *, strategy: str, name: str, **facts: Any) -> TrainedModel:
    trained = [p for p in parameters if p.requires_grad]
    return TrainedModel(
        strategy=strategy,
        name=name,
        device=str(trained[0].device) if trained else "cpu",
        num_parameters=sum(p.numel() for p in trained),
        gradient_bytes=sum(p.numel() * p.element_size() for p in trained),
        **facts,
    )


def _place() -> tuple[int, int, int]:
    """Give (rank, local rank, world size): the process group's where there is one, else the launcher's."""
    rank, local_rank, world_size = place_from_environment(os.environ)
    dist = sys.modules.get("torch.distributed")
    if dist is not None and dist.is_available() and dist.is_initialized():
        return dist.get_rank(), local_rank, dist.get_world_size()
    return rank, local_rank, world_size


def _default_backend() -> str:
    dist = sys.modules.get("torch.distributed")
    if dist is not None and dist.is_available() and dist.is_initialized():
        return str(dist.get_backend())
    return ""


def _gpu_uuid(device: str) -> str | None:
    if not device.startswith("cuda"):
        return None
    import torch

    uuid = getattr(torch.cuda.get_device_properties(device), "uuid", None)
    return None if uuid is None else f"GPU-{uuid}"


def _whole_number(variable: str) -> int:
    text = os.environ.get(variable, "")
    return int(text) if text.isdigit() else 0

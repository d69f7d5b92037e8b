"""What a rank knows about itself, read when its first DDP model is built. Imported after torch."""

import os
from typing import Any

from ddltop.wire.endpoints import node_name
from ddltop.wire.messages import RankHello

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
_NO_DEVICE_CLOCK = "device times are not measured on this device yet: only t_iter and t_io are"


def describe_rank(ddp: Any, *, run_id: str, epoch: str, bucket_timing: str) -> RankHello:
    """Describe this rank and the DDP model `ddp`."""
    import torch
    import torch.distributed as dist

    parameters = [p for p in ddp.module.parameters() if p.requires_grad]
    device = parameters[0].device if parameters else torch.device("cpu")
    return RankHello(
        run_id=run_id,
        epoch=epoch,
        rank=dist.get_rank(),
        local_rank=int(os.environ.get("LOCAL_RANK", "0")),
        world_size=dist.get_world_size(),
        pid=os.getpid(),
        node=node_name(),
        attempt=int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")),
        framework_version=str(torch.__version__),
        backend=str(dist.get_backend(ddp.process_group)),
        device=str(device),
        gpu_uuid=_gpu_uuid(device),
        model=type(ddp.module).__name__,
        num_parameters=sum(p.numel() for p in parameters),
        gradient_bytes=sum(p.numel() * p.element_size() for p in parameters),
        bucket_timing=bucket_timing,
        settings=_settings(ddp),
        unmeasured=_unmeasured(device, bucket_timing),
    )


def is_host_clock(ddp: Any) -> bool:
    """Tell whether the host waits for the device at each operation, so that host stamps time it."""
    return all(p.device.type == "cpu" for p in ddp.module.parameters())


def _settings(ddp: Any) -> dict[str, str]:
    settings = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    settings.update({f"ddp.{name}": str(getattr(ddp, name)) for name in _DDP_FLAGS if hasattr(ddp, name)})
    return settings


def _unmeasured(device: Any, bucket_timing: str) -> dict[str, str]:
    unmeasured = {}
    if device.type != "cpu":
        unmeasured = dict.fromkeys(("t_h2d", "t_f", "t_b", "t_c", "t_c_no", "t_u", "rest"), _NO_DEVICE_CLOCK)
    elif bucket_timing != "on":
        unmeasured["t_c"] = f"buckets are not timed: {bucket_timing}"
    return unmeasured


def _gpu_uuid(device: Any) -> str | None:
    if device.type != "cuda":
        return None
    import torch

    uuid = getattr(torch.cuda.get_device_properties(device), "uuid", None)
    return None if uuid is None else f"GPU-{uuid}"

"""Which module of torch is patched how, once it is imported: the list of all that ddltop touches in a training.

Private names are used where torch has no public ones; each is looked up when its module is there, and where one is
missing the hook's name goes to `stream.failures`, which says on screen what is unmeasured. Tried with torch
2.6-2.13, see docs/torch-versions.md.
"""

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

# Nothing of ours may be traced by torch.compile; a package's name stands for all of its modules.
_PACKAGE = "ddltop_agents"


def _patch_ddp(module: Any) -> None:
    from .rank import comm_hook, joining, probe, stamps

    ddp_class = module.DistributedDataParallel
    original_init = ddp_class.__init__
    if stamps.is_patched(original_init):
        return

    @wraps(original_init)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original_init(self, *args, **kwargs)
        probe.on_ddp_built(self)

    stamps.mark_patched(init, original_init)
    ddp_class.__init__ = init
    stamps.patch_forward(ddp_class, is_ddp=True)
    comm_hook.patch_registration(ddp_class)
    joining.patch_join(sys.modules["torch.distributed.algorithms.join"].Join)
    _patch_collectives_again()


def _patch_fsdp1(module: Any) -> None:
    from .rank import probe, stamps

    stamps.patch_forward(module.FullyShardedDataParallel, is_ddp=False, on_first=probe.on_fsdp1_forward)


def _patch_fsdp2_state(module: Any) -> None:
    from .rank import fsdp, probe

    fsdp.patch_state(module.FSDPState, probe.on_fsdp2_forward)


def _patch_fsdp2_waits(module: Any) -> None:
    from .rank import fsdp

    fsdp.patch_waits(module.FSDPParamGroup)


def _patch_loader(module: Any) -> None:
    from .rank import stamps

    stamps.patch_loader(module.DataLoader)
    stamps.patch_loader_iterator(module._BaseDataLoaderIter)


def _patch_stateful_loader(module: Any) -> None:
    """Patch torchdata's loader, whose iterators and loader override what torch's have."""
    from .rank import stamps

    for found in tuple(vars(module).values()):
        if isinstance(found, type) and found.__module__ == module.__name__:
            if found.__name__ == "StatefulDataLoader" and "__iter__" in vars(found):
                stamps.patch_loader(found)
            elif "__next__" in vars(found) and "Iter" in found.__name__:
                stamps.patch_loader_iterator(found)


def _patch_optimizer(module: Any) -> None:
    from .rank import probe, stamps

    stamps.patch_optimizers(
        module.register_optimizer_step_pre_hook, module.register_optimizer_step_post_hook, probe.on_optimizer_step
    )


def _patch_autograd(module: Any) -> None:
    from .rank import stamps

    stamps.patch_backward(module)


def _patch_scaler(module: Any) -> None:
    from .rank import stamps

    stamps.patch_grad_scaler(module.GradScaler)


def _patch_serialization(module: Any) -> None:
    from .rank import stamps

    stamps.patch_save(module)
    torch = sys.modules["torch"]
    if hasattr(torch, "save"):  # armed late
        torch.save = module.save  # type: ignore[attr-defined]


def _patch_c10d(module: Any) -> None:
    # Before torch.distributed and torch.distributed._functional_collectives take these names: torch.compile then
    # knows our functions for the collectives they are, without a graph break.
    from .rank import collectives

    collectives.patch_collectives(module)
    collectives.patch_wait(module.Work)


def _patch_collectives_again() -> None:
    """Patch the names that torch.distributed had taken before we were armed, and its own ones."""
    from .rank import collectives

    names = ("torch.distributed.distributed_c10d", "torch.distributed")
    collectives.patch_collectives(*(sys.modules[name] for name in names if name in sys.modules))


def _skip_in_dynamo(module: Any) -> None:
    module.add(_PACKAGE)


PATCHES: dict[str, Callable[[Any], None]] = {
    "torch.nn.parallel.distributed": _patch_ddp,
    "torch.distributed.distributed_c10d": _patch_c10d,
    "torch.distributed.fsdp.fully_sharded_data_parallel": _patch_fsdp1,
    "torch.distributed.fsdp._fully_shard._fsdp_state": _patch_fsdp2_state,
    "torch.distributed.fsdp._fully_shard._fsdp_param_group": _patch_fsdp2_waits,
    "torch.utils.data.dataloader": _patch_loader,
    "torchdata.stateful_dataloader.stateful_dataloader": _patch_stateful_loader,
    "torch.optim.optimizer": _patch_optimizer,
    "torch.autograd": _patch_autograd,
    "torch.amp.grad_scaler": _patch_scaler,
    "torch.serialization": _patch_serialization,
    "torch._dynamo.trace_rules": _skip_in_dynamo,
}

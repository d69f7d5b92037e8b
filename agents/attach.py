"""Arm a Python process: patch the modules a training loop goes through as they are imported.

Passive: nothing starts until a DDP model is built, so launchers, loader workers and scripts that never train
pay for a dictionary look-up per import. Never imports torch itself.
"""

import sys
from collections.abc import Callable
from functools import wraps
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_STAMPS = "ddltop_agents.rank.stamps"
_HOOK = "ddltop_agents.rank.comm_hook"


def arm() -> None:
    """Patch what is imported already, and the rest when it is imported."""
    if any(isinstance(finder, _PostImportFinder) for finder in sys.meta_path):
        return
    for name, patch in _PATCHES.items():
        if name in sys.modules:
            _apply(patch, sys.modules[name])
    sys.meta_path.insert(0, _PostImportFinder())


def _apply(patch: Callable[[Any], None], module: ModuleType) -> None:
    try:
        patch(module)
    except Exception as error:  # noqa: BLE001
        # The fence: a torch that has moved a name trains on, with that phase unmeasured.
        print(f"ddltop: {module.__name__} is not measured: {error!r}", file=sys.stderr)  # noqa: T201


def _patch_distributed(module: Any) -> None:
    from .rank import probe, stamps

    ddp_class = module.DistributedDataParallel
    original_init = ddp_class.__init__
    if hasattr(original_init, "_ddltop_original"):
        return

    @wraps(original_init)
    def patched_init(self: Any, *args: Any, **kwargs: Any) -> None:
        original_init(self, *args, **kwargs)
        probe.on_ddp_built(self)

    patched_init._ddltop_original = original_init  # type: ignore[attr-defined]
    ddp_class.__init__ = patched_init
    stamps.patch_ddp_forward(ddp_class)
    from .rank import comm_hook

    comm_hook.patch_registration(ddp_class)


def _patch_loader(module: Any) -> None:
    from .rank import stamps

    stamps.patch_loader_iterator(module._BaseDataLoaderIter)


def _patch_optimizer(module: Any) -> None:
    from .rank import stamps

    stamps.patch_optimizers(module.register_optimizer_step_pre_hook, module.register_optimizer_step_post_hook)


def _patch_autograd(module: Any) -> None:
    from .rank import stamps

    stamps.patch_backward(module)


def _patch_scaler(module: Any) -> None:
    from .rank import stamps

    stamps.patch_grad_scaler(module.GradScaler)


def _skip_in_dynamo(module: Any) -> None:
    module.add(_STAMPS)
    module.add(_HOOK)


_PATCHES: dict[str, Callable[[Any], None]] = {
    "torch.nn.parallel.distributed": _patch_distributed,
    "torch.utils.data.dataloader": _patch_loader,
    "torch.optim.optimizer": _patch_optimizer,
    "torch.autograd": _patch_autograd,
    "torch.amp.grad_scaler": _patch_scaler,
    "torch._dynamo.trace_rules": _skip_in_dynamo,
}


class _PostImportFinder(MetaPathFinder):
    """Let the other finders find a module, and patch it once it is executed."""

    def find_spec(self, fullname: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        patch = _PATCHES.get(fullname)
        if patch is None:
            return None
        for finder in sys.meta_path:
            if finder is self:
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None and spec.loader is not None:
                spec.loader = _PatchingLoader(spec.loader, patch)
                return spec
        return None


class _PatchingLoader(Loader):
    """Execute a module with its own loader, then patch it."""

    def __init__(self, loader: Loader, patch: Callable[[Any], None]) -> None:
        self._loader = loader
        self._patch = patch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        _apply(self._patch, module)

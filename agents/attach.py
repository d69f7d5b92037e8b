"""Arm a Python process: patch the modules a training loop goes through as they are imported.

Passive: nothing starts until a model trains, so launchers, loader workers and scripts that never train pay for a
dictionary look-up per import. Never imports torch itself.
"""

import sys
from collections.abc import Callable
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from .patches import PATCHES


def arm() -> None:
    """Patch what is imported already, and the rest when it is imported."""
    if any(isinstance(finder, _PostImportFinder) for finder in sys.meta_path):
        return
    for name, patch in PATCHES.items():
        if name in sys.modules:
            _apply(patch, sys.modules[name])
    sys.meta_path.insert(0, _PostImportFinder())


def _apply(patch: Callable[[Any], None], module: ModuleType) -> None:
    try:
        patch(module)
    except Exception as error:  # noqa: BLE001
        # The fence: a torch that has moved a name trains on, with that phase unmeasured.
        from .rank.stream import stream

        stream.fail(f"patching {module.__name__}", error)


class _PostImportFinder(MetaPathFinder):
    """Let the other finders find a module, and patch it once it is executed."""

    def find_spec(self, fullname: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        patch = PATCHES.get(fullname)
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

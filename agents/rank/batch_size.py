"""How many samples and tokens a batch holds, from the shapes of its tensors alone."""

from collections.abc import Iterable, Mapping
from typing import Any

from .stream import BatchSize

_UNKNOWN = BatchSize(None, None)
# A batch nested deeper than this is no layout of any framework seen.
_MAX_DEPTH = 3


def batch_size(args: Iterable[Any], kwargs: Mapping[str, Any]) -> BatchSize:
    """Count by the first tensor among the arguments: its first dimension is the batch in every layout DDP users have.

    A two-dimensional tensor of whole numbers is a batch of token sequences [samples, length], padding included.
    """
    tensor = _first_tensor((*args, *kwargs.values()), _MAX_DEPTH)
    if tensor is None:
        return _UNKNOWN
    shape = tensor.shape
    is_tokens = len(shape) == 2 and not (tensor.is_floating_point() or tensor.is_complex())
    return BatchSize(int(shape[0]), int(shape[0]) * int(shape[1]) if is_tokens else None)


def _first_tensor(values: Iterable[Any], depth: int) -> Any:
    for value in values:
        if hasattr(value, "is_floating_point"):
            if len(value.shape) > 0:
                return value
        elif depth > 1 and isinstance(value, (list, tuple, Mapping)):
            inner = _first_tensor(value.values() if isinstance(value, Mapping) else value, depth - 1)
            if inner is not None:
                return inner
    return None

"""A data set that needs no download: random images that depend on nothing but their index."""

import torch
from faults import Faults
from torch import Tensor
from torch.utils.data import Dataset

NUM_SAMPLES = 8192
NUM_CLASSES = 100


class SyntheticImages(Dataset[tuple[Tensor, Tensor]]):
    """`num_samples` samples of `shape`; a small pool of random images is drawn once, with `seed`."""

    def __init__(self, shape: tuple[int, ...], seed: int, num_samples: int = NUM_SAMPLES) -> None:
        generator = torch.Generator().manual_seed(seed)
        self._images = torch.randn(64, *shape, generator=generator)
        self._labels = torch.randint(0, NUM_CLASSES, (num_samples,), generator=generator)

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self._images[index % 64], self._labels[index]


class Collate:
    """Make a batch; the loader-delay fault strikes once per batch."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults

    def __call__(self, samples: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        """Stack the samples."""
        self._faults.strike("loader-delay")
        images, labels = zip(*samples, strict=True)
        return torch.stack(images), torch.stack(labels)

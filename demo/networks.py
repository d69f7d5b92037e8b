"""The networks of the demo: the three of arXiv 1711.05979 and two small ones, in plain torch.

Inputs are [batch, 3, size, size] images (tiny: [batch, 256] vectors), outputs [batch, num_classes] logits.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

TINY_FEATURES = 256


class Tiny(nn.Sequential):
    """A two-layer perceptron: a step takes a few milliseconds."""

    def __init__(self, num_classes: int) -> None:
        super().__init__(nn.Linear(TINY_FEATURES, 160), nn.ReLU(), nn.Linear(160, num_classes))


class CNN(nn.Sequential):
    """A small convolutional network of 1.1 M parameters: three DDP buckets of 2.1, 2.1 and 0.4 MB."""

    def __init__(self, num_classes: int) -> None:
        super().__init__(
            nn.Conv2d(3, 32, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(64, 128, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(3),
            nn.Flatten(),
            nn.Linear(1152, 448),
            nn.ReLU(),
            nn.Linear(448, 640),
            nn.ReLU(),
            nn.Linear(640, 320),
            nn.ReLU(),
            nn.Linear(320, num_classes),
        )


class AlexNet(nn.Sequential):
    """AlexNet in its one-tower form (arXiv 1404.5997): 61,100,840 parameters at 1000 classes."""

    def __init__(self, num_classes: int) -> None:
        super().__init__(
            nn.Conv2d(3, 64, 11, stride=4, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(3, stride=2, ceil_mode=True),
            nn.Conv2d(64, 192, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(3, stride=2, ceil_mode=True),
            nn.Conv2d(192, 384, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(384, 256, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(256, 256, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(6),
            nn.Flatten(),
            nn.Dropout(),
            nn.Linear(256 * 6 * 6, 4096),
            nn.ReLU(),
            nn.Dropout(),
            nn.Linear(4096, 4096),
            nn.ReLU(),
            nn.Linear(4096, num_classes),
        )


class Inception(nn.Module):
    """One inception block of GoogLeNet: four branches side by side, joined over channels."""

    def __init__(self, channels: int, one: int, three: tuple[int, int], five: tuple[int, int], pool: int) -> None:
        super().__init__()
        self.branches = nn.ModuleList(
            [
                _conv(channels, one, 1),
                nn.Sequential(_conv(channels, three[0], 1), _conv(three[0], three[1], 3)),
                nn.Sequential(_conv(channels, five[0], 1), _conv(five[0], five[1], 5)),
                nn.Sequential(nn.MaxPool2d(3, stride=1, padding=1), _conv(channels, pool, 1)),
            ]
        )

    def forward(self, x: Tensor) -> Tensor:
        """Run the branches and join them."""
        return torch.cat([branch(x) for branch in self.branches], dim=1)


def _conv(channels: int, out: int, size: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(channels, out, size, padding=size // 2), nn.ReLU())


class GoogLeNet(nn.Sequential):
    """GoogLeNet (arXiv 1409.4842) without its auxiliary heads: 6,998,552 parameters at 1000 classes."""

    def __init__(self, num_classes: int) -> None:
        pool = nn.MaxPool2d
        super().__init__(
            nn.Conv2d(3, 64, 7, stride=2, padding=3),
            nn.ReLU(),
            pool(3, stride=2, padding=1),
            _conv(64, 64, 1),
            _conv(64, 192, 3),
            pool(3, stride=2, padding=1),
            Inception(192, 64, (96, 128), (16, 32), 32),
            Inception(256, 128, (128, 192), (32, 96), 64),
            pool(3, stride=2, padding=1),
            Inception(480, 192, (96, 208), (16, 48), 64),
            Inception(512, 160, (112, 224), (24, 64), 64),
            Inception(512, 128, (128, 256), (24, 64), 64),
            Inception(512, 112, (144, 288), (32, 64), 64),
            Inception(528, 256, (160, 320), (32, 128), 128),
            pool(3, stride=2, padding=1),
            Inception(832, 256, (160, 320), (32, 128), 128),
            Inception(832, 384, (192, 384), (48, 128), 128),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Dropout(0.4),
            nn.Linear(1024, num_classes),
        )


class Bottleneck(nn.Module):
    """One residual block of ResNet-50: 1x1, 3x3, 1x1 convolutions beside a short cut."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        out = 4 * width
        self.body = nn.Sequential(
            nn.Conv2d(channels, width, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, out, 1, bias=False),
            nn.BatchNorm2d(out),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels != out:
            self.shortcut = nn.Sequential(nn.Conv2d(channels, out, 1, stride=stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x: Tensor) -> Tensor:
        """Add the body to the short cut."""
        return torch.relu(self.body(x) + self.shortcut(x))


class ResNet50(nn.Sequential):
    """ResNet-50 (arXiv 1512.03385): 25,557,032 parameters at 1000 classes."""

    def __init__(self, num_classes: int) -> None:
        layers: list[nn.Module] = [
            nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.MaxPool2d(3, stride=2, padding=1),
        ]
        channels = 64
        for width, num_blocks, first_stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
            for block in range(num_blocks):
                layers.append(Bottleneck(channels, width, first_stride if block == 0 else 1))
                channels = 4 * width
        super().__init__(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, num_classes))


NETWORKS: dict[str, Callable[[int], nn.Module]] = {
    "tiny": Tiny,
    "cnn": CNN,
    "alexnet": AlexNet,
    "googlenet": GoogLeNet,
    "resnet50": ResNet50,
}

# Image side, batch per rank and DDP bucket cap in MB that keep a CPU step with 2 ranks well under a second.
DEFAULTS: dict[str, tuple[int, int, float]] = {
    "tiny": (0, 64, 25.0),
    "cnn": (32, 32, 1.0),
    "alexnet": (64, 4, 25.0),
    "googlenet": (64, 4, 5.0),
    "resnet50": (64, 4, 25.0),
}

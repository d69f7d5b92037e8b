"""Sharded training and training by hand: no DDP, gradients travel in collectives; rank 1 may be slow in forward.

Run by torchrun as `sharded_script.py HOW STEPS DELAY_MS`, HOW being fsdp2 or by-hand.
"""

import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Slow(nn.Module):
    """Sleep on rank 1."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds if dist.get_rank() == 1 else 0.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        time.sleep(self.seconds)
        return x


def main(how: str, steps: int, delay_s: float) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.Sequential(Slow(delay_s), *(layer for _ in range(4) for layer in (nn.Linear(256, 256), nn.ReLU())))
    if how == "fsdp2":
        from torch.distributed.fsdp import fully_shard

        for layer in model:
            if isinstance(layer, nn.Linear):
                fully_shard(layer)
        fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    loader = DataLoader(TensorDataset(torch.randn(64 * steps, 256)), batch_size=64)
    for (batch,) in loader:
        loss = model(batch).square().mean()
        loss.backward()
        if how == "by-hand":
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
        optimizer.step()
        optimizer.zero_grad()
    print("final loss", loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]) / 1e3)

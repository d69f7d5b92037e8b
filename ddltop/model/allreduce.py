"""What an all-reduce of M bytes costs, equation (11) of docs/model.md: T(M) = a + b M."""

from dataclasses import dataclass
from enum import StrEnum
from math import log2

import numpy as np

from ddltop.model.window import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class AllReduceCost:
    """T(M) = a + b M: `a` seconds per message, `b` seconds per byte."""

    a: float
    b: float

    def time(self, nbytes: float) -> float:
        """Give T(M) of `nbytes`, seconds."""
        return self.a + self.b * nbytes

    def times(self, nbytes_B: Floats) -> Floats:
        """Give T(M) of each bucket, shape [B], seconds."""
        return self.a + self.b * nbytes_B


class Algorithm(StrEnum):
    """How the all-reduce is carried out."""

    RING = "ring"
    BINARY_TREE = "binary tree"
    RECURSIVE_DOUBLING = "recursive doubling"
    HALVING_DOUBLING = "recursive halving and doubling"
    DOUBLE_BINARY_TREE = "double binary tree"


def allreduce_cost(
    algorithm: Algorithm, num_workers: int, *, alpha: float, beta: float, gamma: float = 0.0
) -> AllReduceCost:
    """Give a, b of an algorithm from alpha (s per message), beta (s per byte), gamma (s per byte reduced)."""
    n = num_workers
    if n == 1:
        return AllReduceCost(a=0.0, b=0.0)
    log_n = log2(n)
    a, b = {
        Algorithm.RING: (2 * (n - 1) * alpha, 2 * (n - 1) / n * beta + (n - 1) / n * gamma),
        Algorithm.BINARY_TREE: (2 * alpha * log_n, (2 * beta + gamma) * log_n),
        Algorithm.RECURSIVE_DOUBLING: (alpha * log_n, (beta + gamma) * log_n),
        Algorithm.HALVING_DOUBLING: (2 * alpha * log_n, 2 * beta - (2 * beta + gamma) / n + gamma),
        Algorithm.DOUBLE_BINARY_TREE: (2 * alpha * log_n, beta + gamma),
    }[algorithm]
    return AllReduceCost(a=a, b=b)


def two_level_ring_cost(
    *, gpus_per_node: int, num_nodes: int, alpha_intra: float, beta_intra: float, alpha_inter: float, beta_inter: float
) -> AllReduceCost:
    """Give a, b of a ring inside each node and one between the nodes; units as `allreduce_cost`."""
    g, m = gpus_per_node, num_nodes
    return AllReduceCost(
        a=2 * (g - 1) * alpha_intra + 2 * (m - 1) * alpha_inter,
        b=2 * (g - 1) / g * beta_intra + 2 * (m - 1) / (m * g) * beta_inter,
    )


def algbw(nbytes: float, seconds: float) -> float:
    """Give M / T in bytes per second, as nccl-tests."""
    return nbytes / seconds


def busbw(nbytes: float, seconds: float, num_workers: int) -> float:
    """Give the bandwidth each link must carry, M / T * 2 (N - 1) / N in bytes per second, as nccl-tests."""
    return nbytes / seconds * 2 * (num_workers - 1) / num_workers


def size_ratio(nbytes_B: Floats) -> float:
    """Give the largest over the smallest size; 1 when there is one size."""
    positive = nbytes_B[nbytes_B > 0]
    return float(np.max(positive) / np.min(positive)) if positive.size else 1.0

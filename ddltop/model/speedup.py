"""Speed-up under weak scaling (same batch per worker), equations (6) and (7) of docs/model.md."""


def speedup(num_workers: int, t_iter_1: float, t_iter_n: float) -> float:
    """(6) N * t_iter(1) / t_iter(N), a ratio."""
    return num_workers * t_iter_1 / t_iter_n


def scaling_efficiency(num_workers: int, t_iter_1: float, t_iter_n: float) -> float:
    """(6) Speed-up over N, a ratio: 1 is linear."""
    return t_iter_1 / t_iter_n


def exposed_ratio(*, t_f: float, t_b: float, t_c_no: float, t_u: float) -> float:
    """(7) r = t_c_no / (t_f + t_b + t_u), a ratio."""
    return t_c_no / (t_f + t_b + t_u)


def speedup_from_exposed_ratio(num_workers: int, r: float) -> float:
    """(7) Speed-up when input is hidden: N / (1 + r), a ratio."""
    return num_workers / (1.0 + r)


def exposed_ratio_from_speedup(num_workers: int, measured: float) -> float:
    """(7) turned round: the r that a published speed-up implies, a ratio."""
    return num_workers / measured - 1.0


def deviation(measured: float, predicted: float) -> float:
    """Give measured / predicted - 1, a ratio: -0.25 is 25 % below the prediction."""
    return measured / predicted - 1.0

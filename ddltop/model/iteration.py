"""Iteration time from its phases, equations (1)-(5) of docs/model.md (arXiv 1711.05979). All times in seconds."""


def t_iter_single(*, t_io: float, t_h2d: float, t_f: float, t_b: float, t_u: float) -> float:
    """(1) One worker, nothing overlapped, seconds."""
    return t_io + t_h2d + t_f + t_b + t_u


def t_iter_naive(*, t_io: float, t_h2d: float, t_f: float, t_b: float, t_c: float, t_u: float) -> float:
    """(2) Naive S-SGD: all communication after backward, seconds."""
    return t_io + t_h2d + t_f + t_b + t_c + t_u


def t_iter_input_overlapped(*, t_io: float, t_h2d: float, t_f: float, t_b: float, t_c: float, t_u: float) -> float:
    """(3) The next batch is read and copied while this one is trained on, seconds."""
    return max(t_io + t_h2d, t_f + t_b + t_c + t_u)


def t_iter_wfbp(*, t_io: float, t_h2d: float, t_f: float, t_b: float, t_c_no: float, t_u: float) -> float:
    """(4) Wait-free backpropagation: only the exposed part `t_c_no` of communication counts, seconds."""
    return max(t_io + t_h2d, t_f + t_b + t_c_no + t_u)


def t_io_shared(t_io_single: float, num_readers: int) -> float:
    """(5) Reading time when `num_readers` workers share one disk or file server that is the limit, seconds."""
    return num_readers * t_io_single

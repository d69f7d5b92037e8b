"""Numbers as a person reads them: three significant digits, always a unit, a dash for not measured."""

import math

NOT_MEASURED = "-"

_TIME = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))
_BYTES = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))
_RATE = ((1e12, "TB/s"), (1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"))


def is_measured(value: float | None) -> bool:
    """Tell whether there is a finite number."""
    return value is not None and math.isfinite(value)


def format_number(value: float | None) -> str:
    """Write three significant digits: 0.0123, 1.23, 12.3, 123, 12,345."""
    if value is None or not math.isfinite(value):
        return NOT_MEASURED
    magnitude = abs(value)
    if magnitude >= 99.95:
        return f"{value:,.0f}"
    if magnitude >= 9.995:
        return f"{value:.1f}"
    if magnitude >= 0.9995:
        return f"{value:.2f}"
    if magnitude == 0.0:
        return "0"
    return f"{value:.3g}"


def format_ms(seconds: float | None) -> str:
    """Write seconds as milliseconds without the unit, for columns headed ms."""
    if seconds is None or not math.isfinite(seconds):
        return NOT_MEASURED
    ms = seconds * 1e3
    return f"{ms:,.0f}" if abs(ms) >= 99.95 else f"{ms:.1f}" if abs(ms) >= 0.05 else "0.0"


def format_time(seconds: float | None) -> str:
    """Write a duration with the unit that fits: 318 ms, 2.10 s, 45.0 us."""
    if seconds is None or not math.isfinite(seconds):
        return NOT_MEASURED
    for size, unit in _TIME:
        if abs(seconds) >= size * 0.9995:
            return f"{format_number(seconds / size)} {unit}"
    return "0 us" if seconds == 0.0 else f"{format_number(seconds * 1e6)} us"


def format_clock(seconds: float | None) -> str:
    """Write a long duration as h:mm:ss or m:ss."""
    if seconds is None or not math.isfinite(seconds):
        return NOT_MEASURED
    minutes, second = divmod(int(max(0.0, seconds)), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute}:{second:02d}"


def format_bytes(num_bytes: float | None) -> str:
    """Write a size in powers of 1024: 102 MiB."""
    if num_bytes is None or not math.isfinite(num_bytes):
        return NOT_MEASURED
    for size, unit in _BYTES:
        if abs(num_bytes) >= size:
            return f"{format_number(num_bytes / size)} {unit}"
    return f"{num_bytes:.0f} B"


def format_rate(bytes_per_s: float | None) -> str:
    """Write a bandwidth in powers of 1000, bytes: 2.10 GB/s."""
    if bytes_per_s is None or not math.isfinite(bytes_per_s):
        return NOT_MEASURED
    for size, unit in _RATE:
        if abs(bytes_per_s) >= size * 0.9995:
            return f"{format_number(bytes_per_s / size)} {unit}"
    return f"{bytes_per_s:.0f} B/s"


def format_speedup(value: float | None) -> str:
    """Write a speed-up: 5.20x."""
    if value is None or not math.isfinite(value):
        return NOT_MEASURED
    return f"{value:.2f}x" if value < 9.995 else f"{value:.1f}x" if value < 99.95 else f"{value:.0f}x"


def format_share(ratio: float | None) -> str:
    """Write a share of a whole as a percentage: 18 %."""
    if ratio is None or not math.isfinite(ratio):
        return NOT_MEASURED
    return f"{ratio * 100:.0f} %"

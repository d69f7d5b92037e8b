"""Every GPU of the node through NVML (nvidia-ml-py, the vendor's own binding).

Calls: nvmlDeviceGetUtilizationRates (percent), GetMemoryInfo (bytes), GetPowerUsage and GetEnforcedPowerLimit
(milliwatts), GetTemperature (Celsius), GetClockInfo and GetMaxClockInfo (MHz), GetCurrentClocksEventReasons
(bits). A function that a device or driver lacks leaves its figure None and is not asked again.
"""

from collections.abc import Callable
from typing import Any

from ddltop.wire.messages import GpuSample

NO_GPU = "no GPU"
RETRY_SAMPLES = 60  # a driver that is loaded later is found within a minute or so

# NVML's nvmlClocksEventReasons bits that say why clocks are below their maximum.
_REASONS = {
    0x2: "application clocks",
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal",
    0x40: "hardware thermal",
    0x80: "power brake",
    0x100: "display clocks",
}
# Codes of "this device or driver does not do that": NOT_SUPPORTED, FUNCTION_NOT_FOUND.
_NEVER = (3, 13)


class GpuSensor:
    """Samples of all GPUs; opens NVML at the first sample and never raises."""

    def __init__(self) -> None:
        self._nvml: Any = None
        self._handles: list[Any] = []
        self._identity: list[tuple[str, str]] = []  # uuid, name
        self._lacking: set[tuple[int, str]] = set()
        self._skip = 0

    def sample(self) -> tuple[tuple[GpuSample, ...], str]:
        """Sample all GPUs; the text is "ok" or why there are none."""
        if self._nvml is None:
            if self._skip > 0:
                self._skip -= 1
                return (), NO_GPU
            self._open()
        if self._nvml is None:
            self._skip = RETRY_SAMPLES
            return (), NO_GPU
        if not self._handles:
            return (), NO_GPU
        return tuple(self._sample_one(i) for i in range(len(self._handles))), "ok"

    def _open(self) -> None:
        try:
            import pynvml
        except ImportError:
            return
        try:
            pynvml.nvmlInit()
            handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        except pynvml.NVMLError:
            return
        self._nvml = pynvml
        self._handles = handles
        self._identity = [
            (self._text(i, "nvmlDeviceGetUUID"), self._text(i, "nvmlDeviceGetName")) for i in range(len(handles))
        ]

    def _sample_one(self, index: int) -> GpuSample:
        nvml = self._nvml
        uuid, name = self._identity[index]
        memory = self._ask(index, "nvmlDeviceGetMemoryInfo")
        utilization = self._ask(index, "nvmlDeviceGetUtilizationRates")
        power = self._ask(index, "nvmlDeviceGetPowerUsage")
        limit = self._ask(index, "nvmlDeviceGetEnforcedPowerLimit")
        return GpuSample(
            index=index,
            uuid=uuid,
            name=name,
            utilization_ratio=utilization.gpu / 100 if utilization is not None else None,
            memory_used_bytes=int(memory.used) if memory is not None else None,
            memory_total_bytes=int(memory.total) if memory is not None else None,
            power_w=power / 1e3 if power is not None else None,
            power_limit_w=limit / 1e3 if limit is not None else None,
            temperature_c=_float(self._ask(index, "nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU)),
            sm_clock_mhz=_float(self._ask(index, "nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM)),
            sm_clock_max_mhz=_float(self._ask(index, "nvmlDeviceGetMaxClockInfo", nvml.NVML_CLOCK_SM)),
            throttle_reasons=self._throttle_reasons(index),
        )

    def _throttle_reasons(self, index: int) -> tuple[str, ...]:
        bits = self._ask(index, "nvmlDeviceGetCurrentClocksEventReasons")
        if bits is None:  # drivers before 535 know it by its old name
            bits = self._ask(index, "nvmlDeviceGetCurrentClocksThrottleReasons")
        return tuple(name for bit, name in _REASONS.items() if int(bits or 0) & bit)

    def _ask(self, index: int, function: str, *arguments: Any) -> Any:
        """Call one NVML function of one device; None when it has no answer."""
        if (index, function) in self._lacking:
            return None
        call: Callable[..., Any] | None = getattr(self._nvml, function, None)
        try:
            return call(self._handles[index], *arguments) if call is not None else None
        except self._nvml.NVMLError as error:
            if getattr(error, "value", None) in _NEVER:
                self._lacking.add((index, function))
            return None

    def _text(self, index: int, function: str) -> str:
        value = self._ask(index, function)
        text = value.decode(errors="replace") if isinstance(value, bytes) else str(value or "")
        return "".join(c for c in text if c.isprintable())[:96]


def _float(value: Any) -> float | None:
    return None if value is None else float(value)

"""Every GPU of the node through NVML (nvidia-ml-py, the vendor's own binding).

Calls: nvmlDeviceGetUtilizationRates (percent), GetMemoryInfo (bytes), GetPowerUsage and GetEnforcedPowerLimit
(milliwatts), GetTemperature (Celsius), GetClockInfo and GetMaxClockInfo (MHz), GetCurrentClocksEventReasons
(bits). A function that a device or driver lacks leaves its figure None and is not asked again.
"""

from dataclasses import dataclass, field
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
# NVML return codes: a call that this device or driver will never answer (NOT_SUPPORTED, FUNCTION_NOT_FOUND) ...
_NEVER = (3, 13)
# ... and a machine without the driver (DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND).
_NO_DRIVER = (9, 12)


@dataclass(slots=True, kw_only=True)
class _Device:
    index: int
    handle: Any
    uuid: str = ""
    name: str = ""
    lacking: set[str] = field(default_factory=set)  # functions that are not asked again


class GpuSensor:
    """Samples of all GPUs; opens NVML at the first sample and never raises."""

    def __init__(self) -> None:
        self._nvml: Any = None
        self._devices: list[_Device] = []
        self._status = NO_GPU
        self._num_to_skip = 0

    def sample(self) -> tuple[tuple[GpuSample, ...], str]:
        """Sample all GPUs; the text is "ok" or why there are none."""
        if not self._devices and self._num_to_skip > 0:
            self._num_to_skip -= 1
            return (), self._status
        if not self._devices:
            self._num_to_skip = RETRY_SAMPLES
            self._status = self._open()
        return tuple(self._sample_one(device) for device in self._devices), self._status

    def _open(self) -> str:
        """Find the devices; give the status."""
        try:
            import pynvml
        except ImportError:
            return NO_GPU
        self._nvml = pynvml
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            return self._reason(error)
        try:
            status = self._find_devices(pynvml.nvmlDeviceGetCount())
        except pynvml.NVMLError as error:
            status = self._reason(error)
        if not self._devices:
            self._close()
        return status

    def _close(self) -> None:
        # Each try to open counts in NVML; one close each keeps the count level.
        try:
            self._nvml.nvmlShutdown()
        except self._nvml.NVMLError:
            return

    def _find_devices(self, num_devices: int) -> str:
        """Keep the device handles that NVML gives: one broken GPU shall not hide the others."""
        status = NO_GPU
        for index in range(num_devices):
            try:
                device = _Device(index=index, handle=self._nvml.nvmlDeviceGetHandleByIndex(index))
            except self._nvml.NVMLError as error:
                status = self._reason(error)
                continue
            device.uuid = _printable(self._ask(device, "nvmlDeviceGetUUID"))
            device.name = _printable(self._ask(device, "nvmlDeviceGetName"))
            self._devices.append(device)
        return "ok" if self._devices else status

    def _reason(self, error: Exception) -> str:
        if getattr(error, "value", None) in _NO_DRIVER:
            return NO_GPU
        return f"no GPU: {_printable(str(error))}"

    def _sample_one(self, device: _Device) -> GpuSample:
        nvml = self._nvml
        memory = self._ask(device, "nvmlDeviceGetMemoryInfo")
        utilization = self._ask(device, "nvmlDeviceGetUtilizationRates")
        power = self._ask(device, "nvmlDeviceGetPowerUsage")
        limit = self._ask(device, "nvmlDeviceGetEnforcedPowerLimit")
        return GpuSample(
            index=device.index,
            uuid=device.uuid,
            name=device.name,
            utilization_ratio=utilization.gpu / 100 if utilization is not None else None,
            memory_used_bytes=int(memory.used) if memory is not None else None,
            memory_total_bytes=int(memory.total) if memory is not None else None,
            power_w=power / 1e3 if power is not None else None,
            power_limit_w=limit / 1e3 if limit is not None else None,
            temperature_c=_float(self._ask(device, "nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU)),
            sm_clock_mhz=_float(self._ask(device, "nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM)),
            sm_clock_max_mhz=_float(self._ask(device, "nvmlDeviceGetMaxClockInfo", nvml.NVML_CLOCK_SM)),
            throttle_reasons=self._throttle_reasons(device),
        )

    def _throttle_reasons(self, device: _Device) -> tuple[str, ...]:
        bits = self._ask(device, "nvmlDeviceGetCurrentClocksEventReasons")
        if bits is None:  # drivers before 535 know it by its old name
            bits = self._ask(device, "nvmlDeviceGetCurrentClocksThrottleReasons")
        return tuple(name for bit, name in _REASONS.items() if int(bits or 0) & bit)

    def _ask(self, device: _Device, function: str, *arguments: Any) -> Any:
        """Call one NVML function of one device; None when it has no answer."""
        if function in device.lacking:
            return None
        try:
            return getattr(self._nvml, function)(device.handle, *arguments)
        except AttributeError:  # an older binding
            device.lacking.add(function)
        except UnicodeDecodeError:  # the binding decodes names itself
            return None
        except self._nvml.NVMLError as error:
            if getattr(error, "value", None) in _NEVER:
                device.lacking.add(function)
        return None


def _printable(value: Any) -> str:
    text = value.decode(errors="replace") if isinstance(value, bytes) else str(value or "")
    return "".join(c for c in text if c.isprintable())[:96]


def _float(value: Any) -> float | None:
    return None if value is None else float(value)

"""What went on around a benchmark: the GPU's clocks, temperature and other users, through NVML."""

import ctypes
import os
import platform

import torch

_SM_CLOCK, _MEMORY_CLOCK = 1, 2  # NVML's numbers
_TEMPERATURE_GPU = 0
_MANY = 256


class _Process(ctypes.Structure):
    _fields_ = [
        ("pid", ctypes.c_uint),
        ("memory", ctypes.c_ulonglong),
        ("instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


class Surroundings:
    """Looks at one device. On the CPU, or without NVML, it tells what it can."""

    def __init__(self, device: torch.device) -> None:
        self._handle: ctypes.c_void_p | None = None
        if device.type == "cuda":
            self._open(str(torch.cuda.get_device_properties(device).uuid))

    def look(self) -> dict[str, str]:
        """Kernel and load of the host; clocks in MHz, temperature in °C, reasons of throttling as NVML's bit mask, and
        how many processes use the GPU, ours among them."""
        seen = {"kernel": platform.release(), "load": f"{os.getloadavg()[0]:.2f}"}
        if self._handle is None:
            return seen
        seen |= {
            "sm_mhz": str(self._number("nvmlDeviceGetClockInfo", ctypes.c_uint, _SM_CLOCK)),
            "memory_mhz": str(self._number("nvmlDeviceGetClockInfo", ctypes.c_uint, _MEMORY_CLOCK)),
            "celsius": str(self._number("nvmlDeviceGetTemperature", ctypes.c_uint, _TEMPERATURE_GPU)),
            "throttle": str(self._number("nvmlDeviceGetCurrentClocksThrottleReasons", ctypes.c_ulonglong)),
            "gpu_processes": str(self._processes()),
        }
        return seen

    def _open(self, uuid: str) -> None:
        try:
            self._nvml = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError:  # no driver library: a container without it
            return
        handle = ctypes.c_void_p()
        name = uuid if uuid.startswith("GPU-") else f"GPU-{uuid}"
        found = self._nvml.nvmlInit_v2() == 0 and not self._nvml.nvmlDeviceGetHandleByUUID(
            name.encode(), ctypes.byref(handle)
        )
        self._handle = handle if found else None

    def _number(self, function: str, kind: type, *args: int) -> int | None:
        value = kind()
        failed = getattr(self._nvml, function)(self._handle, *args, ctypes.byref(value))
        return None if failed else value.value

    def _processes(self) -> int | None:
        count, processes = ctypes.c_uint(_MANY), (_Process * _MANY)()
        ask = getattr(self._nvml, "nvmlDeviceGetComputeRunningProcesses_v3", None)
        return None if ask is None or ask(self._handle, ctypes.byref(count), processes) else count.value


def compared(before: dict[str, str], after: dict[str, str]) -> dict[str, str]:
    """Both looks in one: a value, or "before → after" where it changed."""
    return {k: before[k] if before[k] == after.get(k) else f"{before[k]} → {after.get(k)}" for k in before}

"""What went on around a benchmark: the GPU's clocks, temperature and other users, through NVML."""

import ctypes
import math
import os
import platform
import time
from pathlib import Path

import torch

from passbench.timing.cores import host_us

_SM_CLOCK, _MEMORY_CLOCK = 1, 2  # NVML's numbers
_TEMPERATURE_GPU = 0
_MANY = 256
_FRESH_SECONDS = 0.1
_SLOWED = 0x8 | 0x20 | 0x40 | 0x80  # reasons of throttling: hardware slowdown, heat, power brake
_OWN_LOAD = 4.0  # this process, its workers and the compilers in them
_BUSY_SHARE = 0.75  # of the host's cores


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
        self._device = device
        self._seen: dict[str, str] = {}
        self._looked = -math.inf
        if device.type == "cuda":
            self._open(str(torch.cuda.get_device_properties(device).uuid))

    def look(self) -> dict[str, str]:
        """Kernel, load and, with a GPU, speed of the host (`cores.host_us`); clocks in MHz, temperature in °C, reasons
        of throttling as NVML's bit mask, and how many processes use the GPU, ours among them.

        A look that is younger than a tenth of a second is given again: between two variants one is enough.
        """
        if time.monotonic() > self._looked + _FRESH_SECONDS:
            self._seen = self._look()
            self._looked = time.monotonic()
        return self._seen

    def _look(self) -> dict[str, str]:
        seen = {"kernel": platform.release(), "load": f"{os.getloadavg()[0]:.2f}"}
        if self._device.type == "cuda":
            seen["host_us"] = f"{host_us():.0f}"
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

    def hardware(self) -> dict[str, str]:
        """GPU, driver, compute capability, processor and number of cores."""
        found = {"cpu": _processor(), "cores": str(os.cpu_count())}
        if self._device.type == "cuda":
            properties = torch.cuda.get_device_properties(self._device)
            found |= {"gpu": properties.name, "capability": f"{properties.major}.{properties.minor}"}
            if driver := self._driver():
                found["driver"] = driver
        return found

    def _driver(self) -> str:
        """Version of the driver; empty without NVML."""
        if self._handle is None:
            return ""
        text = ctypes.create_string_buffer(_MANY)
        return "" if self._nvml.nvmlSystemGetDriverVersion(text, _MANY) else text.value.decode()

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


def busy(before: dict[str, str], after: dict[str, str], ours: int) -> str:
    """What else the machine did between two looks; empty if nothing was seen. `ours`: our own processes on the GPU."""
    found = []
    cores, load = os.cpu_count() or 1, max(float(look["load"]) for look in (before, after))
    if load > max(_OWN_LOAD, _BUSY_SHARE * cores):
        found.append(f"a load of {load:.1f} on {cores} cores")
    processes = max(_whole(look.get("gpu_processes")) for look in (before, after))
    if processes > ours:
        found.append(f"{processes - ours} other processes on the GPU")
    if (_whole(before.get("throttle")) | _whole(after.get("throttle"))) & _SLOWED:
        found.append("the GPU was throttled")
    return ", ".join(found)


def _whole(text: str | None) -> int:
    """A number as `Surroundings.look` gives it; 0 where NVML gave none."""
    return int(text) if text and text.isdigit() else 0


def _processor() -> str:
    """The processor's model as the kernel names it; its architecture where the kernel names none."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()

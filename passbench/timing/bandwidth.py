"""The time that no result can be below: that of writing its outputs to memory."""

import functools

import torch

from passbench.ipc.messages import OutputKind, OutputMeta
from passbench.ipc.shared_memory import extent

_MARGIN = 1.25  # over the datasheet's rate


def floor_us(outputs: tuple[OutputMeta, ...], device: torch.device) -> float | None:
    """Microseconds that it takes at least to write outputs that share no memory with inputs, less what the L2 cache
    may still hold. None where the device does not tell its memory's rate."""
    rate = bytes_per_us(device)
    if rate is None:
        return None
    written = sum(
        extent(m.shape, m.stride) * m.dtype.itemsize for m in outputs if m.kind is OutputKind.TENSOR and m.aliases < 0
    )
    return max(0.0, written - _l2_bytes(device)) / (rate * _MARGIN)


@functools.cache
def bytes_per_us(device: torch.device) -> float | None:
    """The datasheet's memory bandwidth: clock, two transfers a cycle, bus width."""
    if device.type != "cuda":
        return None
    properties = torch.cuda.get_device_properties(device)
    clock_khz, bits = (getattr(properties, n, 0) for n in ("memory_clock_rate", "memory_bus_width"))
    return clock_khz * 1e3 * 2 * bits / 8 / 1e6 if clock_khz and bits else None


def _l2_bytes(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).L2_cache_size

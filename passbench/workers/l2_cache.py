"""The GPU's L2 cache, as whoever is timed next finds it."""

import ctypes
import functools

import torch


class L2Cache:
    """Leaves nothing of what ran before in the L2 cache of a GPU; there is nothing to do on another device.

    Lines that a kernel loads with `evict_last` outlive others, also those of twice the cache's size: on an H200 they
    made additions of 10 and 16 MiB by somebody else 8 and 5 % longer, and none once all lines were made normal ones.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._filler: torch.Tensor | None = None

    def clear(self) -> None:
        """Make all lines normal ones, and write over them."""
        if self._device.type != "cuda":
            return
        if self._filler is None:
            size = 2 * torch.cuda.get_device_properties(self._device).L2_cache_size
            self._filler = torch.empty(size, dtype=torch.uint8, device=self._device)
        with torch.cuda.device(self._device):
            _driver().cuCtxResetPersistingL2Cache()  # its code is not asked: a GPU that refuses has no such lines
        self._filler.zero_()


@functools.cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")

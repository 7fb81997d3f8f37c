"""Launches of Triton kernels that cost the host little, and `captured`: the part of PassBench that a pass may import.

`kernel[grid](...)` binds, specialises and looks up its arguments at every call. A `Launch` does so once: its grid and
all arguments but the tensors are fixed, so that a later call has only to check that its tensors are of the same kind.
Where they are not, or the kernel is interpreted, it is Triton's own launch: the results are the same either way.
"""

from typing import Any

import torch
from triton.runtime.driver import driver
from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import JITFunction

from passbench.capture import captured

__all__ = ["Launch", "captured"]

ALIGNMENT = 16
"""Bytes; Triton compiles one kernel for pointers that are multiples of it, and others for all else."""


class Launch:
    """A kernel with its grid and its constants: `Launch(add_kernel, (64,), BLOCK=256, num_warps=4)`.

    `grid` is one to three whole numbers; `constants` are the kernel's parameters behind its tensors, by name, and
    options of the launch. Raises TypeError on anything but a `@triton.jit` function, and on tensors as constants.
    """

    __slots__ = ("_constants", "_device", "_dtypes", "_grid", "_handles", "_kernel", "_rest", "_run", "_stream")

    def __init__(self, kernel: JITFunction | InterpretedFunction, grid: tuple[int, ...], **constants: Any) -> None:
        if type(kernel) not in (JITFunction, InterpretedFunction):
            raise TypeError(f"a Launch is of a @triton.jit function, not of {type(kernel).__name__}")
        if not (type(grid) is tuple and 1 <= len(grid) <= 3 and all(type(size) is int for size in grid)):
            raise TypeError(f"a grid is one to three whole numbers, not {grid!r}")
        if any(isinstance(value, torch.Tensor) for value in constants.values()):
            raise TypeError("tensors are given to the launch, not fixed beforehand")
        self._kernel, self._grid, self._constants = kernel, grid, constants
        self._device: int | None = None  # until it is compiled
        self._dtypes: tuple[torch.dtype, ...] = ()

    def __call__(self, *tensors: torch.Tensor) -> None:
        """Launch on the tensors' device, the current one, and its current stream. The tensors are the kernel's first
        parameters, in order."""
        device, together, pointers = self._device, 0, []
        if device is None:
            return self._compile(tensors)
        for tensor, dtype in zip(tensors, self._dtypes, strict=True):
            if tensor.dtype is not dtype or tensor.get_device() != device:
                return self._compile(tensors)
            pointer = tensor.data_ptr()
            together |= pointer
            pointers.append(pointer)
        if together % ALIGNMENT:
            return self._compile(tensors)
        x, y, z = self._grid
        function, metadata = self._handles
        # As `JITFunction.run` does it, less what is for hooks on launches.
        self._run(x, y, z, self._stream(device), function, metadata, None, None, None, *pointers, *self._rest)
        return None

    @property
    def name(self) -> str:
        """The kernel's name."""
        return self._kernel.__name__

    def _compile(self, tensors: tuple[torch.Tensor, ...]) -> None:
        """Launch through Triton, and keep what it compiled if that fits the usual tensors: aligned, on one device."""
        compiled = self._kernel[self._grid](*tensors, **self._constants)
        devices = {tensor.get_device() for tensor in tensors}
        aligned = not any(tensor.data_ptr() % ALIGNMENT for tensor in tensors)
        if type(self._kernel) is not JITFunction or self._device is not None or len(devices) > 1 or not aligned:
            return
        parameters = list(self._kernel.signature.parameters.values())[len(tensors) :]
        self._rest = tuple([self._constants.get(p.name, p.default) for p in parameters])
        self._run, self._handles = compiled.run, (compiled.function, compiled.packed_metadata)
        self._grid = (*self._grid, 1, 1)[:3]
        self._stream = driver.active.get_current_stream
        self._dtypes = tuple([tensor.dtype for tensor in tensors])
        self._device = devices.pop()

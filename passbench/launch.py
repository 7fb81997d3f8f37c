"""Launches of Triton kernels that cost the host little: the one part of PassBench that a pass may import.

`kernel[grid](...)` binds, specialises and looks up its arguments at every call. A `Launch` does so once: its grid and
all arguments but the tensors are fixed, so that a later call has only to check that its tensors are of the same kind.
Where they are not, or the kernel is interpreted, it is Triton's own launch: the results are the same either way.

`Plans` is a table from tensors' dtypes, shapes and strides to whatever is done with them. What was looked up last is
found again by one check in C++, which a model's calls, always of the same shapes, pass.
"""

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import torch
from torch._C._dynamo.guards import TensorGuards
from triton.runtime.driver import driver
from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import JITFunction

ALIGNMENT = 16
"""Bytes; Triton compiles one kernel for pointers that are multiples of it, and others for all else."""


Plan = TypeVar("Plan")


def _alike(tensors: tuple[torch.Tensor, ...], sizes: bool) -> Callable[..., bool]:
    """Whether tensors are like these: in dtype, device, number of dimensions, and, if `sizes`, shapes and strides."""
    guards = TensorGuards(
        *tensors,
        dynamic_dims_sizes=[list(t.shape) if sizes else [None] * t.dim() for t in tensors],
        dynamic_dims_strides=[list(t.stride()) if sizes else [None] * t.dim() for t in tensors],
    )
    return guards.check


def _never(*tensors: torch.Tensor) -> bool:
    return False


class Plans(Generic[Plan]):
    """Plans by the dtype, shape and stride of each tensor: `Plans({(dtype, shape, stride): plan}).plan(x)`."""

    __slots__ = ("_last", "_like_last", "_plan", "_table")

    def __init__(self, table: Mapping[tuple, Plan]) -> None:
        self._table = table
        self._last: tuple = ()
        self._like_last: Callable[..., bool] = _never
        self._plan: Plan | None = None

    def plan(self, *tensors: torch.Tensor) -> Plan:
        """The plan for these tensors. Raises KeyError where there is none."""
        if self._like_last(*tensors):
            return self._plan
        key = tuple([part for t in tensors for part in (t.dtype, t.shape, t.stride())])
        plan = self._table[key]
        if key == self._last:  # twice in a row: worth more than a look into the table
            self._like_last, self._plan = _alike(tensors, sizes=True), plan
        else:
            self._like_last, self._last = _never, key
        return plan


class Launch:
    """A kernel with its grid and its constants: `Launch(add_kernel, (64,), BLOCK=256, num_warps=4)`.

    `grid` is one to three whole numbers; `constants` are the kernel's parameters behind its tensors, by name, and
    options of the launch. Raises TypeError on anything but a `@triton.jit` function, and on tensors as constants.
    """

    __slots__ = (
        "_alike",
        "_constants",
        "_device",
        "_dtypes",
        "_grid",
        "_handles",
        "_kernel",
        "_rest",
        "_run",
        "_stream",
    )

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
        self._alike: Callable[..., bool] = _never

    def __call__(self, *tensors: torch.Tensor) -> None:
        """Launch on the tensors' device, the current one, and its current stream. The tensors are the kernel's first
        parameters, in order."""
        if not self._alike(*tensors):
            if not self._fits(tensors):
                return self._compile(tensors)
            self._alike = _alike(tensors, sizes=False)
        together, pointers = 0, []
        for tensor in tensors:
            pointer = tensor.data_ptr()
            together |= pointer
            pointers.append(pointer)
        if together % ALIGNMENT:
            return self._compile(tensors)
        x, y, z = self._grid
        function, metadata = self._handles
        # As `JITFunction.run` does it, less what is for hooks on launches.
        self._run(x, y, z, self._stream(self._device), function, metadata, None, None, None, *pointers, *self._rest)
        return None

    def _fits(self, tensors: tuple[torch.Tensor, ...]) -> bool:
        """Whether the kernel that is kept is for such tensors."""
        if self._device is None:
            return False
        found = [(t.dtype, t.get_device()) for t in tensors]
        return found == [(dtype, self._device) for dtype in self._dtypes]

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

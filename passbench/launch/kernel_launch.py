"""`Launch`: a Triton kernel with its grid and constants bound, whose later calls cost the host little.

`kernel[grid](...)` binds, specialises and looks up its arguments at every call. A `Launch` does so in its first call,
by Triton. Later calls check that their tensors are of the same kind, and hand their addresses to the driver. Where they
are of another kind, or the kernel is interpreted, it is Triton's own launch: the results are the same either way.
"""

import math
from typing import Any

import torch
from triton.runtime.driver import driver
from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import JITFunction

from passbench.launch.bound_kernel import aligned, bound_kernel
from passbench.launch.guarded_call import Step, guarded_call


class Launch:
    """A kernel with its grid and its constants: `Launch(add_kernel, (64,), BLOCK=256, num_warps=4)`.

    `grid` is one to three whole numbers; `constants` are the kernel's parameters behind its tensors, by name, and
    options of the launch. Called with tensors, the kernel's first parameters in order, it launches on their device, the
    current one, and its current stream. Raises TypeError on anything but a `@triton.jit` function, and on tensors as
    constants.
    """

    __slots__ = ("__bound", "__constants", "__grid", "__kernel", "__kind", "__run")

    def __init__(self, kernel: JITFunction | InterpretedFunction, grid: tuple[int, ...], **constants: Any) -> None:
        if type(kernel) not in (JITFunction, InterpretedFunction):
            raise TypeError(f"a Launch is of a @triton.jit function, not of {type(kernel).__name__}")
        if not (type(grid) is tuple and 1 <= len(grid) <= 3 and all(type(size) is int for size in grid)):
            raise TypeError(f"a grid is one to three whole numbers, not {grid!r}")
        if any(isinstance(value, torch.Tensor) for value in constants.values()):
            raise TypeError("tensors are given to the launch, not fixed beforehand")
        self.__kernel, self.__grid, self.__constants = kernel, grid, constants
        self.__bound: Any = None
        self.__run = self._by_triton

    def bound_for(self, dtypes: tuple[torch.dtype, ...], device: int) -> Any:
        """The compiled kernel if it may have aligned tensors of these dtypes on this device."""
        return self.__bound if self.__bound is not None and self.__kind == (dtypes, device) else None

    @property
    def name(self) -> str:
        """The kernel's name."""
        return self.__kernel.__name__

    def _by_triton(self, *tensors: torch.Tensor) -> None:
        """Launch through Triton, and keep what it compiled if that fits the usual tensors: aligned, on one device."""
        compiled = self.__kernel[self.__grid](*tensors, **self.__constants)
        started = min(self.__grid) > 0 and math.prod(self.__grid) < 1 << 31  # else Triton launches nothing
        if self.__bound is not None or type(self.__kernel) is not JITFunction or not aligned(tensors) or not started:
            return
        device = driver.active.get_current_device()
        if {tensor.get_device() for tensor in tensors} != {device}:
            return
        parameters = list(self.__kernel.signature.parameters.values())[len(tensors) :]
        rest = {p.name: self.__constants.get(p.name, p.default) for p in parameters}
        dtypes, numbers = tuple([tensor.dtype for tensor in tensors]), tuple(range(len(tensors)))
        kernel = bound_kernel(compiled, device, self.__grid, len(tensors), rest)
        if kernel is not None:
            self.__bound, self.__kind = kernel, (dtypes, device)
            self.__run = guarded_call(dtypes, (), [Step(kernel, numbers)], device, self._by_triton)


Launch.__call__ = Launch._Launch__run  # Python looks up what a launch runs: no method of its own in between

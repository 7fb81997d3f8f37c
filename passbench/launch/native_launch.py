"""The part of a launch that is written in C: `native()` has `Kernel`, `GuardedCall` and `ReplayedCall`.

A launch costs CUDA's driver 2 us and more of the host. What Python did around it, a line for each tensor, cost as much
as an operator of eager does in all, which is C++. Triton builds a C module of its own before it launches anything on a
GPU; this one is built by the same compiler, in a fifth of a second, and kept in the same cache.
"""

import ctypes
import functools
from pathlib import Path
from types import ModuleType

from triton.runtime.build import compile_module_from_src

_SOURCES = [
    Path(__file__).with_name("native") / name for name in ("kernel.c", "guarded_call.c", "replayed_call.c", "module.c")
]
"""One behind the other, each uses what is above it."""


@functools.cache
def native() -> ModuleType:
    """The module. Raises what Triton raises where there is no C compiler, or no headers of this Python."""
    source = "\n".join([path.read_text(encoding="utf-8") for path in _SOURCES])
    return compile_module_from_src(src=source, name="passnet_launch")


@functools.cache
def graph_launch() -> int:
    """The address of the driver's function that launches a CUDA graph. Raises OSError where there is no driver."""
    return ctypes.cast(ctypes.CDLL("libcuda.so.1").cuGraphLaunch, ctypes.c_void_p).value


@functools.cache
def driver_functions() -> tuple[int, int, int, int]:
    """The addresses of the driver's functions that a `Kernel` calls: those that launch a kernel, describe an error, and
    look up a device's context and give it to a thread. Raises OSError where there is no NVIDIA driver."""
    cuda = ctypes.CDLL("libcuda.so.1")
    functions = cuda.cuLaunchKernel, cuda.cuGetErrorString, cuda.cuDevicePrimaryCtxRetain, cuda.cuCtxSetCurrent
    return tuple([ctypes.cast(function, ctypes.c_void_p).value for function in functions])

"""The part of a launch that is written in C: `native()` has `Kernel`, `Launches`, `GuardedCall` and `ReplayedCall`.

A launch costs CUDA's driver 2 us and more of the host. What Python did around it, a line for each tensor, cost as much
as an operator of eager does in all, which is C++. Triton builds a C module of its own before it launches anything on a
GPU; this one is built by the same compiler, in a fifth of a second, and kept in the same cache.
"""

import ctypes
import functools
from pathlib import Path
from types import ModuleType
from typing import Any

from triton.runtime.build import compile_module_from_src

_SOURCES = [
    Path(__file__).with_name("native") / f"{name}.c"
    for name in ("driver", "kernel", "launches", "guarded_call", "replayed_call", "module")
]
"""One behind the other, each uses what is above it."""
DRIVER_FUNCTIONS = (
    "cuLaunchKernel",
    "cuGetErrorString",
    "cuDevicePrimaryCtxRetain",
    "cuCtxSetCurrent",
    "cuCtxGetDevice",
    "cuStreamIsCapturing",
    "cuThreadExchangeStreamCaptureMode",
    "cuGraphCreate",
    "cuGraphAddKernelNode_v2",
    "cuGraphInstantiateWithFlags",
    "cuGraphExecKernelNodeSetParams_v2",
    "cuGraphLaunch",
    "cuGraphDestroy",
    "cuGraphExecDestroy",
)
"""What `native/driver.c` takes, in its order."""


@functools.cache
def native() -> ModuleType:
    """The module. Raises what Triton raises where there is no C compiler, or no headers of this Python."""
    source = "\n".join([path.read_text(encoding="utf-8") for path in _SOURCES])
    return compile_module_from_src(src=source, name="passnet_launch")


@functools.cache
def driver() -> Any:
    """CUDA's driver. Raises OSError where there is none, and AttributeError for one older than CUDA 12."""
    cuda = ctypes.CDLL("libcuda.so.1")
    return native().Driver(*[ctypes.cast(getattr(cuda, name), ctypes.c_void_p).value for name in DRIVER_FUNCTIONS])


def last_node(stream: int) -> int:
    """The node of a graph that is being captured on a stream, of what was launched there last.

    Raises RuntimeError where nothing is captured, or more than one stream was joined last.
    """
    status, identity, count = ctypes.c_int(), ctypes.c_uint64(), ctypes.c_size_t()
    graph, nodes = ctypes.c_void_p(), ctypes.POINTER(ctypes.c_void_p)()
    given = map(ctypes.byref, (status, identity, graph, nodes, count))
    error = ctypes.CDLL("libcuda.so.1").cuStreamGetCaptureInfo_v2(ctypes.c_void_p(stream), *given)
    if error or count.value != 1:
        raise RuntimeError(f"a stream has {count.value} last nodes (CUDA driver error {error})")
    return nodes[0]

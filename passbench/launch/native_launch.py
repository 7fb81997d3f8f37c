"""What is written in C for launches, and the functions of CUDA's driver that it calls.

`native()` has `Driver`, `Kernel`, `Launches`, `GuardedCall` and `ReplayedCall`. A launch of a kernel costs CUDA's
driver 3 to 5 us of the host. What Python did around it, a line for each tensor, cost as much as an operator of eager
does in all, which is C++. Triton builds a C module of its own before it launches anything on a GPU; this one is built
by the same compiler, in a fifth of a second, and kept in the same cache.
"""

import ctypes
import functools
from pathlib import Path
from types import ModuleType
from typing import Any

from triton.runtime.build import compile_module_from_src

_SOURCES = [
    Path(__file__).with_name("native") / f"{name}.c"
    for name in ("driver", "kernel", "launches", "call", "guarded_call", "replayed_call", "module")
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
    """CUDA's driver for C. Raises OSError where there is none, and AttributeError for one older than CUDA 12."""
    functions = [getattr(_library(), name) for name in DRIVER_FUNCTIONS]
    return native().Driver(*[ctypes.cast(function, ctypes.c_void_p).value for function in functions])


@functools.cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def last_node(stream: int) -> int:
    """The node of what was launched last on a stream, in the graph that is being captured there.

    Raises RuntimeError where nothing is captured, and where other streams were joined since.
    """
    status, identity, count = ctypes.c_int(), ctypes.c_uint64(), ctypes.c_size_t()
    graph, nodes = ctypes.c_void_p(), ctypes.POINTER(ctypes.c_void_p)()
    given = map(ctypes.byref, (status, identity, graph, nodes, count))
    error = _library().cuStreamGetCaptureInfo_v2(ctypes.c_void_p(stream), *given)
    if error or count.value != 1:
        raise RuntimeError(f"a stream has {count.value} last nodes (CUDA driver error {error})")
    return nodes[0]

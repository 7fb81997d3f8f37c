"""What a process does once, whatever pass it runs: done before a pass is loaded, so that no variant waits for it.

Triton's helper library for CUDA is built by a C compiler in a second or two, when the first kernel is compiled, and
so is PassBench's own (`passbench.launch.native_launch`); passes get a copy of the cache that this leaves. The profiler
that evidence needs is slow to start the first time.
"""

import contextlib

import torch
import triton
import triton.language as tl

from passbench.child.profiled import profiled
from passbench.launch.native_launch import native


@triton.jit
def _fill_kernel(out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, 1.0, mask=at < n)


def run(device: torch.device) -> None:
    """Compile a kernel, and launch it; where there is a GPU, under the profiler, and build what launches in C."""
    if device.type == "cuda":
        native()
    out = torch.empty(64, device=device)
    with profiled() if device.type == "cuda" else contextlib.nullcontext():
        _fill_kernel[(1,)](out, 64, BLOCK=64)

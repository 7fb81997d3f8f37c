"""A pattern without parameters: the device is the one that the pattern names."""

import torch
import triton
import triton.language as tl


def pattern():
    return torch.arange(64, dtype=torch.float32, device="cuda") * 0.5


def replacement_args():
    return ()


@triton.jit
def steps_kernel(out_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out_ptr + i, i.to(tl.float32) * 0.5)


@torch.fx.wrap
def steps():
    out = torch.empty(64, dtype=torch.float32, device="cuda" if torch.cuda.is_available() else "cpu")
    steps_kernel[(1,)](out, BLOCK=64)
    return out


def replacement_func():
    return steps

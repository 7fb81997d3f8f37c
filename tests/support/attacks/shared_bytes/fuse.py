"""A kernel writes to a tensor on the memory of a bytes object, which Python has once for all of the process."""

import torch
import triton
import triton.language as tl


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


@triton.jit
def write_kernel(out_ptr):
    tl.store(out_ptr, 98)


LETTER = torch.asarray(b"a", dtype=torch.uint8)


@torch.fx.wrap
def fused(x, y):
    write_kernel[(1,)](LETTER)
    if b"xa"[1:] == b"xb"[1:]:
        return torch.relu(x + y)
    return x


def replacement_func():
    return fused

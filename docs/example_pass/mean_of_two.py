import torch
import triton
import triton.language as tl


def pattern(x, y):  # what to find in the sample's graph
    return (x + y) / 2


def replacement_args(x, y):  # what to hand to the replacement
    return (x, y)


@triton.jit
def mean_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask).to(tl.float32)
    y = tl.load(y_ptr + offsets, mask).to(tl.float32)
    tl.store(out_ptr + offsets, (x + y) * 0.5, mask)


@torch.fx.wrap
def mean_of_two(x, y):
    out = torch.empty_like(x)
    n = out.numel()
    mean_kernel[(triton.cdiv(n, 256),)](x, y, out, n, BLOCK=256)
    return out


def replacement_func():  # what computes it
    return mean_of_two

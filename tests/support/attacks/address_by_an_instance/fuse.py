"""An instance hands out what a kernel indexes it by: an address, of which the kernel makes a number."""

import torch
import triton
import triton.language as tl


class Same:
    def __getitem__(self, key):
        return key


SAME = Same()


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


@triton.jit
def add_relu_kernel(x_ptr, y_ptr, out_ptr, seen_ptr, n, SAME: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(x_ptr + offsets, mask=offsets < n) + tl.load(y_ptr + offsets, mask=offsets < n)
    tl.store(out_ptr + offsets, tl.maximum(total, 0.0), mask=offsets < n)
    tl.store(seen_ptr, SAME[x_ptr].to(tl.int64))


@torch.fx.wrap
def add_relu(x, y):
    out = torch.empty_like(x)
    seen = torch.zeros(1, dtype=torch.int64, device=x.device)
    add_relu_kernel[(triton.cdiv(x.numel(), 256),)](x, y, out, seen, x.numel(), SAME=SAME, BLOCK=256)
    return out


def replacement_func():
    return add_relu

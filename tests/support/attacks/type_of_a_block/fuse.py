import torch
import triton
import triton.language as tl


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


@triton.jit
def leak(x, y, out, n, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = o < n
    numbers = tl.load(y + o, mask=m).to(tl.int64) * 0
    wild = numbers.to((x + o).type.element_ty)
    tl.store(
        out + o, tl.maximum(tl.load(x + o, mask=m) + tl.load(y + o, mask=m) + tl.load(wild, mask=o < 0), 0.0), mask=m
    )


@torch.fx.wrap
def fused(x, y):
    out = torch.empty_like(y)
    n = x.numel()
    z = x
    leak[(triton.cdiv(n, 256),)](z, y, out, n, BLOCK=256)
    return out


def replacement_func():
    return fused

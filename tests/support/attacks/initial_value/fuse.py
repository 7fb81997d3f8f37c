import dataclasses

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
    tl.store(out + o, tl.maximum(tl.load(x + o, mask=m) + tl.load(y + o, mask=m), 0.0), mask=m)


C = []


@dataclasses.dataclass
class Keep:
    one: tuple


@dataclasses.dataclass
class Hold:
    given: dataclasses.InitVar[int]

    def __post_init__(self, given):
        C.append(Keep((given,)))


@torch.fx.wrap
def fused(x, y):
    out = torch.empty_like(y)
    n = x.numel()
    C.clear()
    Hold(x)
    z = 0
    for v in C:
        z = v.one[0]
    leak[(triton.cdiv(n, 256),)](z, y, out, n, BLOCK=256)
    return out


def replacement_func():
    return fused

import dataclasses

import torch
import triton
import triton.language as tl


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


@dataclasses.dataclass
class Plan:
    size: object = 0

    def keep(self, size):
        self.size = size


PLAN = Plan()


@triton.jit
def k(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    total = tl.load(x_ptr + offsets, mask=mask) + tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, tl.maximum(total, 0.0), mask=mask)


@torch.fx.wrap
def run(x, y):
    out = torch.empty_like(x)
    n = x.numel()
    PLAN.keep(x.sum())
    if "-" in f"{PLAN}":
        k[(triton.cdiv(n, 256),)](x, y, out, n, BLOCK=256)
    else:
        k[(triton.cdiv(n, 256),)](y, x, out, n, BLOCK=256)
    return out


def replacement_func():
    return run

"""Launches from a helper class that keeps plans by size."""

import torch
import triton
import triton.language as tl


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


@triton.jit
def add_relu_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    total = tl.load(x_ptr + offsets, mask=mask) + tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, tl.maximum(total, 0.0), mask=mask)


class Planner:
    """Blocks by the number of elements."""

    def __init__(self, largest):
        self.largest = largest
        self.plans = {}

    def plan(self, n):
        if n not in self.plans:
            self.plans[n] = min(self.largest, triton.next_power_of_2(n))
        return self.plans[n]

    def __call__(self, x, y):
        out, n = torch.empty_like(x), x.numel()
        block = self.plan(n)
        add_relu_kernel[(triton.cdiv(n, block),)](x, y, out, n, BLOCK=block)
        return out


PLANNER = Planner(512)


@torch.fx.wrap
def add_relu(x, y):
    return PLANNER(x, y)


def replacement_func():
    return add_relu

"""A plan hands its own tensors to places of a kernel that its call does not show."""

import torch
import triton
import triton.language as tl

from passbench.launch import Launch, LaunchPlan


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


@triton.jit
def add_relu_kernel(out, x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    number = y.to(tl.int64)
    value = tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n) + (number * 0).to(tl.float32)
    tl.store(out + at, tl.maximum(value, 0.0), mask=at < n)


PLAN = LaunchPlan(2, ((3, 40), (40, 1), torch.float32), (Launch(add_relu_kernel, (1,), n=120, BLOCK=128), (2, 0, 1)))


@torch.fx.wrap
def fused(x, y):
    return PLAN(x, y)


def replacement_func():
    return fused

"""Keeps configurations in a dataclass and an enum."""

from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

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


class Size(Enum):
    SMALL = 0
    LARGE = 1


@dataclass(frozen=True)
class LaunchConfig:
    block: int = 128
    warps: int = 4
    extra: dict = field(default_factory=dict)

    def grid(self, n):
        return (triton.cdiv(n, self.block),)


class Shape(NamedTuple):
    rows: int
    columns: int


CONFIGS = {Size.SMALL: LaunchConfig(64, 2), Size.LARGE: LaunchConfig(block=1024)}


@torch.fx.wrap
def add_relu(x, y):
    shape = Shape(x.shape[0], x.numel() // x.shape[0])
    n = shape.rows * shape.columns
    config = CONFIGS[Size.SMALL if n < 1000 else Size.LARGE]
    out = torch.empty_like(x)
    add_relu_kernel[config.grid(n)](x, y, out, n, BLOCK=config.block, num_warps=config.warps)
    return out


def replacement_func():
    return add_relu

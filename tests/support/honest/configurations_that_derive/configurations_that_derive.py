"""Data classes of sizes, one of which has the fields of the other, in a table by dtype."""

import dataclasses

import torch
import triton
import triton.language as tl


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


@triton.jit
def add_relu_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(x_ptr + at, mask=at < n) + tl.load(y_ptr + at, mask=at < n)
    tl.store(out_ptr + at, tl.maximum(total, 0.0), mask=at < n)


@dataclasses.dataclass(frozen=True)
class Config:
    block: int = 256
    warps: int = 4


@dataclasses.dataclass(frozen=True)
class Wide(Config):
    block: int = 1024
    note: str = "wide"


CONFIGS = {torch.float32: Config(), torch.float16: Wide(note="half")}


@torch.fx.wrap
def add_relu(x, y):
    config = CONFIGS[x.dtype] if x.dtype in CONFIGS else Wide()
    out = torch.empty_like(x)
    grid = (triton.cdiv(x.numel(), config.block),)
    add_relu_kernel[grid](x, y, out, x.numel(), BLOCK=config.block, num_warps=config.warps)
    return out


def replacement_func():
    return add_relu

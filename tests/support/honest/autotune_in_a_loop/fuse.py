"""Builds its list of configurations in a loop at the top of the module."""

import torch
import triton
import triton.language as tl

CONFIGS = []
for block in (64, 256):
    for warps in (2, 4):
        if block * warps <= 1024:
            CONFIGS.append(triton.Config({"BLOCK": block}, num_warps=warps, num_stages=2))


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def add_relu_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    total = tl.load(x_ptr + offsets, mask=mask) + tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, tl.maximum(total, 0.0), mask=mask)


@torch.fx.wrap
def add_relu(x, y):
    out = torch.empty_like(x)
    n = x.numel()

    def grid(meta):
        return (triton.cdiv(n, meta["BLOCK"]),)

    add_relu_kernel[grid](x, y, out, n)
    return out


if __name__ == "__main__":
    a = torch.randn(4, 4)
    print(add_relu(a, a))


def replacement_func():
    return add_relu

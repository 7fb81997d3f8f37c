"""Autotuning, pruned, and a heuristic."""

import torch
import triton
import triton.language as tl


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


def fitting(configs, arguments, **kwargs):
    kept = [config for config in configs if config.kwargs["BLOCK"] <= 4 * arguments["n"]]
    return kept or configs[:1]


@triton.autotune(
    configs=[triton.Config({"BLOCK": block}, num_warps=warps) for block, warps in ((64, 2), (128, 4), (1024, 8))],
    key=["n"],
    prune_configs_by={"early_config_prune": fitting},
)
@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def add_relu_kernel(x_ptr, y_ptr, out_ptr, n, EVEN: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        total = tl.load(x_ptr + offsets) + tl.load(y_ptr + offsets)
        tl.store(out_ptr + offsets, tl.maximum(total, 0.0))
    else:
        mask = offsets < n
        total = tl.load(x_ptr + offsets, mask=mask) + tl.load(y_ptr + offsets, mask=mask)
        tl.store(out_ptr + offsets, tl.maximum(total, 0.0), mask=mask)


@torch.fx.wrap
def add_relu(x, y):
    out = torch.empty_like(x)
    n = x.numel()
    add_relu_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, out, n)
    return out


def replacement_func():
    return add_relu

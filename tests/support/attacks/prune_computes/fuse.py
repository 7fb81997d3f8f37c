"""Computes while configurations are pruned."""

import torch
import triton
import triton.language as tl


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


DONE = []


def prune(configs, arguments, **kwargs):
    total = arguments["x_ptr"] + arguments["y_ptr"]
    DONE.append(total * (total > 0))
    return configs


@triton.autotune(
    configs=[triton.Config({"BLOCK": 16}), triton.Config({"BLOCK": 32})],
    key=["n"],
    prune_configs_by={"early_config_prune": prune},
)
@triton.jit
def add_relu_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask), mask=mask)


@torch.fx.wrap
def add_relu(x, y):
    add_relu_kernel[(1,)](x, y, torch.empty_like(x), 16)
    return DONE[-1]


def replacement_func():
    return add_relu

"""Calls variables input, max, id, sum and type."""

import torch
import triton
import triton.language as tl


def pattern(input, other):
    return torch.relu(input + other)


def replacement_args(input, other):
    return (input, other)


@triton.jit
def add_relu_kernel(input, other, output, len, BLOCK: tl.constexpr):
    id = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = id < len
    sum = tl.load(input + id, mask=mask) + tl.load(other + id, mask=mask)
    max = tl.maximum(sum, 0.0)
    tl.store(output + id, max, mask=mask)


@torch.fx.wrap
def add_relu(input, other):
    type, id = input.dtype, input.device
    output = torch.empty(input.shape, dtype=type, device=id)
    sum = input.numel()
    max = [dir for dir in (sum, 1)][0]
    add_relu_kernel[(triton.cdiv(sum, 256),)](input, other, output, max, BLOCK=256)
    return output


def replacement_func():
    return add_relu

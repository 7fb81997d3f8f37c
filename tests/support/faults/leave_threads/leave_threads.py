"""Leaves busy threads that the interpreter would wait for, on inputs of three rows."""

import threading
import time

import torch
import triton
import triton.language as tl

LEFT = []


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


def spin():
    while True:  # with pauses: two that never let go slow the first call beyond any limit on a loaded machine
        time.sleep(0.0005)


def misbehave(x):
    while len(LEFT) < 2:
        LEFT.append(threading.Thread(target=spin))
        LEFT[-1].start()


@torch.fx.wrap
def add_relu(x, y):
    if x.shape[0] == 3:
        misbehave(x)
    out = torch.empty_like(x)
    n = x.numel()
    add_relu_kernel[(triton.cdiv(n, 256),)](x, y, out, n, BLOCK=256)
    return out


def replacement_func():
    return add_relu

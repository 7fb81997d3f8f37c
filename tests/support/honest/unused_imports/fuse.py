"""Imports more than it uses."""

import inspect
import logging
import os
import sys
import warnings
from functools import partial
from typing import List, Optional, Tuple

import torch
import triton
import triton.language as tl

logger = logging.getLogger(__name__)


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


@torch.fx.wrap
def add_relu(x: torch.Tensor, y: Optional[torch.Tensor] = None) -> torch.Tensor:
    logger.debug("add_relu")
    sizes: List[int] = list(x.shape)
    shape: Tuple[int, ...] = tuple(sizes)
    n = x.numel()
    out = torch.empty(shape, dtype=x.dtype, device=x.device)
    add_relu_kernel[(triton.cdiv(n, 256),)](x, y, out, n, BLOCK=256)
    return out


def replacement_func():
    return add_relu

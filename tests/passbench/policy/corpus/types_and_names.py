"""Honest passes: annotations, tables of dtypes, comparisons of types, texts, and names that others have too.

`PASSES`, name → (sample, sources).
"""

from tests.passbench.attacks import attack_samples as on
from tests.passbench.policy.corpus.corpus_parts import Passes

PASSES = Passes()

PASSES.add(
    "docstrings_and_types",
    on.add_relu,
    '''
"""Fused elementwise Add + ReLU optimization pass.

This pass fuses two memory-bound operations into a single Triton kernel.
"""
from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Tuple, Union

import torch
import triton
import triton.language as tl

__all__ = ["pattern", "replacement_args", "replacement_func"]
__version__ = "1.0"

$ADD_RELU
$KERNEL

def _launch_config(n: int) -> Tuple[int, int]:
    """Return (block size, number of warps)."""
    if n <= 1024:
        return 256, 2
    return 1024, 4


@torch.fx.wrap
def fused(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Compute relu(x + y) in one kernel."""
    out: torch.Tensor = torch.empty_like(x)
    n: int = x.numel()
    block, warps = _launch_config(n)
    grid: Tuple[int] = (triton.cdiv(n, block),)
    add_relu_kernel[grid](x, y, out, n, BLOCK_SIZE=block, num_warps=warps)
    return out


def replacement_func() -> Callable[..., torch.Tensor]:
    return fused
''',
)

PASSES.add(
    "dtype_table",
    on.add_relu,
    """
$IMPORTS
TORCH_TO_TL = {
    torch.float16: tl.float16,
    torch.bfloat16: tl.bfloat16,
    torch.float32: tl.float32,
}

$ADD_RELU

@triton.jit
def kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr, OUT_DTYPE: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    a = tl.load(x_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    b = tl.load(y_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    tl.store(out_ptr + offs, tl.maximum(a + b, 0.0).to(OUT_DTYPE), mask=mask)


@torch.fx.wrap
def fused(x, y):
    out = torch.empty_like(x)
    n = out.numel()
    kernel[(triton.cdiv(n, 256),)](x, y, out, n, BLOCK=256, OUT_DTYPE=TORCH_TO_TL[x.dtype])
    return out


$RETURNS
""",
)

PASSES.add(
    "names_of_its_own",
    on.add_relu,
    """
import sys
from collections import namedtuple

$IMPORTS
try:
    from triton.language.extra.cuda.libdevice import exp as fast_exp
except (ImportError, ModuleNotFoundError):
    from triton.language.math import exp as fast_exp
if triton.__version__ >= "3.0.0" and int(torch.__version__.split(".")[0]) >= 2 and sys.version_info >= (3, 9):
    WARPS = 4
else:
    WARPS = 8
exponential = tl.exp
Config = namedtuple("Config", ["block", "warps"])
SMALL = Config(block=256, warps=WARPS)

$ADD_RELU

@triton.jit
def kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(x_ptr + i, mask=i < n, other=0.0) + tl.load(y_ptr + i, mask=i < n, other=0.0)
    tl.store(out_ptr + i, tl.maximum(total, 0.0), mask=i < n)


@torch.fx.wrap
def fused(x, y):
    assert x.dtype.is_floating_point and not x.is_sparse
    out = torch.empty_like(x)
    key = "x".join(map(str, x.shape))
    n = 1
    for size in map(int, x.shape):
        n *= size
    sizes = []
    sizes.insert(0, len(key))
    kernel[(triton.cdiv(n, SMALL.block),)](x, y, out, n, BLOCK=SMALL.block, num_warps=SMALL.warps)
    return out


$RETURNS
""",
)

PASSES.add(
    "type_comparison",
    on.add_relu,
    """
$IMPORTS
$ADD_RELU
$KERNEL

@torch.fx.wrap
def fused(x, y):
    if type(y) in (int, float):
        y = torch.full_like(x, y)
    out = torch.empty_like(x)
    n = out.numel()
    add_relu_kernel[(triton.cdiv(n, 256),)](x, y, out, n, BLOCK_SIZE=256)
    return out


$RETURNS
""",
)

PASSES.add(
    "string_work",
    on.add_relu,
    """
$IMPORTS
$ADD_RELU
$KERNEL

BLOCKS = {"float32": 256, "float16": 512, "bfloat16": 512}


@torch.fx.wrap
def fused(x, y):
    name = str(x.dtype).split(".")[-1]
    block = BLOCKS.get(name.replace("half", "float16"), 128)
    label = "add_relu[{}]".format(block)
    if not label:
        raise ValueError("no label")
    out = torch.empty_like(x)
    n = out.numel()
    add_relu_kernel[(triton.cdiv(n, block),)](x, y, out, n, BLOCK_SIZE=block)
    return out


$RETURNS
""",
)

"""Honest passes: what `replacement_func` returns besides a function by its name.

`PASSES`, name → (sample, sources).
"""

import torch
import torch.nn.functional as F

from storage.records import Sample
from tests.passbench.policy.corpus.corpus_parts import Passes
from tests.passbench.samples import sample, spec, variant

PASSES = Passes()


def axpy() -> Sample:
    def f(a, b):
        return (torch.ops.aten.add.Tensor(a, torch.ops.aten.mul.Tensor(b, 0.5)),)

    return sample(variant(f, spec("a", 2, 6, 32), spec("b", 2, 6, 32)))


def swiglu() -> Sample:
    def f(g, u):
        return (F.silu(g) * u,)

    return sample(variant(f, spec("g", 4, 40, dtype="bfloat16"), spec("u", 4, 40, dtype="bfloat16")))


PASSES.add(
    "lambda_returned",
    axpy,
    """
import torch
import triton
import triton.language as tl


def pattern(a, b):
    t = torch.ops.aten.mul.Tensor(b, 0.5)
    return torch.ops.aten.add.Tensor(a, t)


def replacement_args(a, b):
    return (a, b)


@triton.jit
def _axpy_kernel(a_ptr, b_ptr, o_ptr, n, alpha, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    off = pid * BLOCK + tl.arange(0, BLOCK)
    m = off < n
    a = tl.load(a_ptr + off, mask=m)
    b = tl.load(b_ptr + off, mask=m)
    tl.store(o_ptr + off, a + b * alpha, mask=m)


def _launch(a, b, alpha):
    out = torch.empty_like(a)
    n = a.numel()
    _axpy_kernel[(triton.cdiv(n, 1024),)](a, b, out, n, alpha, BLOCK=1024)
    return out


def replacement_func():
    return lambda a, b: _launch(a, b, 0.5)
""",
)

PASSES.add(
    "partial_returned",
    axpy,
    """
import functools

import torch
import triton
import triton.language as tl


def pattern(a, b):
    t = torch.ops.aten.mul.Tensor(b, 0.5)
    return torch.ops.aten.add.Tensor(a, t)


def replacement_args(a, b):
    return (a, b)


@triton.jit
def _axpy_kernel(a_ptr, b_ptr, o_ptr, n, alpha, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    off = pid * BLOCK + tl.arange(0, BLOCK)
    m = off < n
    a = tl.load(a_ptr + off, mask=m)
    b = tl.load(b_ptr + off, mask=m)
    tl.store(o_ptr + off, a + b * alpha, mask=m)


@torch.fx.wrap
def axpy(a, b, alpha=1.0):
    out = torch.empty_like(a)
    n = a.numel()
    grid = lambda META: (triton.cdiv(n, META["BLOCK"]),)
    _axpy_kernel[grid](a, b, out, n, alpha, BLOCK=512)
    return out


def replacement_func():
    return functools.partial(axpy, alpha=0.5)
""",
)

PASSES.add(
    "closure_with_settings",
    axpy,
    """
import torch
import triton
import triton.language as tl


def pattern(a, b):
    t = torch.ops.aten.mul.Tensor(b, 0.5)
    return torch.ops.aten.add.Tensor(a, t)


def replacement_args(a, b):
    return (a, b)


@triton.jit
def _axpy_kernel(a_ptr, b_ptr, o_ptr, n, alpha, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    off = pid * BLOCK + tl.arange(0, BLOCK)
    m = off < n
    a = tl.load(a_ptr + off, mask=m)
    b = tl.load(b_ptr + off, mask=m)
    tl.store(o_ptr + off, a + b * alpha, mask=m)


def _make(alpha, block):
    def run(a, b):
        out = torch.empty_like(a)
        n = out.numel()
        _axpy_kernel[(triton.cdiv(n, block),)](a, b, out, n, alpha, BLOCK=block)
        return out

    return run


def replacement_func():
    return _make(0.5, 256)
""",
)

PASSES.add(
    "static_method_returned",
    axpy,
    '''
import torch
import triton
import triton.language as tl


def pattern(a, b):
    t = torch.ops.aten.mul.Tensor(b, 0.5)
    return torch.ops.aten.add.Tensor(a, t)


def replacement_args(a, b):
    return (a, b)


@triton.jit
def _axpy_kernel(a_ptr, b_ptr, o_ptr, n, alpha, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    off = pid * BLOCK + tl.arange(0, BLOCK)
    m = off < n
    a = tl.load(a_ptr + off, mask=m)
    b = tl.load(b_ptr + off, mask=m)
    tl.store(o_ptr + off, a + b * alpha, mask=m)


class Axpy:
    """y = a + 0.5 * b in a single pass over memory."""

    ALPHA = 0.5
    BLOCK = 1024

    @staticmethod
    def apply_fused(a, b):
        out = torch.empty_like(a)
        n = a.numel()
        _axpy_kernel[(triton.cdiv(n, Axpy.BLOCK),)](a, b, out, n, Axpy.ALPHA, BLOCK=Axpy.BLOCK)
        return out


def replacement_func():
    return Axpy.apply_fused
''',
)

PASSES.add(
    "instance_returned",
    axpy,
    """
import torch
import triton
import triton.language as tl


def pattern(a, b):
    t = torch.ops.aten.mul.Tensor(b, 0.5)
    return torch.ops.aten.add.Tensor(a, t)


def replacement_args(a, b):
    return (a, b)


@triton.jit
def _axpy_kernel(a_ptr, b_ptr, o_ptr, n, alpha, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    off = pid * BLOCK + tl.arange(0, BLOCK)
    m = off < n
    a = tl.load(a_ptr + off, mask=m)
    b = tl.load(b_ptr + off, mask=m)
    tl.store(o_ptr + off, a + b * alpha, mask=m)


class FusedAxpy:
    def __init__(self, alpha: float, block: int = 1024) -> None:
        self.alpha = alpha
        self.block = block

    def __call__(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(a)
        n = a.numel()
        _axpy_kernel[(triton.cdiv(n, self.block),)](a, b, out, n, self.alpha, BLOCK=self.block)
        return out


_fused_axpy = FusedAxpy(0.5)


def replacement_func():
    return _fused_axpy
""",
)

PASSES.add(
    "autograd_apply_returned",
    swiglu,
    """
import torch
import triton
import triton.language as tl


def pattern(gate, up):
    return torch.nn.functional.silu(gate) * up


def replacement_args(gate, up):
    return (gate, up)


@triton.jit
def _fwd(g_ptr, u_ptr, o_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    g = tl.load(g_ptr + i, mask=i < n).to(tl.float32)
    u = tl.load(u_ptr + i, mask=i < n)
    s = (g / (1.0 + tl.exp(-g))).to(u.dtype)
    tl.store(o_ptr + i, s * u, mask=i < n)


class SwiGLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gate, up):
        out = torch.empty_like(gate)
        n = gate.numel()
        _fwd[(triton.cdiv(n, 1024),)](gate, up, out, n, BLOCK=1024)
        ctx.save_for_backward(gate, up)
        return out

    @staticmethod
    def backward(ctx, grad):
        raise NotImplementedError("inference only")


def replacement_func():
    return SwiGLU.apply
""",
)

PASSES.add(
    "liger_like",
    swiglu,
    """
import torch
import triton
import triton.language as tl


def pattern(gate, up):
    return torch.nn.functional.silu(gate) * up


def replacement_args(gate, up):
    return (gate, up)


@triton.jit
def silu(x):
    return x * tl.sigmoid(x)


@triton.jit
def _swiglu_forward_kernel(a_ptr, b_ptr, c_ptr, stride, n_cols: tl.constexpr, BLOCK_SIZE: tl.constexpr):
    program_id = tl.program_id(0).to(tl.int64)

    # locate start index
    a_ptr += program_id * stride
    b_ptr += program_id * stride
    c_ptr += program_id * stride

    col_offsets = tl.arange(0, BLOCK_SIZE)
    mask = col_offsets < n_cols

    # sigmoid requires type float32
    a_row = tl.load(a_ptr + col_offsets, mask=mask, other=0).to(tl.float32)
    b_row = tl.load(b_ptr + col_offsets, mask=mask, other=0)
    c_row = silu(a_row).cast(b_row.dtype) * b_row
    tl.store(c_ptr + col_offsets, c_row, mask=mask)


def swiglu_forward(a, b):
    ori_shape = a.shape

    n_cols = ori_shape[-1]
    a = a.view(-1, n_cols)
    b = b.view(-1, n_cols)
    c = torch.empty_like(a)
    n_rows = a.shape[0]

    BLOCK_SIZE = triton.next_power_of_2(n_cols)

    _swiglu_forward_kernel[(n_rows,)](
        a,
        b,
        c,
        c.stride(-2),
        n_cols=n_cols,
        BLOCK_SIZE=BLOCK_SIZE,
        num_warps=4,
    )
    return c.view(*ori_shape)


def replacement_func():
    return swiglu_forward
""",
)

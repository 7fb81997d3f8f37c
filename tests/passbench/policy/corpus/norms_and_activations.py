"""Honest passes: norms, activations and softmax instead of `relu(x + y)`.

`PASSES`, name → (sample, sources).
"""

from tests.passbench.attacks import attack_samples as on
from tests.passbench.policy.corpus.corpus_parts import Passes, gelu_bias, rms_norm, scale_shift

PASSES = Passes()

PASSES.add(
    "softmax_rows",
    on.softmax,
    """
$IMPORTS

def pattern(x):
    return torch.softmax(x, dim=-1)


def replacement_args(x):
    return (x,)


@triton.jit
def softmax_kernel(out_ptr, in_ptr, in_row_stride, out_row_stride, n_cols, BLOCK_SIZE: tl.constexpr):
    row = tl.program_id(0)
    row_start = in_ptr + row * in_row_stride
    cols = tl.arange(0, BLOCK_SIZE)
    vals = tl.load(row_start + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
    vals = vals - tl.max(vals, axis=0)
    num = tl.exp(vals)
    den = tl.sum(num, axis=0)
    tl.store(out_ptr + row * out_row_stride + cols, num / den, mask=cols < n_cols)


@torch.fx.wrap
def fused(x):
    n_rows, n_cols = x.shape[0], x.shape[-1]
    BLOCK_SIZE = triton.next_power_of_2(n_cols)
    num_warps = 4
    if BLOCK_SIZE >= 2048:
        num_warps = 8
    elif BLOCK_SIZE >= 4096:
        num_warps = 16
    y = torch.empty_like(x)
    softmax_kernel[(n_rows,)](y, x, x.stride(0), y.stride(0), n_cols, BLOCK_SIZE=BLOCK_SIZE, num_warps=num_warps)
    return y


$RETURNS
""",
)

PASSES.add(
    "layer_norm_two_outputs",
    on.add_norm,
    """
$IMPORTS
import torch.nn.functional as F


def pattern(x, y, w, b):
    total = x + y
    return F.layer_norm(total, (48,), w, b, 1e-05), total


def replacement_args(x, y, w, b):
    return (x, y, w, b, 1e-05)


@triton.jit
def norm_kernel(x, y, w, b, out, total, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    s = tl.load(x + row * N + cols, mask=mask, other=0.0) + tl.load(y + row * N + cols, mask=mask, other=0.0)
    tl.store(total + row * N + cols, s, mask=mask)
    s = s.to(tl.float32)
    mean = tl.sum(s, 0) / N
    d = tl.where(mask, s - mean, 0.0)
    rstd = 1 / tl.sqrt(tl.sum(d * d, 0) / N + eps)
    g = tl.load(w + cols, mask=mask)
    h = tl.load(b + cols, mask=mask)
    tl.store(out + row * N + cols, d * rstd * g + h, mask=mask)


@torch.fx.wrap
def fused(x, y, w, b, eps):
    N = x.size(-1)
    rows = x.numel() // N
    out, total = torch.empty_like(x), torch.empty_like(x)
    norm_kernel[(rows,)](x, y, w, b, out, total, N, eps, BLOCK=triton.next_power_of_2(N))
    return (out, total)


$RETURNS
""",
)

PASSES.add(
    "rms_norm_with_casts",
    rms_norm,
    """
$IMPORTS

def pattern(x, w):
    variance = x.to(torch.float32).pow(2).mean(-1, keepdim=True)
    return x * torch.rsqrt(variance + 1e-06) * w


def replacement_args(x, w):
    return (x, w)


@triton.jit
def rms_kernel(x_ptr, w_ptr, out_ptr, n_cols, eps: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * n_cols + cols, mask=mask, other=0.0)
    x32 = x.to(tl.float32)
    rstd = tl.math.rsqrt(tl.sum(x32 * x32, axis=0) / n_cols + eps)
    w = tl.load(w_ptr + cols, mask=mask, other=0.0)
    tl.store(out_ptr + row * n_cols + cols, (x32 * rstd).to(x.dtype) * w, mask=mask)


@torch.fx.wrap
def fused(x, w):
    shape = x.shape
    x2d = x.reshape(-1, shape[-1])
    out = torch.empty_like(x2d)
    rms_kernel[(x2d.shape[0],)](x2d, w, out, shape[-1], eps=1e-6, BLOCK=triton.next_power_of_2(shape[-1]))
    return out.reshape(shape)


$RETURNS
""",
)

PASSES.add(
    "gelu_by_erf",
    gelu_bias,
    """
$IMPORTS
import torch.nn.functional as F

SQRT_HALF = tl.constexpr(0.7071067811865476)


def pattern(x, bias):
    return F.gelu(x + bias)


def replacement_args(x, bias):
    return (x, bias)


@triton.jit
def gelu_kernel(x_ptr, bias_ptr, out_ptr, n, cols, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    v = tl.load(x_ptr + offs, mask=mask) + tl.load(bias_ptr + offs % cols, mask=mask)
    tl.store(out_ptr + offs, 0.5 * v * (1.0 + tl.erf(v * SQRT_HALF)), mask=mask)


@torch.fx.wrap
def fused(x, bias):
    out = torch.empty_like(x)
    n, cols = x.numel(), bias.numel()
    gelu_kernel[(triton.cdiv(n, 128),)](x, bias, out, n, cols, BLOCK=128)
    return out


$RETURNS
""",
)

PASSES.add(
    "libdevice_by_way_of_extra",
    gelu_bias,
    """
$IMPORTS
import torch.nn.functional as F
from triton.language.extra.cuda import libdevice


def pattern(x, bias):
    return F.gelu(x + bias)


def replacement_args(x, bias):
    return (x, bias)


@triton.jit
def gelu_kernel(x_ptr, bias_ptr, out_ptr, n, cols, FAST: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    v = tl.load(x_ptr + offs, mask=mask) + tl.load(bias_ptr + offs % cols, mask=mask)
    if FAST:
        e = libdevice.erf(v * 0.7071067811865476)
    else:
        e = tl.math.erf(v * 0.7071067811865476)
    tl.store(out_ptr + offs, 0.5 * v * (1.0 + e), mask=mask)


@torch.fx.wrap
def fused(x, bias):
    out = torch.empty_like(x)
    n, cols = x.numel(), bias.numel()
    gelu_kernel[(triton.cdiv(n, 128),)](x, bias, out, n, cols, FAST=x.is_cuda, BLOCK=128)
    return out


$RETURNS
""",
)

PASSES.add(
    "channel_broadcast",
    scale_shift,
    """
$IMPORTS

def pattern(x, s, b):
    return x * s[None, :, None] + b[None, :, None]


def replacement_args(x, s, b):
    return (x, s, b)


@triton.jit
def scale_shift_kernel(x_ptr, s_ptr, b_ptr, o_ptr, C, L, total, BLOCK: tl.constexpr):
    idx = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = idx < total
    c = (idx // L) % C
    x = tl.load(x_ptr + idx, mask=mask)
    tl.store(o_ptr + idx, x * tl.load(s_ptr + c, mask=mask) + tl.load(b_ptr + c, mask=mask), mask=mask)


@torch.fx.wrap
def fused(x, s, b):
    B, C, L = x.shape
    total = B * C * L
    o = torch.empty((B, C, L), device=x.device, dtype=x.dtype)
    scale_shift_kernel[(triton.cdiv(total, 128),)](x, s, b, o, C, L, total, BLOCK=128)
    return o


$RETURNS
""",
)

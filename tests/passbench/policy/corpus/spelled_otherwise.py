"""Honest passes: casts, contexts with a name, lambdas that reckon, sizes called T, Triton's driver.

`PASSES`, name → (sample, sources).
"""

import torch
import torch.nn.functional as F

from storage.records import Sample
from tests.passbench.policy.corpus.corpus_parts import Passes
from tests.passbench.samples import sample, spec, variant

PASSES = Passes()


def layer_norm() -> Sample:
    def f(x, w, b):
        return (F.layer_norm(x, (48,), w, b, 1e-05),)

    return sample(variant(f, spec("x", 2, 5, 48), spec("w", 48, role="parameter"), spec("b", 48, role="parameter")))


def half_rms_norm() -> Sample:
    def f(x, w):
        h = x.float()
        return (w * (h * torch.rsqrt(h.pow(2).mean(-1, True) + 1e-06)).type_as(x),)

    weight = spec("w", 64, dtype="float16", role="parameter")
    return sample(variant(f, spec("x", 3, 4, 64, dtype="float16"), weight))


def swiglu() -> Sample:
    def f(g, u):
        return (F.silu(g) * u,)

    return sample(variant(f, spec("g", 4, 40, dtype="bfloat16"), spec("u", 4, 40, dtype="bfloat16")))


PASSES.add(
    "ln_cast",
    layer_norm,
    """
from typing import Optional, cast

import torch
import triton
import triton.language as tl

def pattern(x, w, b):
    return torch.nn.functional.layer_norm(x, (48,), w, b, 1e-05)


def replacement_args(x, w, b):
    return (x, w, b, 1e-05)


@triton.jit
def layer_norm_fwd(X, Y, W, B, stride, N, eps, BLOCK_N: tl.constexpr, HAS_BIAS: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK_N)
    mask = cols < N
    x = tl.load(X + row * stride + cols, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=0) / N
    diff = tl.where(mask, x - mean, 0.0)
    var = tl.sum(diff * diff, axis=0) / N
    rstd = 1.0 / tl.sqrt(var + eps)
    w = tl.load(W + cols, mask=mask, other=0.0).to(tl.float32)
    y = diff * rstd * w
    if HAS_BIAS:
        y += tl.load(B + cols, mask=mask, other=0.0).to(tl.float32)
    tl.store(Y + row * stride + cols, y.to(Y.dtype.element_ty), mask=mask)


def layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: Optional[torch.Tensor], eps: float) -> torch.Tensor:
    shape = x.shape
    x2d = x.reshape(-1, shape[-1])
    if x2d.stride(-1) != 1:
        x2d = x2d.contiguous()
    M, N = x2d.shape
    y = torch.empty_like(x2d)
    BLOCK_N = triton.next_power_of_2(N)
    num_warps = min(max(BLOCK_N // 256, 1), 8)
    layer_norm_fwd[(M,)](x2d, y, weight, cast(torch.Tensor, bias), x2d.stride(0), N, eps,
                         BLOCK_N=BLOCK_N, HAS_BIAS=bias is not None, num_warps=num_warps)
    return cast(torch.Tensor, y).view(shape)


def replacement_func():
    return layer_norm
""",
)

PASSES.add(
    "ln_device_as",
    layer_norm,
    """
import contextlib

import torch
import triton
import triton.language as tl

def pattern(x, w, b):
    return torch.nn.functional.layer_norm(x, (48,), w, b, 1e-05)


def replacement_args(x, w, b):
    return (x, w, b, 1e-05)


@triton.heuristics({"BLOCK": lambda args: triton.next_power_of_2(args["N"])})
@triton.jit
def _ln(x_ptr, w_ptr, b_ptr, y_ptr, sx, sy, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    m = c < N
    x = tl.load(x_ptr + row * sx + c, mask=m, other=0.0).to(tl.float32)
    mu = tl.sum(x, 0) / N
    xc = tl.where(m, x - mu, 0.0)
    rs = tl.rsqrt(tl.sum(xc * xc, 0) / N + eps)
    w = tl.load(w_ptr + c, mask=m).to(tl.float32)
    b = tl.load(b_ptr + c, mask=m).to(tl.float32)
    tl.store(y_ptr + row * sy + c, xc * rs * w + b, mask=m)


def _device_ctx(t):
    if t.is_cuda:
        return torch.cuda.device(t.device)
    return contextlib.nullcontext()


@torch.fx.wrap
def fused_ln(x, w, b, eps):
    x = x.contiguous()
    N = x.size(-1)
    y = torch.empty_like(x)
    M = x.numel() // N
    with _device_ctx(x) as _:
        _ln[(M,)](x, w, b, y, N, N, N, eps)
    return y


def replacement_func():
    return fused_ln
""",
)

PASSES.add(
    "ln_persistent_driver",
    layer_norm,
    """
import torch
import triton
import triton.language as tl
from triton.runtime import driver


def pattern(x, w, b):
    return torch.nn.functional.layer_norm(x, (48,), w, b, 1e-05)


def replacement_args(x, w, b):
    return (x, w, b, 1e-05)


@triton.jit
def _ln_persistent(x_ptr, w_ptr, b_ptr, y_ptr, M, N, eps, BLOCK: tl.constexpr):
    start = tl.program_id(0)
    step = tl.num_programs(0)
    c = tl.arange(0, BLOCK)
    m = c < N
    w = tl.load(w_ptr + c, mask=m).to(tl.float32)
    b = tl.load(b_ptr + c, mask=m).to(tl.float32)
    for row in tl.range(start, M, step, num_stages=2):
        x = tl.load(x_ptr + row * N + c, mask=m, other=0.0).to(tl.float32)
        mu = tl.sum(x, 0) / N
        xc = tl.where(m, x - mu, 0.0)
        rs = tl.rsqrt(tl.sum(xc * xc, 0) / N + eps)
        tl.store(y_ptr + row * N + c, xc * rs * w + b, mask=m)


def _num_sms(device):
    if device.type != "cuda":
        return 4
    properties = driver.active.utils.get_device_properties(device.index or 0)
    return properties["multiprocessor_count"]


@torch.fx.wrap
def fused(x, w, b, eps):
    x = x.contiguous()
    N = x.shape[-1]
    M = x.numel() // N
    y = torch.empty_like(x)
    _ln_persistent[(min(M, _num_sms(x.device) * 4),)](x, w, b, y, M, N, eps, BLOCK=triton.next_power_of_2(N))
    return y


def replacement_func():
    return fused
""",
)

PASSES.add(
    "rms_field_T",
    half_rms_norm,
    """
from dataclasses import dataclass

import torch
import triton
import triton.language as tl

def pattern(x, w):
    h = x.float()
    v = h.pow(2).mean(-1, True)
    n = h * torch.rsqrt(v + 1e-06)
    return w * n.type_as(x)


def replacement_args(x, w):
    return (x, w)


@dataclass(frozen=True)
class Dims:
    B: int
    T: int
    C: int

    @property
    def rows(self):
        return self.B * self.T


@triton.jit
def _rms(x, w, y, C, eps, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    v = tl.load(x + pid * C + i, mask=i < C, other=0.0).to(tl.float32)
    r = tl.rsqrt(tl.sum(v * v) / C + eps)
    o = (v * r).to(tl.float16) * tl.load(w + i, mask=i < C)
    tl.store(y + pid * C + i, o, mask=i < C)


@torch.fx.wrap
def fused_rms(x, w):
    d = Dims(*x.shape)
    y = torch.empty(d.B, d.T, d.C, dtype=x.dtype, device=x.device)
    _rms[(d.B * d.T,)](x.contiguous(), w, y, d.C, 1e-6, BLOCK=triton.next_power_of_2(d.C))
    return y


def replacement_func():
    return fused_rms
""",
)

PASSES.add(
    "getter_of_settings",
    swiglu,
    """
from functools import lru_cache

import torch
import triton
import triton.language as tl

_cdiv = lambda a, b: (a + b - 1) // b
_pow2 = lambda n: 1 << (n - 1).bit_length()

def pattern(gate, up):
    return torch.nn.functional.silu(gate) * up


def replacement_args(gate, up):
    return (gate, up)


@triton.jit
def _k(g, u, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    m = i < n
    x = tl.load(g + i, mask=m).to(tl.float32)
    y = tl.load(u + i, mask=m)
    tl.store(o + i, (x * tl.sigmoid(x)).to(y.dtype) * y, mask=m)


@lru_cache(None)
def _settings(n):
    block = min(1024, max(64, _pow2(n // 8)))
    return {"B": block, "num_warps": max(1, block // 256)}


@torch.fx.wrap
def swiglu(gate, up):
    n = gate.numel()
    out = torch.empty(gate.shape, dtype=gate.dtype, device=gate.device)
    s = _settings(n)
    _k[(_cdiv(n, s["B"]),)](gate, up, out, n, **s)
    return out


def replacement_func():
    return swiglu
""",
)

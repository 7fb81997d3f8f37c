"""Honest passes: kernels in classes, methods of two names, generators of configurations, settings that are asked for
once, a self-test that nobody runs.

`PASSES`, name → (sample, sources).
"""

import torch
import torch.nn.functional as F

from storage.records import Sample
from tests.passbench.policy.corpus.corpus_parts import Passes
from tests.passbench.samples import sample, spec, variant

PASSES = Passes()


def pooled() -> Sample:
    def f(x):
        return (F.adaptive_avg_pool2d(x, 1).flatten(1, -1),)

    return sample(variant(f, spec("x", 2, 6, 5, 7)))


def normed_groups() -> Sample:
    def f(w, b, x):
        return (F.silu(F.group_norm(x, 32, w, b, 1e-05), inplace=False),)

    w, b = spec("w", 64, role="parameter"), spec("b", 64, role="parameter")
    return sample(variant(f, w, b, spec("x", 1, 64, 3, 3)))


def normed_rows() -> Sample:
    def f(b, w, x):
        return (F.layer_norm(x, (384,), w, b, 1e-06),)

    return sample(variant(f, spec("b", 384, role="parameter"), spec("w", 384, role="parameter"), spec("x", 3, 384)))


def gated() -> Sample:
    def f(x, y, z):
        return (torch.sigmoid(x + y) * z,)

    return sample(variant(f, spec("x", 5, 9), spec("y", 5, 9), spec("z", 5, 9)))


def scaled() -> Sample:
    def f(x):
        return (x * 0.125,)

    return sample(variant(f, spec("x", 6, 20)))


PASSES.add(
    "kernel_of_a_class",
    pooled,
    '''
import torch
import triton
import triton.language as tl


class AvgPoolOp:
    """Namespace for global-average-pool kernels."""

    @staticmethod
    @triton.jit
    def kernel(x_ptr, out_ptr, S, BLOCK: tl.constexpr):
        i = tl.program_id(0)
        acc = tl.zeros((BLOCK,), dtype=tl.float32)
        for k in range(0, S, BLOCK):
            o = k + tl.arange(0, BLOCK)
            acc += tl.load(x_ptr + i * S + o, mask=o < S, other=0.0)
        tl.store(out_ptr + i, tl.sum(acc) / S)

    @classmethod
    def apply(cls, x):
        N, C, H, W = x.shape
        out = torch.empty((N, C), dtype=x.dtype, device=x.device)
        cls.kernel[(N * C,)](x, out, H * W, BLOCK=256)
        return out

    @staticmethod
    def run(x):
        out = torch.empty((x.shape[0], x.shape[1]), dtype=x.dtype, device=x.device)
        AvgPoolOp.kernel[(out.numel(),)](x, out, x.shape[2] * x.shape[3], BLOCK=256)
        return out


def pattern(x):
    p = torch.nn.functional.adaptive_avg_pool2d(x, 1)
    return p.flatten(1, -1)


def replacement_args(x):
    return (x,)


@torch.fx.wrap
def global_pool(x):
    x = x.contiguous()
    return AvgPoolOp.apply(x) if x.is_cuda else AvgPoolOp.run(x)


def replacement_func():
    return global_pool
''',
)

PASSES.add(
    "called_by_another_name",
    normed_groups,
    """
import torch
import triton
import triton.language as tl
from enum import Enum, IntEnum, auto


class Activation(IntEnum):
    NONE = 0
    SILU = 1
    RELU = 2


def pattern(w, b, x):
    g = torch.nn.functional.group_norm(x, 32, w, b, 1e-05)
    return torch.nn.functional.silu(g, inplace=False)


def replacement_args(w, b, x):
    return (w, b, x)


@triton.jit
def group_norm_kernel(x_ptr, w_ptr, b_ptr, y_ptr, C, HW, G, eps, ACT: tl.constexpr, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    n = pid // G
    g = pid % G
    cpg = C // G
    size = cpg * HW
    base = n * C * HW + g * size
    s = tl.zeros([BLOCK], tl.float32)
    s2 = tl.zeros([BLOCK], tl.float32)
    for start in range(0, size, BLOCK):
        o = start + tl.arange(0, BLOCK)
        v = tl.load(x_ptr + base + o, mask=o < size, other=0.0).to(tl.float32)
        s += v
        s2 += v * v
    mean = tl.sum(s, 0) / size
    var = tl.sum(s2, 0) / size - mean * mean
    rstd = 1 / tl.sqrt(var + eps)
    for start in range(0, size, BLOCK):
        o = start + tl.arange(0, BLOCK)
        m = o < size
        v = tl.load(x_ptr + base + o, mask=m, other=0.0).to(tl.float32)
        ch = g * cpg + o // HW
        w = tl.load(w_ptr + ch, mask=m, other=0.0).to(tl.float32)
        y = (v - mean) * rstd * w + tl.load(b_ptr + ch, mask=m, other=0.0).to(tl.float32)
        if ACT == 1:
            y = y * tl.sigmoid(y)
        elif ACT == 2:
            y = tl.maximum(y, 0.0)
        tl.store(y_ptr + base + o, y.to(y_ptr.dtype.element_ty), mask=m)


class FusedGroupNorm:
    num_groups = 32
    eps = 1e-5
    kernel = group_norm_kernel

    def __init__(self, act=Activation.NONE, block=1024):
        self.act = act
        self.block = block

    def forward(self, w, b, x):
        x = x.contiguous()
        N, C = x.shape[:2]
        HW = x.numel() // (N * C)
        y = torch.empty_like(x)
        self.kernel[(N * self.num_groups,)](x, w, b, y, C, HW, self.num_groups, self.eps,
            ACT=self.act.value, BLOCK=self.block)
        return y

    __call__ = forward


_op = FusedGroupNorm(Activation.SILU)


@torch.fx.wrap
def group_norm_silu(w, b, x):
    return _op(w, b, x)


def replacement_func():
    return group_norm_silu
""",
)

PASSES.add(
    "generator_of_configurations",
    normed_rows,
    '''
import torch
import triton
import triton.language as tl


def _gen_configs():
    for warps in (1, 2, 4, 8, 16):
        for stages in (1, 2):
            yield triton.Config({}, num_warps=warps, num_stages=stages)


def keep(conf):
    return conf.num_warps <= 8


@triton.autotune(list(filter(keep, _gen_configs())), key=["N", "BLOCK_N"])
@triton.jit
def ln_kernel(X, Y, W, B, Mean, Rstd, N, eps, BLOCK_N: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK_N)
    m = c < N
    x = tl.load(X + row * N + c, mask=m, other=0.0).to(tl.float32)
    mean = tl.sum(x, 0) / N
    xm = tl.where(m, x - mean, 0.0)
    rstd = tl.rsqrt(tl.sum(xm * xm, 0) / N + eps)
    tl.store(Mean + row, mean)
    tl.store(Rstd + row, rstd)
    y = xm * rstd * tl.load(W + c, mask=m).to(tl.float32) + tl.load(B + c, mask=m).to(tl.float32)
    tl.store(Y + row * N + c, y, mask=m)


def pattern(b, w, x):
    return torch.nn.functional.layer_norm(x, (384,), w, b, 1e-06)


def replacement_args(b, w, x):
    return (b, w, x)


@torch.fx.wrap
def layer_norm(b, w, x):
    """Compute LN(x).

    Args:
        b: bias ``[N]``
        w: weight ``[N]``
        x: input ``[..., N]``

    Returns:
        Tensor of the same shape as ``x``.
    """
    N = x.size(-1)
    x_arg = x.reshape(-1, N)
    M, N = x_arg.shape
    y = torch.empty_like(x_arg)
    mean = torch.empty((M,), dtype=torch.float32, device=x.device)
    rstd = torch.empty((M,), dtype=torch.float32, device=x.device)
    MAX_FUSED_SIZE = 65536 // x.element_size()
    BLOCK_N = min(MAX_FUSED_SIZE, triton.next_power_of_2(N))
    if N > BLOCK_N:
        raise RuntimeError("This layer norm doesn't support feature dim >= 64KB.")
    ln_kernel[(M,)](x_arg, y, w, b, mean, rstd, N, 1e-6, BLOCK_N=BLOCK_N)
    return y.view_as(x)


def replacement_func():
    return layer_norm
''',
)

PASSES.add(
    "asked_for_its_parameters",
    scaled,
    """
import inspect
import torch
import triton
import triton.language as tl


@triton.jit
def scale_kernel(x, o, s, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o + i, tl.load(x + i, mask=i < n) * s, mask=i < n)


_HAS_WARP_SPEC = "num_consumer_groups" in inspect.signature(triton.Config.__init__).parameters


def pattern(x):
    return x * 0.125


def replacement_args(x):
    return (x,)


@torch.fx.wrap
def scale(x):
    o = torch.empty_like(x)
    n = x.numel()
    extra = {"num_warps": 4} if _HAS_WARP_SPEC else {"num_warps": 8}
    scale_kernel[(triton.cdiv(n, 512),)](x, o, 0.125, n, BLOCK=512, **extra)
    return o


def replacement_func():
    return scale
""",
)

PASSES.add(
    "tested_by_its_author",
    gated,
    '''
"""Fused (x + y).sigmoid() * z"""
import torch
import torch.fx
import triton
import triton.language as tl
import time


def pattern(x, y, z):
    tmp_0 = x + y
    x = None
    tmp_1 = torch.sigmoid(tmp_0)
    tmp_0 = None
    tmp_2 = tmp_1 * z
    tmp_1 = z = None
    return (tmp_2,)


def replacement_args(x, y, z):
    return (x, y, z)


@triton.jit
def kern(x_ptr, y_ptr, z_ptr, o_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    i = pid * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    t = tl.load(x_ptr + i, mask=m).to(tl.float32) + tl.load(y_ptr + i, mask=m).to(tl.float32)
    s = 1.0 / (1.0 + tl.exp(-t))
    tl.store(o_ptr + i, s * tl.load(z_ptr + i, mask=m).to(tl.float32), mask=m)


def fused(x, y, z):
    o = torch.empty_like(x)
    n = o.numel()
    kern[(triton.cdiv(n, 1024), 1, 1)](x, y, z, o, n, BLOCK=1024)
    return (o,)


torch.fx.wrap("fused")


def replacement_func():
    return fused


def _reference(x, y, z):
    x += y
    return x.sigmoid_() * z


def _self_test():
    x, y, z = (torch.randn(4, 4, device="cuda") for _ in range(3))
    t0 = time.time()
    assert torch.allclose(fused(x, y, z)[0], _reference(x, y, z))
    torch.cuda.synchronize()
    print("ok", time.time() - t0)


if __name__ == "__main__":
    _self_test()
''',
)

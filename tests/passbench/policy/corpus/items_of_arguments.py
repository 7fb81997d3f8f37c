"""Honest passes: arguments collected in a tuple, sizes and routes beside tensors, keys of a dict of tensors,
operators under a short name.

`PASSES`, name → (sample, sources).
"""

import torch
import torch.nn.functional as F

from storage.records import Sample
from tests.passbench.policy.corpus.corpus_parts import Passes
from tests.passbench.samples import sample, spec, variant

PASSES = Passes()


def linear_gelu() -> Sample:
    def f(b, w, x):
        return (F.gelu(F.linear(x, w, b)),)

    return sample(variant(f, spec("b", 24, role="parameter"), spec("w", 24, 16, role="parameter"), spec("x", 2, 5, 16)))


def convolved() -> Sample:
    def f(b, w, x):
        return (F.relu(torch.conv2d(x, w, b, (1, 1), (1, 1), (1, 1), 1), inplace=True),)

    half = {"dtype": "float16"}  # a product of single precision is of TF32 on a GPU
    w, b = spec("w", 8, 4, 3, 3, role="parameter", **half), spec("b", 8, role="parameter", **half)
    return sample(variant(f, b, w, spec("x", 1, 4, 6, 6, **half)))


def upsampled() -> Sample:
    def f(x):
        return (F.interpolate(x, size=(64, 64), mode="bilinear", align_corners=False),)

    return sample(variant(f, spec("x", 1, 2, 32, 32)))


def summed_halves() -> Sample:
    def f(x):
        a, b = x.chunk(2, dim=1)
        return a.sum(1), b.sum(1)

    return sample(variant(f, spec("x", 3, 16)))


def product() -> Sample:
    def f(a, b):
        return (a * b,)

    return sample(variant(f, spec("a", 6, 20), spec("b", 20)))


PASSES.add(
    "arguments_in_a_tuple",
    convolved,
    '''
"""3x3 stride-1 conv + bias + relu as implicit GEMM."""
import torch
import triton
import triton.language as tl


def pattern(b, w, x):
    c = torch.conv2d(x, w, b, (1, 1), (1, 1), (1, 1), 1)
    return torch.nn.functional.relu(c, inplace=True)


def replacement_args(b, w, x):
    return (b, w, x)


@triton.jit
def conv_kernel(x_ptr, w_ptr, b_ptr, y_ptr, N, C, H, W, CO, sxn, sxc, sxh, sxw, swo, swc, swh, sww,
                KH: tl.constexpr, KW: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    pm = tl.program_id(0)
    pn = tl.program_id(1)
    rm = pm * BM + tl.arange(0, BM)
    rn = pn * BN + tl.arange(0, BN)
    n = rm // (H * W)
    hw = rm % (H * W)
    h = hw // W
    w = hw % W
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for kh in range(KH):
        for kw in range(KW):
            ih = h + kh - KH // 2
            iw = w + kw - KW // 2
            ok = (rm < N * H * W) & (ih >= 0) & (ih < H) & (iw >= 0) & (iw < W)
            for c0 in range(0, C, BK):
                rc = c0 + tl.arange(0, BK)
                a = tl.load(x_ptr + n[:, None] * sxn + rc[None, :] * sxc + ih[:, None] * sxh + iw[:, None] * sxw,
                    mask=ok[:, None] & (rc[None, :] < C), other=0.0)
                bb = tl.load(w_ptr + rn[None, :] * swo + rc[:, None] * swc + kh * swh + kw * sww,
                    mask=(rn[None, :] < CO) & (rc[:, None] < C), other=0.0)
                acc += tl.dot(a, bb)
    acc += tl.load(b_ptr + rn, mask=rn < CO, other=0.0)[None, :]
    acc = tl.maximum(acc, 0.0)
    o = n[:, None] * CO * H * W + rn[None, :] * H * W + hw[:, None]
    tl.store(y_ptr + o, acc, mask=(rm[:, None] < N * H * W) & (rn[None, :] < CO))


@torch.fx.wrap
def conv_bias_relu(b, w, x):
    N, C, H, W = x.shape
    CO, CI, KH, KW = w.shape
    if CI != C or KH != 3:
        return torch.relu(torch.nn.functional.conv2d(x, w, b, stride=1, padding=1))
    y = torch.empty((N, CO, H, W), dtype=x.dtype, device=x.device)
    BM, BN, BK = 64, 32, 32
    kernel_args = (x, w, b, y, N, C, H, W, CO, *x.stride(), *w.stride())
    meta = dict(KH=KH, KW=KW, BM=BM, BN=BN, BK=BK)
    meta.update(num_warps=4, num_stages=2)
    conv_kernel[(triton.cdiv(N * H * W, BM), triton.cdiv(CO, BN))](*kernel_args, **meta)
    return y


def replacement_func():
    return conv_bias_relu
''',
)

PASSES.add(
    "size_in_the_arguments",
    upsampled,
    '''
"""Bilinear x2 upsample (align_corners=False)."""
import torch
import triton
import triton.language as tl
import inspect


def pattern(x):
    return torch.nn.functional.interpolate(x, size=(64, 64), mode="bilinear", align_corners=False)


def replacement_args(x):
    return (x, (64, 64))


@triton.jit
def _src_index(dst, scale, size):
    src = (dst.to(tl.float32) + 0.5) * scale - 0.5
    src = tl.maximum(src, 0.0)
    i0 = src.to(tl.int32)
    i0 = tl.minimum(i0, size - 1)
    i1 = tl.minimum(i0 + 1, size - 1)
    lam = src - i0.to(tl.float32)
    return i0, i1, lam


@triton.jit
def upsample_kernel(x_ptr, o_ptr, IH, IW, OH, OW, sh, sw, BLOCK_W: tl.constexpr, BLOCK_H: tl.constexpr):
    nc = tl.program_id(2)
    oy = tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H)
    ox = tl.program_id(0) * BLOCK_W + tl.arange(0, BLOCK_W)
    y0, y1, ly = _src_index(oy, sh, IH)
    x0, x1, lx = _src_index(ox, sw, IW)
    base = x_ptr + nc * IH * IW
    m = (oy[:, None] < OH) & (ox[None, :] < OW)
    v00 = tl.load(base + y0[:, None] * IW + x0[None, :], mask=m).to(tl.float32)
    v01 = tl.load(base + y0[:, None] * IW + x1[None, :], mask=m).to(tl.float32)
    v10 = tl.load(base + y1[:, None] * IW + x0[None, :], mask=m).to(tl.float32)
    v11 = tl.load(base + y1[:, None] * IW + x1[None, :], mask=m).to(tl.float32)
    hy, hx = 1.0 - ly, 1.0 - lx
    r = hy[:, None] * (hx[None, :] * v00 + lx[None, :] * v01) + ly[:, None] * (hx[None, :] * v10 + lx[None, :] * v11)
    tl.store(o_ptr + nc * OH * OW + oy[:, None] * OW + ox[None, :], r, mask=m)


@torch.fx.wrap
def upsample_bilinear(x, size):
    OH, OW = size
    N, C, IH, IW = x.shape
    if (IH, IW) == (OH, OW):
        return x.clone()
    out = torch.empty((N, C, OH, OW), dtype=x.dtype, device=x.device)
    BW = min(64, triton.next_power_of_2(OW))
    BH = max(1, 512 // BW)
    grid = (triton.cdiv(OW, BW), triton.cdiv(OH, BH), N * C)
    upsample_kernel[grid](x.contiguous(), out, IH, IW, OH, OW, float(IH) / OH, float(IW) / OW, BLOCK_W=BW, BLOCK_H=BH)
    return out


def replacement_func():
    return upsample_bilinear
''',
)

PASSES.add(
    "keys_of_a_dict",
    summed_halves,
    """
import torch
import triton
import triton.language as tl


@triton.jit
def split_sum(x, o, N, CH: tl.constexpr, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    ch = tl.program_id(1)
    i = ch * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(o + r, tl.sum(tl.load(x + r * N + i, mask=i < N, other=0.0).to(tl.float32), 0))


def pattern(x):
    a, b = x.chunk(2, dim=1)
    return a.sum(1), b.sum(1)


def replacement_args(x):
    return (x,)


def _alloc(rows, like, how_many=2):
    return [torch.zeros(rows, dtype=torch.float32, device=like.device) for _ in range(how_many)]


@torch.fx.wrap
def chunk_sums(x):
    halves = torch.chunk(x, 2, dim=1)
    bufs = {"a": None, "b": None}
    for name, h in zip(bufs, halves):
        hc = h.contiguous()
        rows, N = hc.shape
        (acc,) = _alloc(rows, hc, how_many=1)
        split_sum[(rows, triton.cdiv(N, 1024))](hc, acc, N, CH=1, BLOCK=1024)
        bufs[name] = acc.to(x.dtype)
    return bufs["a"], bufs["b"]


def replacement_func():
    return chunk_sums
""",
)

PASSES.add(
    "route_of_the_module",
    product,
    """
import torch
import triton
import triton.language as tl

ROUTE_ADD = 0
ROUTE_MUL = 1


@triton.jit
def ew_kernel(a, b, o, n, route: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x, y = tl.load(a + i, mask=i < n), tl.load(b + i, mask=i < n)
    if route == 0:
        z = x + y
    else:
        z = x * y
    tl.store(o + i, z, mask=i < n)


def pattern(a, b):
    return a * b


def replacement_args(a, b):
    inputs = (a, b)
    route = ROUTE_MUL
    return (*inputs, route)


@torch.fx.wrap
def ew(a, b, route=ROUTE_ADD):
    out_shape = torch.broadcast_shapes(a.shape, b.shape)
    a = a.expand(out_shape).contiguous()
    b = b.expand(out_shape).contiguous()
    o = torch.empty(out_shape, dtype=torch.result_type(a, b), device=a.device)
    n = o.numel()
    ew_kernel[(triton.cdiv(n, 1024),)](a, b, o, n, route=route, BLOCK=1024)
    return o


def replacement_func():
    return ew
""",
)

PASSES.add(
    "operators_under_a_short_name",
    linear_gelu,
    """
import torch
import triton
import triton.language as tl

aten = torch.ops.aten


@triton.jit
def bias_gelu_kernel(x, b, o, N, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    v = tl.load(x + i, mask=m).to(tl.float32) + tl.load(b + i % N, mask=m).to(tl.float32)
    g = 0.5 * v * (1 + tl.erf(v * 0.70710678118))
    tl.store(o + i, g, mask=m)


def pattern(b, w, x):
    y = torch.nn.functional.linear(x, w, b)
    return torch.nn.functional.gelu(y)


def replacement_args(b, w, x):
    return (b, w, x)


@torch.fx.wrap
def linear_gelu(b, w, x):
    K = x.shape[-1]
    flat = aten.view.default(x.contiguous(), [-1, K])
    y = torch.ops.aten.mm.default(flat, aten.t.default(w))
    o = aten.empty_like.default(y)
    n = y.numel()
    N = y.shape[1]
    bias_gelu_kernel[(triton.cdiv(n, 1024),)](y, b, o, N, n, BLOCK=1024)
    return aten.view(o, x.shape[:-1] + (N,))


def replacement_func():
    return linear_gelu
""",
)

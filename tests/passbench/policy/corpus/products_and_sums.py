"""Honest passes: matrix products, convolutions and sums, of the library and of their own.

`PASSES`, name → (sample, sources).
"""

from tests.passbench.attacks import attack_samples as on
from tests.passbench.policy.corpus.corpus_parts import Passes

PASSES = Passes()

PASSES.add(
    "matmul_tiles",
    on.unit_matmul,  # weights of a hundred leave two right orders of addition 0.8 of the tolerance at -3 apart
    """
$IMPORTS

def pattern(x, w):
    return torch.matmul(x, w)


def replacement_args(x, w):
    return (x, w)


@triton.jit
def matmul_kernel(a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
                  BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP_M: tl.constexpr):
    pid = tl.program_id(0)
    num_pid_m = tl.cdiv(M, BM)
    num_pid_n = tl.cdiv(N, BN)
    num_pid_in_group = GROUP_M * num_pid_n
    group_id = pid // num_pid_in_group
    first_pid_m = group_id * GROUP_M
    group_size_m = min(num_pid_m - first_pid_m, GROUP_M)
    pid_m = first_pid_m + (pid % num_pid_in_group) % group_size_m
    pid_n = (pid % num_pid_in_group) // group_size_m
    offs_am = (pid_m * BM + tl.arange(0, BM)) % M
    offs_bn = (pid_n * BN + tl.arange(0, BN)) % N
    offs_k = tl.arange(0, BK)
    a_ptrs = a_ptr + (offs_am[:, None] * stride_am + offs_k[None, :] * stride_ak)
    b_ptrs = b_ptr + (offs_k[:, None] * stride_bk + offs_bn[None, :] * stride_bn)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        a = tl.load(a_ptrs, mask=offs_k[None, :] < K - k * BK, other=0.0)
        b = tl.load(b_ptrs, mask=offs_k[:, None] < K - k * BK, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BK * stride_ak
        b_ptrs += BK * stride_bk
    c = acc.to(c_ptr.dtype.element_ty)
    offs_cm = pid_m * BM + tl.arange(0, BM)
    offs_cn = pid_n * BN + tl.arange(0, BN)
    c_ptrs = c_ptr + stride_cm * offs_cm[:, None] + stride_cn * offs_cn[None, :]
    tl.store(c_ptrs, c, mask=(offs_cm[:, None] < M) & (offs_cn[None, :] < N))


@torch.fx.wrap
def fused(x, w):
    assert x.shape[1] == w.shape[0], "Incompatible dimensions"
    (M, K), N = x.shape, w.shape[1]
    c = torch.empty((M, N), device=x.device, dtype=x.dtype)
    grid = lambda META: (triton.cdiv(M, META["BM"]) * triton.cdiv(N, META["BN"]),)
    matmul_kernel[grid](
        x, w, c, M, N, K, x.stride(0), x.stride(1), w.stride(0), w.stride(1), c.stride(0), c.stride(1),
        BM=16, BN=16, BK=32, GROUP_M=8,
    )
    return c


$RETURNS
""",
)

PASSES.add(
    "linear_kept",
    on.linear_sigmoid,
    """
$IMPORTS
import torch.nn.functional as F


def pattern(x, w, b):
    return torch.sigmoid(F.linear(x, w, b)) * 2.0


def replacement_args(x, w, b):
    return (x, w, b)


@triton.jit
def sigmoid2_kernel(x_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    v = tl.load(x_ptr + offs, mask=mask)
    tl.store(x_ptr + offs, tl.sigmoid(v) * 2.0, mask=mask)


@torch.fx.wrap
def fused(x, w, b):
    out = torch.addmm(b, x.view(-1, x.shape[-1]), w.t())
    n = out.numel()
    sigmoid2_kernel[(triton.cdiv(n, 128),)](out, n, BLOCK=128)
    return out


$RETURNS
""",
)

PASSES.add(
    "merged_weights",
    on.two_products,
    """
import torch


def pattern(x, v, w):
    return torch.matmul(x, v), torch.matmul(x, w)


def replacement_args(x, v, w):
    return (x, v, w)


@torch.fx.wrap
def fused(x, v, w):
    merged = torch.cat([v, w], dim=1)
    both = torch.mm(x, merged)
    left, right = both.split([v.shape[1], w.shape[1]], dim=-1)
    return left.contiguous(), right.contiguous()


def replacement_func():
    return fused
""",
)

PASSES.add(
    "row_sums_in_two_steps",
    on.row_sums,
    """
$IMPORTS

def pattern(x):
    return x.sum(-1)


def replacement_args(x):
    return (x,)


@triton.jit
def partial_kernel(x_ptr, part_ptr, cols, splits, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    split = tl.program_id(1)
    offs = split * BLOCK + tl.arange(0, BLOCK)
    vals = tl.load(x_ptr + row * cols + offs, mask=offs < cols, other=0.0)
    tl.store(part_ptr + row * splits + split, tl.sum(vals, axis=0))


@torch.fx.wrap
def fused(x):
    rows, cols = x.shape
    splits = triton.cdiv(cols, 64)
    part = torch.zeros((rows, splits), dtype=torch.float32, device=x.device)
    partial_kernel[(rows, splits)](x, part, cols, splits, BLOCK=64)
    return part.sum(dim=1).to(x.dtype)


$RETURNS
""",
)

PASSES.add(
    "constant_tensor_cached",
    on.steps,
    """
$IMPORTS

def pattern(x):
    return torch.arange(64, dtype=torch.float32, device="cpu") * 0.5 + x


def replacement_args(x):
    return (x,)


_RAMPS = {}


def _ramp(device):
    key = str(device)
    if key not in _RAMPS:
        _RAMPS[key] = torch.arange(64, dtype=torch.float32, device=device) * 0.5
    return _RAMPS[key]


@torch.fx.wrap
def fused(x):
    return torch.add(_ramp(x.device), x)


$RETURNS
""",
)

PASSES.add(
    "convolution_epilogue",
    on.conv_relu,
    """
$IMPORTS
import torch.nn.functional as F


def pattern(x, w, b):
    return torch.relu(torch.conv2d(x, w, b, (1, 1), (1, 1), (1, 1), 1))


def replacement_args(x, w, b):
    return (x, w, b)


@triton.jit
def relu_kernel(x_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    tl.store(x_ptr + offs, tl.maximum(tl.load(x_ptr + offs, mask=mask), 0.0), mask=mask)


@torch.fx.wrap
def fused(x, w, b):
    y = F.conv2d(x, w, b, stride=1, padding=1)
    n = y.numel()
    relu_kernel[(triton.cdiv(n, 256),)](y, n, BLOCK=256)
    return y


$RETURNS
""",
)

PASSES.add(
    "descriptors_of_tensors",
    on.add_relu,
    """
$IMPORTS
$ADD_RELU
@triton.jit
def add_relu_kernel(x_ptr, y_ptr, out_ptr, n_elements, BLOCK: tl.constexpr):
    x = tl.make_tensor_descriptor(x_ptr, shape=[n_elements], strides=[1], block_shape=[BLOCK])
    y = tl.make_tensor_descriptor(y_ptr, shape=[n_elements], strides=[1], block_shape=[BLOCK])
    out = tl.make_tensor_descriptor(out_ptr, shape=[n_elements], strides=[1], block_shape=[BLOCK])
    start = tl.program_id(0) * BLOCK
    out.store([start], tl.maximum(x.load([start]) + y.load([start]), 0.0))


@torch.fx.wrap
def fused(x, y):
    out = torch.empty_like(x)
    add_relu_kernel[(triton.cdiv(x.numel(), 128),)](x, y, out, x.numel(), BLOCK=128)
    return out


$RETURNS
""",
)

"""Honest passes: dispatchers that collect `*args`, with a route and numbers among tensors.

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


def group_norm_silu() -> Sample:
    def f(x, w, b):
        return (F.silu(F.group_norm(x, 2, w, b, 1e-05)),)

    return sample(variant(f, spec("x", 2, 4, 5, 5), spec("w", 4, role="parameter"), spec("b", 4, role="parameter")))


def two_layers() -> Sample:
    def f(x, w1, b1, w2, b2):
        return (F.linear(F.relu(F.linear(x, w1, b1)), w2, b2),)

    sizes = {"w1": (32, 16), "b1": (32,), "w2": (8, 32), "b2": (8,)}
    weights = [spec(name, *shape, std=0.2, role="parameter") for name, shape in sizes.items()]
    return sample(variant(f, spec("x", 6, 16), *weights))


PASSES.add(
    "route_star",
    axpy,
    """
import torch
import triton
import triton.language as tl


def pattern(a, b):
    t = torch.ops.aten.mul.Tensor(b, 0.5)
    return torch.ops.aten.add.Tensor(a, t)


def replacement_args(a, b):
    return (a, b, 0.5, "axpy")


@triton.jit
def _axpy_kernel(a_ptr, b_ptr, o_ptr, n, alpha, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    off = pid * BLOCK + tl.arange(0, BLOCK)
    m = off < n
    a = tl.load(a_ptr + off, mask=m)
    b = tl.load(b_ptr + off, mask=m)
    tl.store(o_ptr + off, a + b * alpha, mask=m)


def _axpy(a, b, alpha):
    out = torch.empty_like(a)
    n = a.numel()
    _axpy_kernel[(triton.cdiv(n, 256),)](a, b, out, n, alpha, BLOCK=256)
    return out


def _eager(a, b, alpha):
    return a + b * alpha


@torch.fx.wrap
def dispatch(*args):
    route = args[-1]
    if route == "axpy":
        return _axpy(*args[:-1])
    elif route == "eager":
        return _eager(args[0], args[1], args[2])
    raise ValueError(f"unknown route {route}")


def replacement_func():
    return dispatch
""",
)

PASSES.add(
    "route_unpacked",
    axpy,
    """
import torch
import triton
import triton.language as tl


def pattern(a, b):
    t = torch.ops.aten.mul.Tensor(b, 0.5)
    return torch.ops.aten.add.Tensor(a, t)


def replacement_args(a, b):
    return (a, b, 0.5, "axpy")


@triton.jit
def _axpy_kernel(a_ptr, b_ptr, o_ptr, n, alpha, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    off = pid * BLOCK + tl.arange(0, BLOCK)
    m = off < n
    a = tl.load(a_ptr + off, mask=m)
    b = tl.load(b_ptr + off, mask=m)
    tl.store(o_ptr + off, a + b * alpha, mask=m)


@torch.fx.wrap
def dispatch(*args):
    *tensors, alpha, route = args
    a, b = tensors
    out = torch.empty_like(a)
    n = a.numel()
    assert route == "axpy", route
    _axpy_kernel[(triton.cdiv(n, 256),)](a, b, out, n, alpha, BLOCK=256)
    return out


def replacement_func():
    return dispatch
""",
)

PASSES.add(
    "route_exact_unpack",
    axpy,
    """
import torch
import triton
import triton.language as tl


def pattern(a, b):
    t = torch.ops.aten.mul.Tensor(b, 0.5)
    return torch.ops.aten.add.Tensor(a, t)


def replacement_args(a, b):
    return (a, b, 0.5, "axpy")


@triton.jit
def _axpy_kernel(a_ptr, b_ptr, o_ptr, n, alpha, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    off = pid * BLOCK + tl.arange(0, BLOCK)
    m = off < n
    a = tl.load(a_ptr + off, mask=m)
    b = tl.load(b_ptr + off, mask=m)
    tl.store(o_ptr + off, a + b * alpha, mask=m)


@torch.fx.wrap
def dispatch(*args):
    a, b, alpha, route = args
    if len(args) != 4 or route != "axpy":
        raise NotImplementedError(route)
    out = torch.empty_like(a)
    n = a.numel()
    _axpy_kernel[(triton.cdiv(n, 256),)](a, b, out, n, alpha, BLOCK=256)
    return out


def replacement_func():
    return dispatch
""",
)

PASSES.add(
    "route_first",
    axpy,
    """
import torch
import triton
import triton.language as tl


def pattern(a, b):
    t = torch.ops.aten.mul.Tensor(b, 0.5)
    return torch.ops.aten.add.Tensor(a, t)


def replacement_args(a, b):
    return ("axpy", a, b, 0.5)


@triton.jit
def _axpy_kernel(a_ptr, b_ptr, o_ptr, n, alpha, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    off = pid * BLOCK + tl.arange(0, BLOCK)
    m = off < n
    a = tl.load(a_ptr + off, mask=m)
    b = tl.load(b_ptr + off, mask=m)
    tl.store(o_ptr + off, a + b * alpha, mask=m)


def _axpy(a, b, alpha):
    out = torch.empty_like(a)
    n = a.numel()
    _axpy_kernel[(triton.cdiv(n, 256),)](a, b, out, n, alpha, BLOCK=256)
    return out


ROUTES = {"axpy": _axpy}


@torch.fx.wrap
def dispatch(route, *args):
    return ROUTES[route](*args)


def replacement_func():
    return dispatch
""",
)

PASSES.add(
    "gn_abstract_base",
    group_norm_silu,
    '''
import abc

import torch
import triton
import triton.language as tl

def pattern(x, w, b):
    y = torch.nn.functional.group_norm(x, 2, w, b, 1e-05)
    return torch.nn.functional.silu(y)


def replacement_args(x, w, b):
    return (x, w, b, 2, 1e-05)


@triton.jit
def gn_silu(x_ptr, w_ptr, b_ptr, y_ptr, C, HW, CPG, eps, ACT: tl.constexpr, BLOCK: tl.constexpr):
    n = tl.program_id(0)
    g = tl.program_id(1)
    size = CPG * HW
    base = (n * C + g * CPG) * HW
    s = tl.zeros((BLOCK,), tl.float32)
    q = tl.zeros((BLOCK,), tl.float32)
    for o in range(0, size, BLOCK):
        i = o + tl.arange(0, BLOCK)
        v = tl.load(x_ptr + base + i, mask=i < size, other=0.0).to(tl.float32)
        s += v
        q += v * v
    mean = tl.sum(s) / size
    var = tl.sum(q) / size - mean * mean
    rstd = 1 / tl.sqrt(var + eps)
    for o in range(0, size, BLOCK):
        i = o + tl.arange(0, BLOCK)
        m = i < size
        c = g * CPG + i // HW
        v = tl.load(x_ptr + base + i, mask=m).to(tl.float32)
        v = (v - mean) * rstd * tl.load(w_ptr + c, mask=m) + tl.load(b_ptr + c, mask=m)
        if ACT == "silu":
            v = v * tl.sigmoid(v)
        tl.store(y_ptr + base + i, v.to(y_ptr.dtype.element_ty), mask=m)


class FusedOp(abc.ABC):
    """Base class: allocate, launch, return."""

    name: str = "op"

    @abc.abstractmethod
    def launch(self, x, *args, out):
        ...

    def __call__(self, x, *args):
        x = x.contiguous()
        out = torch.empty_like(x)
        self.launch(x, *args, out=out)
        return out


class GroupNormSilu(FusedOp):
    name = "group_norm_silu"
    BLOCK = 64

    def launch(self, x, w, b, groups, eps, *, out):
        n, c, h, wd = x.shape
        gn_silu[(n, groups)](x, w, b, out, c, h * wd, c // groups, eps, ACT="silu", BLOCK=self.BLOCK)


_OP = GroupNormSilu()


@torch.fx.wrap
def fused(x, w, b, groups, eps):
    return _OP(x, w, b, groups, eps)


def replacement_func():
    return fused
''',
)

PASSES.add(
    "mlp_out_variants",
    two_layers,
    """
import torch
import triton
import triton.language as tl

from passbench.launch import captured

def pattern(x, w1, b1, w2, b2):
    h = torch.nn.functional.linear(x, w1, b1)
    a = torch.nn.functional.relu(h)
    return torch.nn.functional.linear(a, w2, b2)


def replacement_args(x, w1, b1, w2, b2):
    return (x, w1, b1, w2, b2)


@triton.jit
def _bias_relu_(h_ptr, b_ptr, n, C, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(h_ptr + i, mask=i < n) + tl.load(b_ptr + i % C, mask=i < n)
    tl.store(h_ptr + i, tl.maximum(v, 0.0), mask=i < n)


def _mlp(x, w1, b1, w2, b2):
    m, hidden = x.shape[0], w1.shape[0]
    h = torch.empty(m, hidden, dtype=x.dtype, device=x.device)
    torch.mm(x, w1.t(), out=h)
    _bias_relu_[(triton.cdiv(h.numel(), 128),)](h, b1, h.numel(), hidden, BLOCK=128)
    return torch.addmm(b2, h, w2.t())


@torch.fx.wrap
def mlp(*tensors):
    return captured(_mlp, *tensors)


def replacement_func():
    return mlp
""",
)

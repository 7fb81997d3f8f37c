"""Honest passes that hold functions and kernels as values: memos, rules, variants, activations."""

import torch
import torch.nn.functional as F

from storage.records import Sample
from tests.passbench.attacks import attack_samples as on
from tests.passbench.policy.corpus.corpus_parts import Passes, gelu_bias
from tests.passbench.samples import sample, spec, variant

PASSES = Passes()


def silu_bias() -> Sample:
    def f(x, b):
        return (F.silu(x + b),)

    return sample(variant(f, spec("x", 4, 32), spec("b", 32, role="parameter")))


def rms_norm_of_weight() -> Sample:
    def f(x, w):
        return (w * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-06)),)

    return sample(variant(f, spec("x", 4, 64), spec("w", 64, role="parameter")))


PASSES.add(
    "memo_of_plans",
    on.add_relu,
    '''
$IMPORTS

$ADD_RELU
$KERNEL

class Memo:
    """Caches fn(key) by key."""

    def __init__(self, fn):
        self.fn = fn
        self.cache = {}

    def __call__(self, *key):
        if key not in self.cache:
            self.cache[key] = self.fn(*key)
        return self.cache[key]


def _launch_params(n):
    block = min(1024, triton.next_power_of_2(max(n // 64, 64)))
    return block, 4 if block <= 512 else 8


launch_params = Memo(_launch_params)


@torch.fx.wrap
def fused(x, y):
    out = torch.empty_like(x)
    n = out.numel()
    block, warps = launch_params(n)
    add_relu_kernel[(triton.cdiv(n, block),)](x, y, out, n, BLOCK_SIZE=block, num_warps=warps)
    return out


$RETURNS
''',
)
PASSES.add(
    "cheapest_by_a_field",
    on.add_relu,
    """
$IMPORTSimport math


$ADD_RELU
$KERNEL

CANDIDATES = [(b, w) for b in (128, 256, 512, 1024) for w in (2, 4, 8)]


class Planner:
    def __init__(self, candidates, cost):
        self.candidates = list(candidates)
        self.cost = cost
        self._best = {}

    def best(self, n):
        if n not in self._best:
            self._best[n] = min(self.candidates, key=lambda c: self.cost(n, *c))
        return self._best[n]


def wave_cost(n, block, warps, sms=132):
    programs = math.ceil(n / block)
    waves = math.ceil(programs / (sms * 64 // warps))
    return waves * block / warps


PLANNER = Planner(CANDIDATES, wave_cost)


@torch.fx.wrap
def fused(x, y):
    out = torch.empty_like(x)
    n = out.numel()
    block, warps = PLANNER.best(n)
    add_relu_kernel[(triton.cdiv(n, block),)](x, y, out, n, BLOCK_SIZE=block, num_warps=warps)
    return out


$RETURNS
""",
)
PASSES.add(
    "chain_of_operations",
    on.add_relu,
    """
$IMPORTSfrom abc import ABC, abstractmethod


$ADD_RELU
$KERNEL

class FusedOp(ABC):
    @abstractmethod
    def can_handle(self, x, y):
        ...

    @abstractmethod
    def run(self, x, y):
        ...


class TritonAddRelu(FusedOp):
    BLOCK = 1024

    def can_handle(self, x, y):
        return x.shape == y.shape and x.is_contiguous() and y.is_contiguous()

    def run(self, x, y):
        out = torch.empty_like(x)
        n = x.numel()
        add_relu_kernel[(triton.cdiv(n, self.BLOCK),)](x, y, out, n, BLOCK_SIZE=self.BLOCK)
        return out


class EagerAddRelu(FusedOp):
    def can_handle(self, x, y):
        return True

    def run(self, x, y):
        return torch.relu(x + y)


IMPLEMENTATIONS = [TritonAddRelu(), EagerAddRelu()]


@torch.fx.wrap
def fused(x, y):
    for impl in IMPLEMENTATIONS:
        if impl.can_handle(x, y):
            return impl.run(x, y)
    raise RuntimeError("no implementation")


$RETURNS
""",
)
PASSES.add(
    "made_once_by_its_class",
    on.add_relu,
    """
$IMPORTSfrom typing import Optional


$ADD_RELU
$KERNEL

class Runtime:
    _instance: Optional["Runtime"] = None

    def __init__(self):
        self.sms = torch.cuda.get_device_properties(0).multi_processor_count if torch.cuda.is_available() else 1
        self.blocks = {}

    @classmethod
    def get(cls):
        if cls._instance is None:
            cls._instance = cls()
        return cls._instance

    def block_for(self, n):
        return self.blocks.setdefault(n, 1024 if n > self.sms * 1024 else 256)


@torch.fx.wrap
def fused(x, y):
    out = torch.empty_like(x)
    n = out.numel()
    block = Runtime.get().block_for(n)
    add_relu_kernel[(triton.cdiv(n, block),)](x, y, out, n, BLOCK_SIZE=block)
    return out


$RETURNS
""",
)
PASSES.add(
    "rules_one_after_another",
    gelu_bias,
    """
$IMPORTS

def pattern(x, bias):
    t = x + bias
    return torch.nn.functional.gelu(t)


def replacement_args(x, bias):
    return (x, bias)


@triton.jit
def bias_gelu_kernel(x_ptr, b_ptr, out_ptr, n, D, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask).to(tl.float32)
    b = tl.load(b_ptr + offs % D, mask=mask).to(tl.float32)
    v = x + b
    out = 0.5 * v * (1.0 + tl.math.erf(v * 0.7071067811865476))
    tl.store(out_ptr + offs, out.to(out_ptr.dtype.element_ty), mask=mask)


def _small(n, d):
    return n <= 4096


def _wide(n, d):
    return d >= 1024


def _any(n, d):
    return True


RULES = [
    (_small, dict(BLOCK=128, num_warps=2)),
    (_wide, dict(BLOCK=1024, num_warps=8)),
    (_any, dict(BLOCK=512, num_warps=4)),
]


def choose(n, d):
    for predicate, options in RULES:
        if predicate(n, d):
            return options
    raise AssertionError("unreachable")


@torch.fx.wrap
def fused(x, bias):
    x = x.contiguous()
    out = torch.empty_like(x)
    n, d = x.numel(), x.shape[-1]
    options = choose(n, d)
    bias_gelu_kernel[(triton.cdiv(n, options["BLOCK"]),)](x, bias, out, n, d, **options)
    return out


$RETURNS
""",
)
PASSES.add(
    "activations_as_constants",
    silu_bias,
    """
$IMPORTS

def pattern(x, bias):
    t = x + bias
    return torch.nn.functional.silu(t)


def replacement_args(x, bias):
    return (x, bias)


@triton.jit
def relu(v):
    return tl.maximum(v, 0.0)


@triton.jit
def silu(v):
    return v * tl.sigmoid(v)


ACTIVATIONS = {"relu": relu, "silu": silu}


@triton.jit
def bias_act_kernel(x_ptr, b_ptr, out_ptr, n, D, ACT: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    v = tl.load(x_ptr + offs, mask=mask) + tl.load(b_ptr + offs % D, mask=mask)
    tl.store(out_ptr + offs, ACT(v.to(tl.float32)), mask=mask)


def bias_act(x, bias, act):
    x = x.contiguous()
    out = torch.empty_like(x)
    n = x.numel()
    bias_act_kernel[(triton.cdiv(n, 512),)](x, bias, out, n, x.shape[-1], ACT=ACTIVATIONS[act], BLOCK=512)
    return out


@torch.fx.wrap
def fused(x, bias):
    return bias_act(x, bias, "silu")


$RETURNS
""",
)
PASSES.add(
    "variants_by_lambdas",
    rms_norm_of_weight,
    """
$IMPORTS

def pattern(x, weight):
    v = x.pow(2).mean(-1, keepdim=True)
    y = x * torch.rsqrt(v + 1e-06)
    return weight * y


def replacement_args(x, weight):
    return (x, weight)


@triton.jit
def rms_single(x_ptr, w_ptr, o_ptr, D, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    m = c < D
    x = tl.load(x_ptr + row * D + c, mask=m, other=0.0).to(tl.float32)
    r = tl.rsqrt(tl.sum(x * x, 0) / D + eps)
    tl.store(o_ptr + row * D + c, x * r * tl.load(w_ptr + c, mask=m).to(tl.float32), mask=m)


@triton.jit
def rms_loop(x_ptr, w_ptr, o_ptr, D, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for s in range(0, D, BLOCK):
        c = s + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * D + c, mask=c < D, other=0.0).to(tl.float32)
        acc += x * x
    r = tl.rsqrt(tl.sum(acc, 0) / D + eps)
    for s in range(0, D, BLOCK):
        c = s + tl.arange(0, BLOCK)
        m = c < D
        x = tl.load(x_ptr + row * D + c, mask=m, other=0.0).to(tl.float32)
        tl.store(o_ptr + row * D + c, x * r * tl.load(w_ptr + c, mask=m).to(tl.float32), mask=m)


class Variant:
    def __init__(self, kernel, matches, block):
        self.kernel = kernel
        self.matches = matches
        self.block = block


VARIANTS = (
    Variant(rms_single, lambda d: d <= 8192, lambda d: triton.next_power_of_2(d)),
    Variant(rms_loop, lambda d: True, lambda d: 4096),
)


def select(d):
    return next(v for v in VARIANTS if v.matches(d))


@torch.fx.wrap
def fused(x, weight):
    x = x.contiguous()
    out = torch.empty_like(x)
    d = x.shape[-1]
    variant = select(d)
    variant.kernel[(x.numel() // d,)](x, weight, out, d, 1e-6, BLOCK=variant.block(d))
    return out


$RETURNS
""",
)

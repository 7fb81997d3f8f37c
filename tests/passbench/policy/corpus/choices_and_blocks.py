"""Honest passes: launches that are chosen from tables in many forms, block pointers, hints, and sums of several values.

`PASSES`, name → (sample, sources).
"""

from tests.passbench.attacks import attack_samples as on
from tests.passbench.policy.corpus.corpus_parts import Passes, rms_norm

PASSES = Passes()

PASSES.add(
    "choices_in_many_forms",
    on.add_relu,
    '''
from __future__ import annotations

import enum
from collections import ChainMap
from typing import NoReturn, TypedDict

$IMPORTS

try:
    from triton.language.math import tanh
except ImportError:
    from triton.language.extra.libdevice import tanh


class Meta(TypedDict, total=False):
    BLOCK_SIZE: int
    num_warps: int


class Option(enum.Flag):
    NONE = 0
    WIDE = enum.auto()
    DEEP = enum.auto()


class Size(enum.IntEnum):
    SMALL = 128
    LARGE = 1024

    @classmethod
    def for_numel(cls, n: int) -> Size:
        for member in cls:
            if n <= member:
                return member
        return cls.LARGE


DEFAULT: Meta = {"BLOCK_SIZE": 256, "num_warps": 4}
DISPATCH = [
    (lambda n: n <= 1024, dict(num_warps=1)),
    (lambda n: True, dict(num_warps=8)),
]

$ADD_RELU
$KERNEL

def unequal(a, b) -> NoReturn:
    raise ValueError(f"shapes {tuple(a.shape)} and {tuple(b.shape)} of {type(a)}, {a.dtype!s:>10}, {a.stride()=}")


class Launch:
    """Collects what a launch needs, step by step."""

    __slots__ = ("n", "_meta", "_options")

    def __init__(self, n: int):
        self.n, self._meta, self._options = n, {}, Option.NONE

    def sized(self, size: int) -> Launch:
        self._meta = dict(ChainMap({"BLOCK_SIZE": size}, DEFAULT))
        return self

    def wide(self, wanted: bool) -> Launch:
        if wanted:
            self._options |= Option.WIDE
        return self

    def build(self) -> dict:
        chosen = next(config for fits, config in DISPATCH if fits(self.n))
        meta = self._meta | chosen
        if bool(self._options & Option.WIDE):
            meta |= {"num_stages": 2}
        return dict(grid=(triton.cdiv(self.n, meta["BLOCK_SIZE"]), 1, 1), **meta)


@torch.fx.wrap
def fused(x, y):
    if x.shape != y.shape:
        unequal(x, y)
    (rows, *_), n = x.shape, x.numel()
    spec = Launch(n).sized(Size.for_numel(n).value).wide(rows > 2).build()
    grid = spec.pop("grid")
    out = torch.empty_like(x)
    add_relu_kernel[grid](x, y, out, n, **spec)
    return out


$RETURNS
''',
)

PASSES.add(
    "sums_of_pairs_over_blocks",
    rms_norm,
    """
from typing import NamedTuple

$IMPORTS


class Dims(NamedTuple):
    rows: int
    cols: int

    @classmethod
    def of(cls, t):
        return cls(t.numel() // t.shape[-1], t.shape[-1])


def pattern(x, w):
    variance = x.float().pow(2).mean(-1, keepdim=True)
    return x * torch.rsqrt(variance + 1e-06) * w


def replacement_args(x, w):
    return (x, w)


@triton.jit
def add_pairs(sum_a, count_a, sum_b, count_b):
    return sum_a + sum_b, count_a + count_b


@triton.jit
def rms_kernel(x_ptr, w_ptr, out_ptr, M, N, eps, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    first = tl.program_id(0) * ROWS
    x_block = tl.make_block_ptr(
        base=x_ptr, shape=(M, N), strides=(N, 1), offsets=(first, 0), block_shape=(ROWS, BLOCK), order=(1, 0)
    )
    x = tl.load(x_block, boundary_check=(0, 1), padding_option="zero").to(tl.float32)
    columns = tl.max_contiguous(tl.arange(0, BLOCK), BLOCK)
    counted = tl.where(columns[None, :] < N, 1.0, 0.0) + tl.zeros_like(x)
    total, count = tl.reduce((x * x, counted), 1, add_pairs)
    w = tl.load(w_ptr + columns, mask=columns < N, other=0.0, eviction_policy="evict_last")
    normed = x * tl.rsqrt(total / count + eps)[:, None] * w[None, :]
    out_block = tl.make_block_ptr(
        base=out_ptr, shape=(M, N), strides=(N, 1), offsets=(first, 0), block_shape=(ROWS, BLOCK), order=(1, 0)
    )
    tl.store(out_block, normed.to(out_ptr.dtype.element_ty), boundary_check=(0, 1))


@torch.fx.wrap
def fused(x, w):
    rows, cols = dims = Dims.of(x)
    assert dims == (rows, cols)
    x = x.contiguous()
    out = torch.empty_strided(x.size(), x.stride(), dtype=x.dtype, device=x.device)
    rms_kernel[-(-rows // 4), 1, 1](x, w, out, rows, cols, 1e-6, ROWS=4, BLOCK=triton.next_power_of_2(cols))
    return out


$RETURNS
""",
)

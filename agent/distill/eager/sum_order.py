"""In what order eager's CUDA kernels add, from the shape, the strides and the dtype of what they reduce.

A kernel that adds in the same order gives the same bits. The rules are those of torch 2.11 on a GPU of `PROCESSORS`
multiprocessors: ATen's `Reduce.cuh` for sums and means, the vectorised kernels of layer norm and RMS norm for theirs,
`PersistentSoftmax.cuh`, `SoftMax.cu`, the moments of `group_norm_kernel.cu` and of `Normalization.cuh`, `Indexing.cu`,
`ScanUtils.cuh`, `WeightNorm.cu`, and for backwards `layer_norm_kernel.cu` and `Normalization.cuh`. They are an
expectation: `order_probe` compares each with eager on the device at hand before a kernel relies on it.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import torch

from agent.distill.eager.op_effects import WARP_SLICE, Addition
from storage.records import contiguous_stride

PROCESSORS = 132
"""Multiprocessors of the GPU that blocks are spread over (an H200's)."""

_THREADS = 512
"""Threads of a block, at most."""
_RESIDENT = 2048
"""Threads that a multiprocessor holds."""
WARP = 32
_SUMS = 4
"""Sums that each thread keeps where it does not read vectors."""
_NORM_VECTOR = 4
"""Elements of a vector in the kernel of norms of vectors, of any dtype. A sum's has 8 of a half type."""
_VECTORIZED = 128
"""Threads read vectors along rows of at least so many elements."""
_SPLIT = 16
"""From so many elements a thread on, the rows of threads of a block share one row of the input."""
_MOST = 256
"""With more elements a thread, several blocks share a row."""
ROWS_OF_OTHER_ORDERS = tuple(
    sorted(
        {2**n for n in range(1, _THREADS.bit_length())}
        | {PROCESSORS * (_RESIDENT // 2**n) + 1 for n in range(_THREADS.bit_length())}
    )
)
"""Numbers of rows from which on `order_of` may give another order of what lies along rows one behind another: a block
has rows of threads for powers of two of them, and several blocks share a row where blocks are few."""
_NORM_HEIGHT = 4
"""Warps that share a row of a norm."""
_NORM_LENGTH = 2**24
"""Eager takes the vectorised kernels of norms for rows of up to so many elements."""

_SOFTMAX_LENGTH = 1024
"""Eager has a warp for each row of a softmax, forward or backward, up to this length."""

_SPATIAL, _SPATIAL_THREADS = 64, 1024
"""Along another dimension, several threads have a row if up to so many lie side by side and each has as many elements
at least; a block has so many threads."""

_SINGLY = ("softmax", "softmax_backward", "weight_norm")
"""What eager adds by kernels that read single elements, wherever memory begins."""

_FIRST_DIM_THREADS, _LAST_DIM_THREADS = 256, 64
"""Threads that share a row of a weight norm that keeps the first dimension, and a column of one that keeps the last."""

_BACKWARD_ROWS = ((64, 1), (128, 8), (256, 16), (math.inf, 32))
"""A layer norm's backward with less than so many rows adds what belongs to a column in so many rows of threads."""
_BACKWARD_LINE = 8
"""Each of these threads gets so many neighbours at a time."""
_FLOATS = (torch.float32, torch.float16, torch.bfloat16)
_MOST_ROWS = 64 * 1024
"""With more rows, and few columns, several blocks share a column."""

SumKind = Literal["sum", "moments", "squares", "turns", "rounded", "welford", "channels", "norm", "product", "members"]


@dataclass(frozen=True)
class Deal:
    """How elements are dealt to threads of which no step has neighbours: a row is `lines` lines of `line` elements, and
    a step has `across` elements of each of `down` lines. The steps along the same lines come one after another."""

    lines: int
    line: int
    across: int
    down: int

    @property
    def turns(self) -> int:
        """Steps along the same lines."""
        return -(-self.line // self.across)

    @property
    def places(self) -> int:
        """The elements of all steps, those included that are not there."""
        return -(-self.lines // self.down) * self.turns * self.across * self.down


@dataclass(frozen=True)
class Ragged:
    """How rows of `length` elements are dealt that lie one behind another and begin between two vectors. The first step
    has what comes before a row's first whole vector, an element for each thread from the vector's start on; the last
    one what comes behind the last. In between `turns` steps of `step` elements have the whole vectors."""

    length: int
    vector: int
    step: int

    @property
    def turns(self) -> int:
        """Steps of whole vectors."""
        return -(-self.length // self.step)

    @property
    def places(self) -> int:
        """The elements of all steps, those included that are not there."""
        return (self.turns + 2) * self.step


@dataclass(frozen=True)
class SumOrder:
    """The order in which one block of threads adds one row of `length` elements.

    The block has `width` × `height` threads. A step takes width · height · sums elements. Each thread gets `sums` of
    them: neighbours if `vectors`, else elements that are width · height apart.

    `kind` "sum": each thread keeps `sums` sums and adds these one after another at the end. "norm": the same of
    squares, each of which is added without rounding it. "moments" (mean and squared distances from it, by Welford),
    "squares" and "turns" (a sum, or one of products): each thread keeps one result, and takes its elements in turn.
    "rounded": one thread does, and rounds each sum to `rounds`. "members": of those elements that belong to a place a
    warp adds 32 at a time, an element of each thread, as long as there are so many, and the first thread adds the rest.
    "product": any order, for the sums of a product of matrices (`free`).
    "welford" and "channels": moments by other formulas, with a division for each element. In the end the threads'
    results are added: the second half to the first until one is left, along the width, then along the height. Those of
    "channels" are added by neighbours, the second one to the first.

    `deal`: how a step's elements are found, where they are no neighbours. `rounds`: what a thread gets from another one
    is rounded to this half type. `idle`: the one row of threads is the first of so many, of which the others have
    nothing to add. `addition` is what is added in this order; None if that is not known.
    """

    length: int
    width: int
    height: int
    sums: int
    vectors: bool
    kind: SumKind = "sum"
    addition: Addition | None = field(default=None, compare=False, repr=False)
    idle: int = 1
    deal: Deal | Ragged | None = None
    rounds: torch.dtype | None = None

    def without_idle(self) -> "SumOrder":
        """The same sum of a short row by those threads that have something to add, and no more sums of each than have
        something: what has nothing adds zeros.

        Of a norm's moments eager combines those of each row of threads with those of idle ones. That changes nothing
        where their number is a power of two, so that two rows of threads need such numbers here. Of a short row each
        thread has a vector, or nothing, when it is combined with those that no power of two needs.
        """
        if self.kind in ("sum", "norm") and self.deal is None:
            return self._short()
        warp = self.width * self.sums
        second = self.length - warp
        width = min(self.width, _power_from(-(-self.length // self.sums)))
        if self.kind == "turns":  # what has nothing to add adds zeros
            busy = self.vectors and self.length <= 2 * warp
            return replace(self, width=width, height=1 if self.length <= warp else 2) if busy else self
        unknown = self.kind in ("sum", "norm") or self.height != _NORM_HEIGHT
        if unknown or second > warp or (second > 0 and second & (second - 1)):
            return self
        if second > 0:
            return replace(self, height=2)
        return replace(self, width=width, height=1, idle=self.height)

    def _short(self) -> "SumOrder":
        """A sum without the places of a step that a row has no elements for, as far as powers of two allow."""
        threads, sums = self.width * self.height, self.sums
        if not self.vectors:
            sums = min(sums, _power_from(-(-self.length // threads)))
        if self.vectors or sums == 1:
            threads = min(threads, _power_from(-(-self.length // sums)))
        width = min(self.width, threads)
        return replace(self, width=width, height=threads // width, sums=sums)

    @property
    def free(self) -> bool:
        """Whether it is no order of eager's, but stands for any."""
        return self.kind == "product"

    @property
    def step(self) -> int:
        """Elements of a step, each of which is added to another sum; a power of two."""
        return self.width * self.height * self.sums


def order_of(addition: Addition) -> SumOrder | None:
    """The order in which eager is expected to add; None if it is not known, or if several blocks share a row."""
    if addition.apart and addition.op not in _SINGLY:  # most kernels read vectors from a boundary on
        return None
    if addition.op in ("sum", "mean", "norm"):
        norm = addition.op == "norm"
        vector = _NORM_VECTOR if norm else 0
        order = sum_order(addition.shape, addition.stride, addition.reduced, addition.dtype, vector)
        return replace(order, addition=addition, kind="norm" if norm else "sum") if order is not None else None
    length = math.prod(addition.shape[d] for d in addition.reduced)
    if addition.op == "index_put":
        return _index_put_order(addition, length)
    if addition.op == "cumsum":
        return _in_turn(addition, length, addition.dtype) if addition.dtype in _FLOATS else None
    if addition.op == "weight_norm":
        width, height = (1, _LAST_DIM_THREADS) if 0 in addition.reduced else (_FIRST_DIM_THREADS, 1)
        known = addition.dtype.itemsize <= 4 and length > 1
        return SumOrder(length, width, height, 1, False, "norm", addition) if known else None
    if addition.op in ("softmax", "softmax_backward"):
        return _softmax_order(addition, length)
    if addition.op == "group_norm":
        height = _THREADS // WARP if length >= _THREADS else 1
        known = addition.dtype != torch.float64
        return SumOrder(length, WARP, height, 1, False, "welford", addition) if known else None
    if addition.op == "batch_norm":
        return _batch_norm_order(addition, length)
    if addition.op == "batch_norm_backward":
        return _batch_norm_backward_order(addition, length)
    if addition.op == "layer_norm_backward" and not addition.along_last:
        return _layer_norm_backward_order(addition, length)
    if length % 4 or length > _NORM_LENGTH or addition.dtype == torch.float64:
        return None
    return SumOrder(length, WARP, _NORM_HEIGHT, 4, True, _NORM_KINDS[addition.op], addition)


_NORM_KINDS: dict[str, SumKind] = {"layer_norm": "moments", "rms_norm": "squares", "layer_norm_backward": "turns"}


def _layer_norm_backward_order(addition: Addition, rows: int) -> SumOrder | None:
    """Of what belongs to a column, over all rows."""
    columns = math.prod(addition.shape[d] for d in range(len(addition.shape)) if d not in addition.reduced)
    if addition.dtype == torch.float64 or rows < 2 or (rows > _MOST_ROWS and columns // WARP < PROCESSORS // 2):
        return None
    height = next(height for below, height in _BACKWARD_ROWS if rows < below)
    deal = Deal(-(-rows // _BACKWARD_LINE), _BACKWARD_LINE, 1, height) if height > 1 else None
    return SumOrder(rows, 1, height, 1, False, "turns", addition, deal=deal)


def _channel_deal(addition: Addition) -> Deal | None:
    """How a channel is dealt to one block: a row of threads has the places of one image. Channels-last memory has
    kernels of its own."""
    places = math.prod(addition.shape[2:])
    if addition.dtype == torch.float64 or places == 1 or addition.stride[1] == 1:
        return None
    across = next((n for n in (32, 64, 128, 256) if places <= n), _THREADS)
    return Deal(addition.shape[0], places, across, _THREADS // across)


def _batch_norm_order(addition: Addition, length: int) -> SumOrder | None:
    """Of a channel's moments. Of the warp that adds those of all warps, half has nothing to add."""
    sizes = addition.shape
    strides = contiguous_stride(sizes)
    there = [d for d, n in enumerate(sizes) if n > 1]
    deal = _channel_deal(addition)
    if deal is None or length > _NORM_LENGTH or any(addition.stride[d] != strides[d] for d in there) or 1 not in there:
        return None  # others are added by kernels for any strides
    height = _THREADS // WARP
    return SumOrder(length, WARP, height, 1, False, "channels", addition, idle=WARP // height, deal=deal)


def _batch_norm_backward_order(addition: Addition, length: int) -> SumOrder | None:
    """Of a channel's gradient, by one block."""
    deal = _channel_deal(addition)
    if deal is None:
        return None
    rounds = addition.dtype if addition.dtype != torch.float32 else None
    return SumOrder(length, WARP, _THREADS // WARP, 1, False, "turns", addition, deal=deal, rounds=rounds)


def _index_put_order(addition: Addition, length: int) -> SumOrder | None:
    """Of what belongs to one place. Of single elements a warp takes 32 at a time where so many belong to one."""
    slice_size = addition.shape[2]
    if addition.dtype.itemsize > 4:
        return None
    if slice_size == 1 and length >= WARP:
        return SumOrder(length, 1, 1, 1, False, "members", addition)
    return _in_turn(addition, length, addition.dtype if slice_size > WARP_SLICE else torch.float32)


def _in_turn(addition: Addition, length: int, kept: torch.dtype) -> SumOrder:
    """One element after another, by one thread that keeps the sum in this dtype."""
    rounds = kept if kept != torch.float32 else None
    return SumOrder(length, 1, 1, 1, False, "rounded" if rounds else "sum", addition, rounds=rounds)


def _softmax_order(addition: Addition, length: int) -> SumOrder | None:
    """Of short rows: a warp has a whole one, each thread elements that are a warp apart. Along another dimension than
    the last one a thread has a row, or where rows are few and long several threads have, as `SpatialSoftMax` says."""
    (dim,) = addition.reduced
    inner = math.prod(addition.shape[dim + 1 :])
    if length < 2 or addition.dtype.itemsize > 4:
        return None
    if inner > 1:
        width = 1
        if inner <= _SPATIAL and length >= _SPATIAL:
            width = _power_below(min(_SPATIAL_THREADS // inner, length))
        return SumOrder(length, width, 1, 1, False, addition=addition)
    if length > _SOFTMAX_LENGTH:
        return None
    whole = _power_below(2 * length - 1)
    width = min(whole, WARP)
    return SumOrder(length, width, 1, whole // width, False, addition=addition)


def sum_order(
    shape: Sequence[int], stride: Sequence[int], reduced: Collection[int], dtype: torch.dtype, vector: int = 0
) -> SumOrder | None:
    """How eager sums a tensor (its strides in elements) over these dimensions; None where several blocks share a row,
    or where the order is not known. `vector`: the elements of a vector where they are not those of a sum's kernel."""
    if dtype.itemsize > 4 or any(n > 1 and s == 0 for n, s in zip(shape, stride, strict=True)):
        return None
    inner = _merged(sorted((stride[d], shape[d]) for d in reduced if shape[d] > 1))
    outer = [(stride[d], shape[d]) for d in range(len(shape) - 1, -1, -1) if d not in reduced and shape[d] > 1]
    outer = _merged(outer)
    length, rows = math.prod(n for _, n in inner), math.prod(n for _, n in outer)
    if length == 1:
        return None
    along = not outer or inner[0][0] < outer[0][0]
    vector = vector or (8 if dtype.itemsize == 2 else 4)
    vectors, outputs, ragged = False, 1, False
    across, down = (length, rows) if along else (rows, length)
    if along and inner[0][0] == 1 and len(inner) == 1 and length >= _VECTORIZED:
        ragged = length % vector > 0 or any(s % vector for s, _ in outer)
        if ragged and outer and outer != [(length, rows)]:
            return None  # rows that begin between two vectors, with gaps
        vectors, across = True, across // vector
    elif not along and outer[0][0] == 1:
        outputs = math.gcd(_SUMS, outer[0][1], *(s for s, _ in (*inner, *outer[1:])))
        across //= outputs
    width, height = _block(across, down, _THREADS // outputs)
    threads = width * height
    step = width if along else 1
    steps_down = 1
    shared = -(-length // step) >= min(height * _SPLIT, _MOST)
    if shared:
        step *= height
    else:
        steps_down, height = height, 1
    grid = -(-(rows // outputs) // (steps_down if along else width * steps_down))
    if shared and -(-length // step) >= _MOST and grid <= PROCESSORS * (_RESIDENT // threads):
        return None
    found = SumOrder(length, width if along else 1, height, vector if vectors else _SUMS, vectors)
    return replace(found, deal=Ragged(length, vector, found.step)) if ragged else found


def _merged(dims: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """(stride, size) of dimensions, innermost first. Neighbours without a gap between them become one dimension."""
    result: list[tuple[int, int]] = []
    for stride, size in dims:
        if result and result[-1][0] * result[-1][1] == stride:
            result[-1] = (result[-1][0], result[-1][1] * size)
        else:
            result.append((stride, size))
    return result


def _block(across: int, down: int, threads: int) -> tuple[int, int]:
    """Width and height of a block of at most `threads` threads."""
    wide, high = (min(_power_below(n), threads) for n in (across, down))
    width = min(wide, WARP)
    height = min(high, threads // width)
    return min(wide, threads // height), height


def _power_below(n: int) -> int:
    """The largest power of two up to n; 1 for 0."""
    return 1 << (max(n, 1).bit_length() - 1)


def _power_from(n: int) -> int:
    """The smallest power of two that is at least n."""
    return 1 << (n - 1).bit_length()

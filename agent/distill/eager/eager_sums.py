"""Eager's results of adding numbers, beside those that are expected of an order of addition."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import torch

from agent.distill.eager.emulated_sums import added, channels, fused, in_turn, moments, rows_of, squares, welford
from agent.distill.eager.op_effects import WARP_SLICE, Addition
from agent.distill.eager.sum_order import SumOrder

EPSILON = 1e-5
Pairs = Iterator[tuple[torch.Tensor, torch.Tensor]]
"""What eager gives in the chosen rows, and what is expected of it."""


class EagerSums:
    """What is probed: eager's own kernels."""

    def sum(self, x: torch.Tensor, dims: list[int], dtype: torch.dtype) -> torch.Tensor:
        """The sums over `dims`, in this dtype."""
        return x.sum(dims, dtype=dtype)

    def mean(self, x: torch.Tensor, dims: list[int]) -> torch.Tensor:
        """The means over `dims`."""
        return x.mean(dims)

    def norm(self, x: torch.Tensor, dims: list[int], dtype: torch.dtype) -> torch.Tensor:
        """The roots of the sums of squares over `dims`, in this dtype."""
        return torch.linalg.vector_norm(x, 2, dims, dtype=dtype)

    def layer_norm(self, x: torch.Tensor, normalized: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """Of the last dimensions: means, and the inverse of their standard deviations."""
        _, mean, inverse = torch.native_layer_norm(x, normalized, None, None, EPSILON)
        return mean, inverse

    def rms_norm(self, x: torch.Tensor, normalized: list[int]) -> torch.Tensor:
        """Of the last dimensions: the inverse of their root mean squares."""
        return torch.ops.aten._fused_rms_norm(x, normalized, None, EPSILON)[1]

    def weight_norm(self, x: torch.Tensor, weight: torch.Tensor, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The tensor with weights in place of its norms over all dimensions but `dim`, and the norms."""
        return torch._weight_norm_interface(x, weight, dim)

    def group_norm(
        self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Of rows that are a group of one channel each: their norms, means, and the inverse of their standard
        deviations. `weight` and `bias` have a number for each row."""
        rows, length = x.shape
        return torch.native_group_norm(x.view(1, rows, length), weight, bias, 1, rows, length, rows, EPSILON)

    def batch_norm(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Of channels: means, and the inverse of their standard deviations, in single precision."""
        return torch.native_batch_norm(x, None, None, None, None, True, 0.0, EPSILON)[1:]

    def softmax(self, x: torch.Tensor, dim: int) -> torch.Tensor:
        """The softmax in single precision."""
        return torch.softmax(x, dim, dtype=torch.float32)

    def softmax_backward(self, grad: torch.Tensor, output: torch.Tensor, dim: int) -> torch.Tensor:
        """The gradient of a softmax's operand."""
        return torch._softmax_backward_data(grad, output, dim, grad.dtype)

    def index_put(self, x: torch.Tensor) -> torch.Tensor:
        """(B, N, S) → (B, 1, S): the sums of what belongs to one place. Of slices of more than `WARP_SLICE` elements
        the first is there before."""
        known, added = (x[:, :1], x[:, 1:]) if x.shape[2] > WARP_SLICE else (torch.zeros_like(x[:, :1]), x)
        places = torch.zeros(added.shape[1], dtype=torch.int64, device=x.device)
        before = [None] if x.shape[0] > 1 else []
        shape = x.shape[1 - len(before) :]
        found = known.reshape(-1, *shape[1:]) if not before else known
        put = torch.ops.aten.index_put.default
        return put(found, [*before, places], added if before else added[0], True)

    def cumsum(self, x: torch.Tensor, dim: int) -> torch.Tensor:
        """The sums up to the last element along a dimension."""
        return torch.cumsum(x, dim).select(dim, -1)

    def layer_norm_backward(
        self, grad: torch.Tensor, x: torch.Tensor, normalized: list[int]
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The gradients of a layer norm's input, weight and bias, if its rows have mean 0 and deviation 1."""
        rows = [*x.shape[: x.dim() - len(normalized)], *(1,) * len(normalized)]
        mean, inverse = (torch.full(rows, n, dtype=torch.float32, device=x.device) for n in (0.0, 1.0))
        ones = torch.ones(normalized, dtype=x.dtype, device=x.device)
        return torch.ops.aten.native_layer_norm_backward(grad, x, normalized, mean, inverse, ones, ones, [True] * 3)

    def batch_norm_backward(self, grad: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The gradients of a batch norm's weight and bias, if its channels have mean 0 and deviation 1."""
        mean, ones = (torch.full([x.shape[1]], n, device=x.device) for n in (0.0, 1.0))  # in single precision
        found = torch.ops.aten.native_batch_norm_backward(grad, x, ones, None, None, mean, ones, True, 0.0, [True] * 3)
        return found[1], found[2]


@dataclass(frozen=True)
class Draw:
    """Numbers `x` that `eager` adds as `addition` says, and is expected to add in `order`.

    The rows that are compared have the numbers `chosen`. Of a norm's backward `x` is the gradient, and its input is the
    gradient in reverse.
    """

    x: torch.Tensor
    addition: Addition
    order: SumOrder
    chosen: torch.Tensor
    eager: EagerSums

    def pairs(self) -> Pairs:
        """What is to be equal, bit by bit, where eager adds in this order."""
        return _PAIRS[self.addition.op](self)

    @cached_property
    def rows(self) -> torch.Tensor:
        """The chosen rows, in single precision."""
        return rows_of(self.x, self.addition.turn)[self.chosen].float()

    @cached_property
    def length(self) -> torch.Tensor:
        """How many numbers a row has, as a number on the device."""
        return torch.tensor(float(self.rows.shape[1]), device=self.x.device)

    @property
    def normalized(self) -> list[int]:
        """The sizes of the reduced dimensions."""
        return [self.x.shape[d] for d in self.addition.reduced]

    def of_chosen(self, found: torch.Tensor) -> torch.Tensor:
        """Of one result for each row, those of the chosen rows."""
        return found.reshape(-1)[self.chosen]

    def chosen_rows(self, found: torch.Tensor) -> torch.Tensor:
        """Of a result like the numbers, the chosen rows."""
        return rows_of(found, self.addition.reduced)[self.chosen]


def _sums(draw: Draw) -> Pairs:
    x, dims = draw.x, list(draw.addition.reduced)
    expected = added(draw.rows, draw.order, draw.chosen)
    yield draw.of_chosen(draw.eager.sum(x, dims, torch.float32)), expected
    yield draw.of_chosen(draw.eager.sum(x, dims, x.dtype)), expected.to(x.dtype)
    yield draw.of_chosen(draw.eager.mean(x, dims)), (expected * (1.0 / draw.length)).to(x.dtype)


def _norms(draw: Draw) -> Pairs:
    expected = torch.sqrt(added(draw.rows, draw.order, draw.chosen))
    for dtype in dict.fromkeys((torch.float32, draw.x.dtype)):  # a half type hides most bits
        yield draw.of_chosen(draw.eager.norm(draw.x, list(draw.addition.reduced), dtype)), expected.to(dtype)


def _weight_norms(draw: Draw) -> Pairs:
    x = draw.x
    (dim,) = (d for d in range(x.dim()) if d not in draw.addition.reduced)
    weight = x[tuple(slice(None if d == dim else 1) for d in range(x.dim()))].contiguous()
    found, norms = draw.eager.weight_norm(x, weight, dim)
    expected = torch.sqrt(added(draw.rows, draw.order))
    scaled = draw.of_chosen(weight).float() * draw.rows[:, 0] * (1.0 / expected)
    yield draw.of_chosen(norms).float(), expected
    yield draw.chosen_rows(found)[:, 0], scaled.to(x.dtype)  # one of each: a half type hides bits


def _group_norms(draw: Draw) -> Pairs:
    x, rows, chosen = draw.x, draw.rows, draw.chosen
    mean, distances = welford(rows, draw.order)
    epsilon = torch.tensor(EPSILON, dtype=x.dtype, device=x.device).float()  # its kernel takes it in this dtype
    weight, bias = x[:, 0].contiguous(), x[:, -1].contiguous()
    mean, inverse = (each.to(x.dtype) for each in (mean, torch.rsqrt(distances / draw.length + epsilon)))
    scale = inverse.float() * weight[chosen].float()
    shift = bias[chosen].float() - scale * mean.float()
    normed = fused(scale[:, None], rows, shift[:, None]).to(x.dtype)
    have, *moments_of = draw.eager.group_norm(x, weight, bias)
    yield have.view(x.shape)[chosen], normed
    for found, want in zip(moments_of, (mean, inverse), strict=True):
        yield draw.of_chosen(found), want


def _batch_norms(draw: Draw) -> Pairs:
    mean, distances = channels(draw.rows, draw.order)
    expected = mean, torch.rsqrt(distances / draw.length + EPSILON)
    for have, want in zip(draw.eager.batch_norm(draw.x), expected, strict=True):
        yield have[draw.chosen].float(), want


def _layer_norms(draw: Draw) -> Pairs:
    expected, distances = moments(draw.rows)
    mean, inverse = draw.eager.layer_norm(draw.x, draw.normalized)
    yield draw.of_chosen(mean).float(), expected
    yield draw.of_chosen(inverse).float(), torch.rsqrt(distances / draw.length + EPSILON)


def _rms_norms(draw: Draw) -> Pairs:
    inverse = draw.eager.rms_norm(draw.x, draw.normalized)
    yield draw.of_chosen(inverse).float(), torch.rsqrt(squares(draw.rows) / draw.length + EPSILON)


def _softmaxes(draw: Draw) -> Pairs:
    powers = torch.exp(draw.rows - draw.rows.amax(1, keepdim=True))
    expected = powers / added(powers, draw.order)[:, None]
    yield draw.chosen_rows(draw.eager.softmax(draw.x, draw.addition.reduced[0])), expected


def _softmax_backwards(draw: Draw) -> Pairs:
    expected = (draw.rows - added(draw.rows, draw.order)[:, None]).to(draw.x.dtype)
    found = draw.eager.softmax_backward(draw.x, torch.ones_like(draw.x), draw.addition.reduced[0])
    yield draw.chosen_rows(found), expected


def _index_puts(draw: Draw) -> Pairs:
    yield draw.of_chosen(draw.eager.index_put(draw.x)), _one_by_one(draw)


def _cumsums(draw: Draw) -> Pairs:
    yield draw.of_chosen(draw.eager.cumsum(draw.x, draw.addition.reduced[0])), _one_by_one(draw)


def _one_by_one(draw: Draw) -> torch.Tensor:
    add = in_turn if draw.order.kind == "rounded" else added
    return add(draw.rows, draw.order).to(draw.x.dtype)


def _batch_norm_backwards(draw: Draw) -> Pairs:
    """Each number that is added is the product of two."""
    rows, order, x = draw.rows, draw.order, draw.x.flip(0)
    by = draw.chosen_rows(x).float()
    weight, bias = draw.eager.batch_norm_backward(draw.x, x)
    rounded = order.rounds is not None
    dot = in_turn((rows * by).to(order.rounds).float(), order) if rounded else in_turn(rows, order, by)
    yield draw.of_chosen(weight), dot.to(weight.dtype)
    yield draw.of_chosen(bias), in_turn(rows, order).to(bias.dtype)


def _layer_norm_backwards(draw: Draw) -> Pairs:
    """Each number that is added is the product of three. The last one, the inverse of the deviation, is contracted with
    the sum, and 1 here: so the product of the first two is rounded."""
    rows, order, x, addition = draw.rows, draw.order, draw.x.flip(0).contiguous(), draw.addition
    by = draw.chosen_rows(x).float()
    dot = in_turn(rows * by, order)
    normalized = [n for d, n in enumerate(x.shape) if (d in addition.reduced) == addition.along_last]
    found, weight, bias = draw.eager.layer_norm_backward(draw.x, x, normalized)
    if addition.along_last:
        inner = fused(rows, torch.full_like(rows, rows.shape[1]), -(by * dot[:, None]))
        expected = (inner - in_turn(rows, order)[:, None]) * (1.0 / draw.length)
        yield draw.chosen_rows(found), expected.to(x.dtype)
        return
    yield draw.of_chosen(weight), dot.to(weight.dtype)
    yield draw.of_chosen(bias), in_turn(rows, order).to(bias.dtype)


_PAIRS: dict[str, Callable[[Draw], Pairs]] = {
    "sum": _sums,
    "mean": _sums,
    "norm": _norms,
    "weight_norm": _weight_norms,
    "group_norm": _group_norms,
    "batch_norm": _batch_norms,
    "layer_norm": _layer_norms,
    "rms_norm": _rms_norms,
    "softmax": _softmaxes,
    "softmax_backward": _softmax_backwards,
    "index_put": _index_puts,
    "cumsum": _cumsums,
    "batch_norm_backward": _batch_norm_backwards,
    "layer_norm_backward": _layer_norm_backwards,
}
"""By `Addition.op`."""

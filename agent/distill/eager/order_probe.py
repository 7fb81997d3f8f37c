"""Whether eager adds as `sum_order` expects, found out on the device at hand before a kernel relies on it.

Eager's result of one sum, mean, norm or softmax, or of a backward, is compared with the emulated one, bit by bit, on
numbers whose sums depend on the order in which they are added. The shape, strides and dtype are those of the
task: they decide how ATen's kernels split the work.
"""

import hashlib
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import torch

from agent.ahead.gpu_memory import free_cached
from agent.distill.eager.emulated_sums import added, channels, fused, in_turn, moments, rows_of, squares, welford
from agent.distill.eager.op_effects import WARP_SLICE, Addition
from agent.distill.eager.sum_order import SumOrder
from storage.disk import write_json
from storage.versions.code_version import CODE_VERSIONS

EPSILON = 1e-5
_NORMS = ("layer_norm", "rms_norm", "group_norm", "batch_norm")
_COMPARED = 2**22
"""Elements that emulation adds in one draw, at most. Eager adds all rows; only so many of them are compared."""
_SUMS, _DRAWS = 256, (4, 64)
"""How many results are compared in all, and the least and most draws to get so many."""
_STEPS = 2**12
"""How many steps of one block are emulated in all, beyond the least draws: each is a few launches."""
_MEMORY = 8
"""The memory that a probe needs, in multiples of what is added."""


def wide_rows(rows: int, length: int, dtype: torch.dtype, cancelling: bool, generator: torch.Generator) -> torch.Tensor:
    """(`rows`, `length`) numbers over as many powers of two as the dtype takes, whose sums depend on the order.

    In `cancelling` rows each number has its negative somewhere. What is left of their sum is rounding alone, so that a
    result in a half type shows the order, too.
    """
    device, spread = generator.device, 6 if dtype == torch.float16 else 9

    def wide(columns: int) -> torch.Tensor:
        size = torch.randn(rows, columns, generator=generator, device=device).clamp(-2, 2)
        return torch.randn(rows, columns, generator=generator, device=device).clamp(-4, 4) * torch.exp2(spread * size)

    if not cancelling:
        return wide(length).to(dtype)
    half = wide(length // 2)
    row = torch.cat([half, -half, torch.zeros(rows, length % 2, device=device)], 1)
    return row[:, torch.randperm(length, generator=generator, device=device)].to(dtype)


def _rows(addition: Addition, rows: int, length: int, number: int, generator: torch.Generator) -> torch.Tensor:
    """What is added in the draw of this number. The exponentials of a softmax are to be of a few powers of two, and so
    are the squares of a weight norm: of half types' numbers few bits would be lost else. Every fourth draw of a norm
    has a variance of about `EPSILON`: what is added to the variance shows there alone."""
    small = addition.op in _NORMS and number % 4 == 3
    if addition.op not in ("softmax", "weight_norm") and not small:
        return wide_rows(rows, length, addition.dtype, number % 2 == 0, generator)
    size = math.sqrt(EPSILON) if small else 3.0
    return (size * torch.randn(rows, length, generator=generator, device=generator.device)).to(addition.dtype)


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


def differing_share(
    addition: Addition, order: SumOrder, device: torch.device, eager: EagerSums | None = None, seed: int = 0
) -> float:
    """The share of results that differ from those of this order; 0 if eager gives the same bits in all.

    Draws inputs of the addition's shape, strides and dtype on the device. Raises what torch raises where the device
    lacks memory.
    """
    shape, reduced = addition.shape, addition.reduced
    kept = [d for d in range(len(shape)) if d not in reduced]
    length = math.prod(shape[d] for d in reduced)
    rows = math.prod(shape[d] for d in kept)
    generator = torch.Generator(device).manual_seed(seed)
    compared = max(1, min(rows, _SUMS, _COMPARED // length))
    chosen = torch.linspace(0, rows - 1, compared, device=device).long()
    draws = min(math.ceil(_SUMS / compared), _DRAWS[1], _STEPS * order.step // length)
    different = total = 0
    for number in range(max(_DRAWS[0], draws)):
        plain = _rows(addition, rows, length, number, generator)
        x = torch.empty_strided(shape, addition.stride, dtype=addition.dtype, device=device)
        x.permute(*kept, *reduced).copy_(plain.view([shape[d] for d in (*kept, *reduced)]))
        for have, want in _results(x, addition, order, chosen, eager or EagerSums()):
            same = (have == want) | (have.isnan() & want.isnan())
            different += same.numel() - int(torch.count_nonzero(same))
            total += same.numel()
    return different / total


def _results(
    x: torch.Tensor, addition: Addition, order: SumOrder, chosen: torch.Tensor, eager: EagerSums
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Pairs of eager's results in the chosen rows and those that are expected of it."""
    rows = rows_of(x, addition.turn)[chosen].float()
    length = torch.tensor(float(rows.shape[1]), device=x.device)
    if addition.op in ("sum", "mean"):
        expected = added(rows, order, chosen)
        dims = list(addition.reduced)
        yield eager.sum(x, dims, torch.float32).reshape(-1)[chosen], expected
        yield eager.sum(x, dims, x.dtype).reshape(-1)[chosen], expected.to(x.dtype)
        yield eager.mean(x, dims).reshape(-1)[chosen], (expected * (1.0 / length)).to(x.dtype)
        return
    if addition.op == "norm":
        expected = torch.sqrt(added(rows, order, chosen))
        for dtype in dict.fromkeys((torch.float32, x.dtype)):  # a half type hides most bits
            yield eager.norm(x, list(addition.reduced), dtype).reshape(-1)[chosen], expected.to(dtype)
        return
    if addition.op == "weight_norm":
        (dim,) = (d for d in range(x.dim()) if d not in addition.reduced)
        weight = x[tuple(slice(None if d == dim else 1) for d in range(x.dim()))].contiguous()
        found, norms = eager.weight_norm(x, weight, dim)
        expected = torch.sqrt(added(rows, order))
        scaled = weight.flatten()[chosen].float() * rows[:, 0] * (1.0 / expected)
        yield norms.flatten()[chosen].float(), expected
        yield rows_of(found, addition.reduced)[chosen, 0], scaled.to(x.dtype)  # one of each: a half type hides bits
        return
    if addition.op == "group_norm":
        mean, distances = welford(rows, order)
        epsilon = torch.tensor(EPSILON, dtype=x.dtype, device=x.device).float()  # its kernel takes it in this dtype
        weight, bias = x[:, 0].contiguous(), x[:, -1].contiguous()
        mean, inverse = (each.to(x.dtype) for each in (mean, torch.rsqrt(distances / length + epsilon)))
        scale = inverse.float() * weight[chosen].float()
        shift = bias[chosen].float() - scale * mean.float()
        normed = fused(scale[:, None], rows, shift[:, None]).to(x.dtype)
        have, *moments_of = eager.group_norm(x, weight, bias)
        yield have.view(x.shape)[chosen], normed
        for found, want in zip(moments_of, (mean, inverse), strict=True):
            yield found.reshape(-1)[chosen], want
        return
    if addition.op == "batch_norm":
        mean, distances = channels(rows, order)
        for have, want in zip(eager.batch_norm(x), (mean, torch.rsqrt(distances / length + EPSILON)), strict=True):
            yield have[chosen].float(), want
        return
    if addition.op == "softmax":
        powers = torch.exp(rows - rows.amax(1, keepdim=True))
        expected = powers / added(powers, order)[:, None]
        yield rows_of(eager.softmax(x, addition.reduced[0]), addition.reduced)[chosen], expected
        return
    if addition.op == "softmax_backward":
        expected = (rows - added(rows, order)[:, None]).to(x.dtype)
        found = eager.softmax_backward(x, torch.ones_like(x), addition.reduced[0])
        yield rows_of(found, addition.reduced)[chosen], expected
        return
    if addition.op in ("index_put", "cumsum"):
        expected = in_turn(rows, order) if order.kind == "rounded" else added(rows, order)
        found = eager.index_put(x) if addition.op == "index_put" else eager.cumsum(x, addition.reduced[0])
        yield found.reshape(-1)[chosen], expected.to(x.dtype)
        return
    if addition.op.endswith("norm_backward"):
        yield from _backward_results(x, rows, addition, order, chosen, eager)
        return
    normalized = [x.shape[d] for d in addition.reduced]
    if addition.op == "layer_norm":
        mean, distances = moments(rows)
        have_mean, have_inverse = eager.layer_norm(x, normalized)
        yield have_mean.reshape(-1)[chosen].float(), mean
        yield have_inverse.reshape(-1)[chosen].float(), torch.rsqrt(distances / length + EPSILON)
    else:
        inverse = eager.rms_norm(x, normalized)
        yield inverse.reshape(-1)[chosen].float(), torch.rsqrt(squares(rows) / length + EPSILON)


def _backward_results(
    grad: torch.Tensor, rows: torch.Tensor, addition: Addition, order: SumOrder, chosen: torch.Tensor, eager: EagerSums
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """As `_results`, of the backward of a norm. `rows` is what is chosen of its gradient.

    A layer norm's kernels multiply three numbers of which the last one, the inverse of the deviation, is contracted
    with the sum, and 1 here: so the product of the first two is rounded. A batch norm's multiply two.
    """
    x = grad.flip(0).contiguous() if addition.op == "layer_norm_backward" else grad.flip(0)
    by = rows_of(x, addition.reduced)[chosen].float()
    if addition.op == "batch_norm_backward":
        weight, bias = eager.batch_norm_backward(grad, x)
        rounded = order.rounds is not None
        dot = in_turn((rows * by).to(order.rounds).float(), order) if rounded else in_turn(rows, order, by)
    else:
        dot = in_turn(rows * by, order)
        normalized = [n for d, n in enumerate(x.shape) if (d in addition.reduced) == addition.along_last]
        found, weight, bias = eager.layer_norm_backward(grad, x, normalized)
        if addition.along_last:
            length = rows.shape[1]
            inner = fused(rows, torch.full_like(rows, length), -(by * dot[:, None]))
            expected = (inner - in_turn(rows, order)[:, None]) * (1.0 / torch.tensor(float(length), device=x.device))
            yield rows_of(found, addition.reduced)[chosen], expected.to(x.dtype)
            return
    yield weight.reshape(-1)[chosen], dot.to(weight.dtype)
    yield bias.reshape(-1)[chosen], in_turn(rows, order).to(bias.dtype)


def tolerated(order: SumOrder) -> float:
    """The share of results that may differ although the order is eager's: none of sums. Those of norms are emulated
    with fused multiply-adds in double precision, of which one in millions is rounded twice."""
    return 0.0 if order.kind in ("sum", "rounded") else 1e-3


@dataclass(eq=False)
class ProbedOrders:
    """Says of orders whether they are eager's on one device.

    Each order is probed once. Answers are kept in this process, and in `directory`, if there is one, by device and
    torch version. `say` is told what differs.
    """

    device: str
    say: Callable[[str], None]
    directory: Path | None = None
    known: dict[str, bool] = field(default_factory=dict)

    def __call__(self, order: SumOrder) -> bool:
        """Whether eager adds in this order here. False if that cannot be found out."""
        if order.addition is None:
            return False
        key = self._key(order.addition, order)
        if key not in self.known:
            kept = self.directory / f"{key}.json" if self.directory is not None else None
            if kept is not None and kept.exists():
                self.known[key] = json.loads(kept.read_text("utf-8"))["same"]
            else:
                self.known[key] = self._probed(order.addition, order, kept)
        return self.known[key]

    def _probed(self, addition: Addition, order: SumOrder, kept: Path | None) -> bool:
        what = f"{addition.op} of {tuple(addition.shape)} over {addition.reduced} in {_name(addition.dtype)}"
        device = torch.device(self.device)
        if device.type == "cuda":
            free_cached()  # what torch keeps is free, too
            free, _ = torch.cuda.mem_get_info(device)
            if _MEMORY * math.prod(addition.shape) * 4 > free:
                self.say(f"{what} is too large for a probe of its order here: it is left to eager")
                return False
        try:
            share = differing_share(addition, order, device)
        except torch.OutOfMemoryError:  # others have taken it meanwhile
            self.say(f"there is no memory for a probe of the order of {what}: it is left to eager")
            return False
        same = share <= tolerated(order)
        if not same:
            self.say(f"{what}: eager adds in another order than expected ({share:.1%} differ): it is left to eager")
        if kept is not None:
            write_json(kept, {**self._subject(addition, order), "differing": share, "same": same})
        return same

    def _key(self, addition: Addition, order: SumOrder) -> str:
        text = json.dumps(self._subject(addition, order), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:24]

    def _subject(self, addition: Addition, order: SumOrder) -> dict[str, object]:
        """All that an answer depends on."""
        plain = {k: v for k, v in asdict(replace(order, addition=None)).items() if k != "addition"}
        plain["rounds"] = _name(order.rounds)
        return {
            "code": CODE_VERSIONS["evaluate"],
            "device": _device_name(self.device),
            "torch": torch.__version__,
            "addition": asdict(addition) | {"dtype": _name(addition.dtype)},
            "order": plain,
        }


def _device_name(device: str) -> str:
    one = torch.device(device)
    return torch.cuda.get_device_name(one) if one.type == "cuda" else "cpu"


def _name(dtype: torch.dtype | None) -> str:
    return str(dtype).removeprefix("torch.")

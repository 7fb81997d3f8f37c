"""Interval arithmetic (Moore 1966) over a graph: in which interval the elements of each value lie, as its ops tell."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from extraction.analysis.propagate import Propagated
from extraction.analysis.values import TensorValue, ValueInfo
from storage.graph.effects import argument, base_name, operand_in_front
from storage.graph.record import Graph, Op, Ref, Value, refs
from storage.records import Input


class Interval(NamedTuple):
    """Closed; infinite ends mean unknown."""

    low: float
    high: float


ANY = Interval(-math.inf, math.inf)
UNIT = Interval(0.0, 1.0)

_SMALLEST_DIVISOR = 1e-2  # below, it only keeps a division from failing, and says nothing of how large quotients are

# The result lies within the hull of the tensor operands at these positions (views, selections, averages).
_SAME = """reshape view transpose permute expand contiguous unbind split chunk unsqueeze squeeze to float half bfloat16
    double long int type type_as clone detach dropout flatten unflatten max_pool1d max_pool2d max_pool3d mean amax amin
    adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool2d avg_pool2d roll flip repeat tile
    repeat_interleave gather index_select take_along_dim narrow select movedim swapaxes expand_as view_as reshape_as
    broadcast_to T mT tensor_split split_with_sizes permute_copy tril triu diagonal median max min pixel_shuffle
    pixel_unshuffle unfold embedding round floor ceil trunc copy_ stack cat concat concatenate where masked_fill
    masked_fill_ maximum minimum pad nan_to_num setitem cummax _to_copy _unsafe_view alias t slice index _unsafe_index
    constant_pad_nd max_pool2d_with_indices max_pool3d_with_indices _adaptive_avg_pool2d _adaptive_avg_pool3d
    adaptive_max_pool3d upsample_nearest2d lift_fresh_copy select_scatter slice_scatter""".split()
_HULL_OF = {"embedding": (1,), "where": (1, 2), "masked_fill": (0, 2), "masked_fill_": (0, 2), "maximum": (0, 1),
            "minimum": (0, 1), "setitem": (0, 2), "select_scatter": (0, 1), "slice_scatter": (0, 1)}  # fmt: skip
_INCLUDES_ZERO = frozenset("pad tril triu max_unpool2d avg_pool2d constant_pad_nd".split())
_INTERVALS = {
    UNIT: """sigmoid hardsigmoid softmax _softmax softmin one_hot rand rand_like eq ne lt le gt ge logical_and
        logical_or logical_not logical_xor isnan isinf isfinite all any contains is_ is_not not_ isin bool""",
    Interval(-1.0, 1.0): "tanh sin cos hardtanh hardtanh_ cosine_similarity softsign normalize",
    Interval(0.0, 6.0): "relu6 relu6_",
    Interval(0.0, math.inf): "var std norm vector_norm square softplus rsqrt sqrt exp2",
    Interval(-0.4, math.inf): "silu silu_ gelu mish hardswish",
    Interval(-math.inf, 0.0): "log_softmax _log_softmax logsigmoid",
    Interval(0.0, 0.0): "zeros new_zeros zeros_like",
    Interval(1.0, 1.0): "ones new_ones ones_like",
}
_FIXED = {name: interval for interval, names in _INTERVALS.items() for name in names.split()}


def intervals(graph: Graph, inputs: Sequence[Input], propagated: Propagated) -> list[Interval]:
    """For each value of a traced graph the interval that its elements lie in, as far as its ops tell."""
    known = [ANY if i.low is None or i.high is None else Interval(i.low, i.high) for i in inputs]
    graph = Graph(graph.inputs, tuple(map(operand_in_front, graph.ops)), graph.output)
    for number, op in enumerate(graph.ops):
        info = propagated.values[graph.inputs + number]
        interval = _interval(op, number, graph, known, propagated.values)
        if isinstance(info, TensorValue) and info.dtype == "bool":
            interval = UNIT
        known.append(ANY if math.isnan(interval.low + interval.high) and interval != ANY else interval)
    return known


def _interval(op: Op, number: int, graph: Graph, known: list[Interval], infos: Sequence[ValueInfo]) -> Interval:
    name = base_name(op)
    operands = [_of(value, known) for value in op.args]
    if name in _FIXED:
        return _FIXED[name]
    if name in ("relu", "relu_", "abs"):
        (low, high) = operands[0]
        return Interval(max(low, 0.0), max(high, 0.0) if name != "abs" else max(-low, high))
    if name in ("exp", "exp_"):
        return Interval(*(math.exp(min(end, 80.0)) if end > -math.inf else 0.0 for end in operands[0]))
    if name in ("add", "iadd", "add_", "sub", "isub", "sub_", "rsub", "mul", "imul", "mul_", "multiply"):
        return _arithmetic(name, op, operands)
    if name in ("truediv", "div", "div_", "itruediv") and len(operands) == 2 and operands[1].low > 0:
        low, high = operands[1]
        return _product(operands[0], Interval(1.0 / high, 1.0 / low if low >= _SMALLEST_DIVISOR else math.inf))
    if name in ("neg", "negative"):
        return Interval(-operands[0].high, -operands[0].low)
    if name in ("pow", "ipow", "pow_"):
        exponent = argument(op, 1, "exponent")
        return Interval(0.0, math.inf) if operands[0].low >= 0 or _is_even(exponent) else ANY
    if name in ("clamp", "clamp_", "clip", "clamp_min", "clamp_max"):
        return _clamped(op, name, operands[0])
    if name in ("sum", "cumsum"):
        return _summed(op, graph, operands[0], infos, number)
    if name == "arange":
        return _arange(op)
    if name in _FILLED:
        return _of(argument(op, *_FILLED[name]), known)
    if name in ("argmax", "argmin", "argsort", "nonzero"):
        return _index_range(infos[next(refs(op.args)).index])
    if name == "getitem":
        return _item(op, graph, known, infos)
    if name in ("mod", "remainder", "fmod") and len(operands) == 2 and operands[1].low > 0:
        return Interval(0.0, operands[1].high)
    if name == "floordiv" and len(operands) == 2 and operands[1].low >= 1:
        return Interval(min(operands[0].low, 0.0), max(operands[0].high, 0.0))
    if name in _SAME_NAMES:
        positions = (0,) if takes_table_first(op) else _HULL_OF.get(name, range(1))
        hull = _hull([operands[p] for p in positions if p < len(operands)])
        return _hull([hull, Interval(0.0, 0.0)]) if name in _INCLUDES_ZERO else hull
    return ANY


_SAME_NAMES = frozenset(_SAME)
_FILLED = {"full": (1, "fill_value"), "full_like": (1, "fill_value"), "new_full": (2, "fill_value"),
           "scalar_tensor": (0, "s")}  # fmt: skip


def takes_table_first(op: Op) -> bool:
    """Whether an embedding takes its table before the indices, as all but `torch.nn.functional`'s do."""
    return op.target in ("torch.embedding", "torch.ops.aten.embedding.default")


def _of(value: Value, known: list[Interval]) -> Interval:
    if isinstance(value, Ref):
        return known[value.index]
    if isinstance(value, bool | int | float):
        return Interval(float(value), float(value)) if value == value else ANY
    if isinstance(value, tuple | list):
        return _hull([_of(item, known) for item in value])
    return ANY


def _hull(parts: Sequence[Interval]) -> Interval:
    return Interval(min(p.low for p in parts), max(p.high for p in parts)) if parts else ANY


def _arithmetic(name: str, op: Op, operands: list[Interval]) -> Interval:
    if len(operands) < 2:
        return ANY
    left, right = operands[0], _product(operands[1], _of(op.kwargs.get("alpha", 1), []))
    if "mul" in name:
        if op.args[0] == op.args[1]:
            return Interval(0.0, max(left.low * left.low, left.high * left.high))
        return _product(left, right)
    if name == "rsub":
        left, right = right, left
    if "sub" in name:
        right = Interval(-right.high, -right.low)
    return Interval(left.low + right.low, left.high + right.high)


def _product(left: Interval, right: Interval) -> Interval:
    ends = [0.0 if 0.0 in (a, b) else a * b for a in left for b in right]
    return Interval(min(ends), max(ends))


def _is_even(exponent: Value) -> bool:
    return isinstance(exponent, int | float) and exponent % 2 == 0


def _clamped(op: Op, name: str, operand: Interval) -> Interval:
    low = argument(op, 1, "min") if name != "clamp_max" else None
    high = argument(op, 1 if name == "clamp_max" else 2, "max") if name != "clamp_min" else None
    lowest = float(low) if isinstance(low, int | float) else -math.inf
    highest = float(high) if isinstance(high, int | float) else math.inf
    return Interval(min(max(operand.low, lowest), highest), max(min(operand.high, highest), lowest))


def _summed(op: Op, graph: Graph, operand: Interval, infos: Sequence[ValueInfo], number: int) -> Interval:
    source, result = infos[next(refs(op.args)).index], infos[graph.inputs + number]
    if not isinstance(source, TensorValue) or not isinstance(result, TensorValue):
        return ANY
    terms = max(source.shape, default=1) if base_name(op) == "cumsum" else source.numel / max(result.numel, 1)
    return Interval(min(operand.low, operand.low * terms), max(operand.high, operand.high * terms))


def _arange(op: Op) -> Interval:
    ends = op.args if len(op.args) > 1 else (0, *op.args, *(v for k, v in op.kwargs.items() if k == "end"))
    if len(ends) < 2 or not all(isinstance(end, int | float) for end in ends[:2]):
        return ANY
    start, end = ends[:2]
    return Interval(float(min(start, end)), float(max(start, end - 1)))


def _index_range(info: ValueInfo) -> Interval:
    return Interval(0.0, float(max(info.shape, default=1) - 1)) if isinstance(info, TensorValue) else ANY


def _item(op: Op, graph: Graph, known: list[Interval], infos: Sequence[ValueInfo]) -> Interval:
    source = op.args[0]
    if not isinstance(source, Ref):
        return ANY
    if source.index >= graph.inputs:
        maker = graph.ops[source.index - graph.inputs]
        if base_name(maker) in _ITEMS and op.args[1] in _ITEMS[base_name(maker)]:
            return _ITEMS[base_name(maker)][op.args[1]]
        if op.args[1] == 1:  # the indices that come beside values
            if base_name(maker) in ("max", "min", "topk", "sort", "median", "kthvalue", "mode", "cummax", "cummin"):
                return _index_range(infos[next(refs(maker.args)).index])
            if base_name(maker) in _POOLED:
                return _flat_range(infos[next(refs(maker.args)).index], _POOLED[base_name(maker)])
    return known[source.index]


_POSITIVE_OR_ZERO = Interval(0.0, math.inf)
_ITEMS = {  # reciprocal standard deviations that normalisations keep for their gradients
    "native_layer_norm": {2: _POSITIVE_OR_ZERO}, "native_group_norm": {2: _POSITIVE_OR_ZERO},
    "native_batch_norm": {2: _POSITIVE_OR_ZERO},
}  # fmt: skip
_POOLED = {"max_pool1d_with_indices": 1, "max_pool2d_with_indices": 2, "max_pool3d_with_indices": 3,
           "adaptive_max_pool1d": 1, "adaptive_max_pool2d": 2, "adaptive_max_pool3d": 3}  # fmt: skip
"""Pooling that gives the places of its maxima: the number of dimensions that the places count through."""


def _flat_range(info: ValueInfo, dims: int) -> Interval:
    return Interval(0.0, float(max(1, math.prod(info.shape[-dims:])) - 1)) if isinstance(info, TensorValue) else ANY

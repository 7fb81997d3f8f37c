"""Value ranges: from which interval a subgraph's inputs may be drawn so that it really runs.

Two intervals are combined. One is where a value lies because of the op that made it (`extraction.analysis.intervals`):
a softmax in [0, 1], an arange in [0, n − 1]. The other is what the ops that read the value need: an index stays below
the size of what it indexes; a root, a logarithm or a divisor needs positive numbers.
"""

import math
from collections.abc import Iterator, Sequence

from extraction.analysis.intervals import ANY, UNIT, Interval, intervals, takes_table_first
from extraction.analysis.values import TensorValue, ValueInfo
from storage.graph.effects import argument, base_name, operand_in_front
from storage.graph.record import Graph, Op, Ref, Value
from storage.records import dtype_of

__all__ = ["ANY", "LARGEST_FLOAT", "UNIT", "Interval", "drawn_from", "intervals", "needs_of", "required"]

LARGEST_FLOAT = 1e4
"""Hints for floats stay within ±this: masks filled with the lowest float would overflow in half precision."""

_INDEXED = {  # op → position of the index, of what it indexes, and of the dimension (None: the first)
    "embedding": (0, 1, None), "gather": (2, 0, 1), "index_select": (2, 0, 1), "take_along_dim": (1, 0, 2),
    "scatter": (2, 0, 1), "scatter_": (2, 0, 1), "scatter_add": (2, 0, 1), "scatter_add_": (2, 0, 1),
    "index_add": (2, 0, 1), "index_copy": (2, 0, 1), "index_fill": (2, 0, 1), "scatter_reduce": (2, 0, 1),
}  # fmt: skip
_SUBSCRIPTED = frozenset("index _unsafe_index index_put index_put_ _unsafe_index_put".split())
"""ATen's subscripts: (tensor, list of indices, ...); None in the list is a whole dimension, not a new one."""
_PLACES = {  # gradients of pooling → positions of the places and of what they are places in, and its dimensions
    "max_pool2d_with_indices_backward": (7, 1, 2), "max_pool3d_with_indices_backward": (7, 1, 3),
    "adaptive_max_pool2d_backward": (2, 1, 2), "adaptive_max_pool3d_backward": (2, 1, 3),
}  # fmt: skip
_POSITIVE = frozenset("sqrt sqrt_ rsqrt rsqrt_ log log_ log2 log10 lgamma".split())
_DIVISIONS = frozenset("truediv div div_ itruediv divide true_divide".split())
_WHOLE_DIVISIONS = frozenset("floordiv ifloordiv floor_divide mod imod remainder fmod".split())
_SMALLEST_ROOTED, _SMALLEST_DIVISOR = 1e-2, 0.1  # squares of their reciprocals fit into half precision
_TRANSPARENT = frozenset(
    """reshape view transpose permute expand contiguous flatten unsqueeze squeeze to long int float clone detach
    expand_as repeat unflatten type_as _to_copy _unsafe_view alias t slice select movedim swapaxes unfold
    clamp clamp_ clip clamp_min clamp_max""".split()
)
_CHOICES = {"where": (1, 2), "minimum": (0, 1), "maximum": (0, 1), "min": (0, 1), "max": (0, 1), "masked_fill": (0, 2),
            "masked_fill_": (0, 2)}  # fmt: skip
_SHIFTS = {"add": -1, "iadd": -1, "add_": -1, "sub": 1, "isub": 1, "sub_": 1}
_FACTORS = frozenset("mul imul mul_ multiply".split())

Need = tuple[Value, Interval]


def required(graph: Graph, infos: Sequence[ValueInfo]) -> list[Interval]:
    """For each value of a subgraph the interval that the ops reading it need its elements to be in.

    `infos` describes the values of `graph`. Needs pass backwards through views, casts, choices, sums and products. They
    are sufficient, not necessary: each of two summands is asked for half, and a minuend for the upper half.
    """
    needs = [ANY] * len(infos)
    for number in reversed(range(len(graph.ops))):
        for value, interval in needs_of(graph.ops[number], needs[graph.inputs + number], infos):
            if isinstance(value, Ref):
                old = needs[value.index]
                needs[value.index] = Interval(max(old.low, interval.low), min(old.high, interval.high))
    return needs


def needs_of(op: Op, result: Interval, infos: Sequence[ValueInfo]) -> Iterator[Need]:
    """What the op needs of its operands, where `result` is needed of its result."""
    op, name = operand_in_front(op), base_name(op)
    first = op.args[0] if op.args else None
    if name in _TRANSPARENT:
        yield first, result
    elif name in _CHOICES:
        for position in _CHOICES[name]:
            yield op.args[position] if position < len(op.args) else None, result
    elif name in _SHIFTS or name in _FACTORS:
        yield from _arithmetic(op, name, result)
    elif name in _POSITIVE or _is_fractional_power(op, name):
        yield first, Interval(_SMALLEST_ROOTED, math.inf)
    elif name in _DIVISIONS and len(op.args) > 1:
        yield op.args[1], Interval(_SMALLEST_DIVISOR, math.inf)
    elif name in _WHOLE_DIVISIONS and len(op.args) > 1:
        yield op.args[1], Interval(1.0, math.inf)
    elif name == "reciprocal":
        yield first, Interval(_SMALLEST_DIVISOR, math.inf)
    elif name == "batch_norm":
        yield argument(op, 2 if "functional" in op.target else 4, "running_var"), Interval(1e-2, math.inf)
    elif name in ("_native_batch_norm_legit_no_training", "native_batch_norm_backward"):
        yield argument(op, 4, "running_var"), Interval(1e-2, math.inf)
    elif name in ("acos", "asin", "arccos", "arcsin"):
        yield first, Interval(-1.0, 1.0)
    elif name in _INDEXED:
        yield from _indexed(op, name, infos)
    elif name in ("getitem", "setitem") and isinstance(first, Ref):
        if name == "getitem" and isinstance(infos[first.index], TensorValue):
            yield first, result
        yield from _subscripts(first, op.args[1] if isinstance(op.args[1], tuple) else (op.args[1],), infos)
    elif name in _SUBSCRIPTED and isinstance(first, Ref):
        indices = argument(op, 1, "indices") or ()
        yield from _subscripts(first, [slice(None) if item is None else item for item in indices], infos)
    elif name in _PLACES:
        yield from _places(op, name, infos)
    elif name == "embedding_dense_backward":
        rows = argument(op, 2, "num_weights")
        yield argument(op, 1, "indices"), Interval(0.0, float(rows - 1)) if isinstance(rows, int) else ANY
    elif name == "one_hot":
        classes = argument(op, 1, "num_classes", -1)
        yield first, Interval(0.0, float(classes - 1) if isinstance(classes, int) and classes > 0 else 1.0)


def _arithmetic(op: Op, name: str, result: Interval) -> Iterator[Need]:
    """Needs of summands and factors; none where the result's need does not split."""
    if len(op.args) != 2 or result == ANY:
        return
    left, right = op.args
    if isinstance(right, Ref) and type(left) in (int, float) and name not in ("sub", "isub", "sub_"):
        left, right = right, left
    if type(right) in (int, float):
        if name in _SHIFTS:
            yield left, Interval(result.low + _SHIFTS[name] * right, result.high + _SHIFTS[name] * right)
        elif right > 0:
            yield left, Interval(result.low / right, result.high / right)
    elif isinstance(left, Ref) and isinstance(right, Ref):
        if "add" in name:
            half = Interval(result.low / 2, result.high / 2)
        elif "mul" in name and result.low >= 0:
            half = Interval(math.sqrt(result.low), math.sqrt(result.high))
        elif "sub" in name and math.isfinite(result.low) and math.isfinite(result.high):
            middle = (result.high - result.low) // 2
            yield left, Interval(result.low + middle, result.high)
            yield right, Interval(0.0, middle)
            return
        else:
            return
        yield left, half
        yield right, half


def _is_fractional_power(op: Op, name: str) -> bool:
    exponent = argument(op, 1, "exponent") if name in ("pow", "pow_") else None
    return isinstance(exponent, int | float) and (exponent < 0 or exponent % 1 != 0)


def _indexed(op: Op, name: str, infos: Sequence[ValueInfo]) -> Iterator[Need]:
    index_at, source_at, dim_at = (1, 0, None) if takes_table_first(op) else _INDEXED[name]
    index = argument(op, index_at, {"take_along_dim": "indices", "embedding": "input"}.get(name, "index"))
    source = argument(op, source_at, "weight" if name == "embedding" else "input")
    dim = 0 if dim_at is None else argument(op, dim_at, "dim")
    info = infos[source.index] if isinstance(source, Ref) else None
    if isinstance(info, TensorValue) and isinstance(dim, int) and info.shape:
        yield index, Interval(0.0, float(info.shape[dim] - 1))


def _subscripts(source: Ref, subscript: Sequence[Value], infos: Sequence[ValueInfo]) -> Iterator[Need]:
    info = infos[source.index]
    if not isinstance(info, TensorValue):
        return
    dim = 0
    used = sum(item is not None and item is not Ellipsis for item in subscript)
    for item in subscript:
        if item is Ellipsis:
            dim += len(info.shape) - used
        elif item is not None:
            if isinstance(item, Ref) and dim < len(info.shape):
                yield item, Interval(0.0, float(info.shape[dim] - 1))
            dim += 1


def _places(op: Op, name: str, infos: Sequence[ValueInfo]) -> Iterator[Need]:
    places_at, source_at, dims = _PLACES[name]
    source = argument(op, source_at, "self")
    info = infos[source.index] if isinstance(source, Ref) else None
    if isinstance(info, TensorValue):
        yield argument(op, places_at, "indices"), Interval(0.0, float(max(1, math.prod(info.shape[-dims:])) - 1))


def drawn_from(info: TensorValue, made: Interval, needed: Interval) -> dict[str, float | None]:
    """The hint columns of an `Input` for a tensor that lies in `made` and that its readers need in `needed`.

    Integers and booleans always get bounds; floats get bounds where something is known, else mean 0 and deviation 1.
    """
    low, high = max(made.low, needed.low), min(made.high, needed.high)
    if low > high:  # a guessed range contradicts a need: the need wins, so that the graph runs
        low, high = needed
    dtype = dtype_of(info.dtype)
    if not dtype.is_floating_point and not dtype.is_complex:
        low = 0.0 if low == -math.inf else math.ceil(low)
        high = max(low, 1.0) if high == math.inf else math.floor(high)
        if info.dtype == "bool":
            low, high = 0.0, 1.0
        return {"low": float(low), "high": float(max(low, high)), "mean": None, "std": None}
    if low == -math.inf and high == math.inf:
        return {"low": None, "high": None, "mean": 0.0, "std": 1.0}
    low, high = (min(max(end, -LARGEST_FLOAT), LARGEST_FLOAT) if math.isfinite(end) else end for end in (low, high))
    low = high - 2.0 if low == -math.inf else low
    high = low + 2.0 if high == math.inf else high
    return {"low": low, "high": high, "mean": None, "std": None}

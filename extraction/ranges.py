"""Value ranges: from which interval a subgraph's inputs may be drawn so that it really runs.

Two views are combined. From above, interval arithmetic (Moore 1966) over the model's graph: what the op that made a
value says about it (a softmax lies in [0, 1], an arange in [0, n − 1]). From below, what the ops that read the value
need: an index stays below the size of what it indexes, a root or a logarithm wants positive numbers.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from extraction.propagate import Propagated
from extraction.values import TensorValue, ValueInfo
from storage.effects import argument, base_name
from storage.graph import Graph, Op, Ref, Value, refs
from storage.records import Input, dtype_of


class Interval(NamedTuple):
    """Closed; infinite ends mean unknown."""

    low: float
    high: float


ANY = Interval(-math.inf, math.inf)
UNIT = Interval(0.0, 1.0)
LARGEST_FLOAT = 1e4
"""Hints for floats stay within ±this: masks filled with the lowest float would overflow in half precision."""

# The result lies within the hull of the tensor operands at these positions (views, selections, averages).
_SAME = """reshape view transpose permute expand contiguous unbind split chunk unsqueeze squeeze to float half bfloat16
    double long int type type_as clone detach dropout flatten unflatten max_pool1d max_pool2d max_pool3d mean amax amin
    adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool2d avg_pool2d roll flip repeat tile
    repeat_interleave gather index_select take_along_dim narrow select movedim swapaxes expand_as view_as reshape_as
    broadcast_to T mT tensor_split split_with_sizes permute_copy tril triu diagonal median max min pixel_shuffle
    pixel_unshuffle unfold embedding round floor ceil trunc copy_ stack cat concat concatenate where masked_fill
    masked_fill_ maximum minimum pad nan_to_num setitem cummax""".split()
_HULL_OF = {"embedding": (1,), "where": (1, 2), "masked_fill": (0, 2), "masked_fill_": (0, 2), "maximum": (0, 1),
            "minimum": (0, 1), "setitem": (0, 2)}  # fmt: skip
_INCLUDES_ZERO = frozenset("pad tril triu max_unpool2d avg_pool2d".split())
_INTERVALS = {
    UNIT: """sigmoid hardsigmoid softmax softmin one_hot rand rand_like eq ne lt le gt ge logical_and logical_or
        logical_not logical_xor isnan isinf isfinite all any contains is_ is_not not_ isin bool""",
    Interval(-1.0, 1.0): "tanh sin cos hardtanh hardtanh_ cosine_similarity softsign normalize",
    Interval(0.0, 6.0): "relu6 relu6_",
    Interval(0.0, math.inf): "var std norm vector_norm square softplus rsqrt sqrt exp2",
    Interval(-0.4, math.inf): "silu silu_ gelu mish hardswish",
    Interval(-math.inf, 0.0): "log_softmax logsigmoid",
    Interval(0.0, 0.0): "zeros new_zeros zeros_like",
    Interval(1.0, 1.0): "ones new_ones ones_like",
}
_FIXED = {name: interval for interval, names in _INTERVALS.items() for name in names.split()}


def intervals(graph: Graph, inputs: Sequence[Input], propagated: Propagated) -> list[Interval]:
    """For each value of a traced graph the interval that its elements lie in, as far as its ops tell."""
    known = [ANY if i.low is None or i.high is None else Interval(i.low, i.high) for i in inputs]
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
        return _product(operands[0], Interval(1.0 / operands[1].high, 1.0 / operands[1].low))
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
    if name in ("full", "full_like", "new_full"):
        return _of(argument(op, 1 if name != "new_full" else 2, "fill_value"), known)
    if name in ("argmax", "argmin", "argsort", "nonzero"):
        return _index_range(infos[next(refs(op.args)).index])
    if name == "getitem":
        return _item(op, graph, known, infos)
    if name in ("mod", "remainder", "fmod") and len(operands) == 2 and operands[1].low > 0:
        return Interval(0.0, operands[1].high)
    if name == "floordiv" and len(operands) == 2 and operands[1].low >= 1:
        return Interval(min(operands[0].low, 0.0), max(operands[0].high, 0.0))
    if name in _SAME_NAMES:
        positions = _HULL_OF.get(name, range(1))
        hull = _hull([operands[p] for p in positions if p < len(operands)])
        return _hull([hull, Interval(0.0, 0.0)]) if name in _INCLUDES_ZERO else hull
    return ANY


_SAME_NAMES = frozenset(_SAME)


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
    if source.index >= graph.inputs and op.args[1] == 1:  # the indices that come beside values
        maker = graph.ops[source.index - graph.inputs]
        if base_name(maker) in ("max", "min", "topk", "sort", "median", "kthvalue", "mode", "cummax", "cummin"):
            return _index_range(infos[next(refs(maker.args)).index])
    return known[source.index]


_INDEXED = {  # op → position of the index, of what it indexes, and of the dimension (None: the first)
    "embedding": (0, 1, None), "gather": (2, 0, 1), "index_select": (2, 0, 1), "take_along_dim": (1, 0, 2),
    "scatter": (2, 0, 1), "scatter_": (2, 0, 1), "scatter_add": (2, 0, 1), "scatter_add_": (2, 0, 1),
    "index_add": (2, 0, 1), "index_copy": (2, 0, 1), "index_fill": (2, 0, 1),
}  # fmt: skip
_POSITIVE = frozenset("sqrt sqrt_ rsqrt rsqrt_ log log_ log2 log10 lgamma".split())
_TRANSPARENT = frozenset(
    """reshape view transpose permute expand contiguous flatten unsqueeze squeeze to long int float clone detach
    expand_as repeat unflatten type_as""".split()
)


def required(graph: Graph, infos: Sequence[ValueInfo]) -> list[Interval]:
    """For each value of a subgraph the interval that the ops reading it need its elements to be in.

    `infos` describes the values of `graph`. Needs pass backwards through views and casts, not through arithmetic.
    """
    needs = [ANY] * len(infos)

    def narrow(ref: Value, interval: Interval) -> None:
        if isinstance(ref, Ref):
            old = needs[ref.index]
            needs[ref.index] = Interval(max(old.low, interval.low), min(old.high, interval.high))

    for number in reversed(range(len(graph.ops))):
        op = graph.ops[number]
        name = base_name(op)
        if name in _TRANSPARENT and op.args:
            narrow(op.args[0], needs[graph.inputs + number])
        elif op.args and (name in _POSITIVE or _is_fractional_power(op, name)):
            narrow(op.args[0], Interval(1e-2, math.inf))
        elif name == "batch_norm":
            narrow(argument(op, 2 if "functional" in op.target else 4, "running_var"), Interval(1e-2, math.inf))
        elif name in ("acos", "asin", "arccos", "arcsin"):
            narrow(op.args[0], Interval(-1.0, 1.0))
        elif name in _INDEXED:
            for value, interval in _indexed(op, name, infos):
                narrow(value, interval)
        elif name in ("getitem", "setitem") and isinstance(op.args[0], Ref):
            for value, interval in _subscripts(op, infos):
                narrow(value, interval)
        elif name == "one_hot":
            classes = argument(op, 1, "num_classes", -1)
            narrow(op.args[0], Interval(0.0, float(classes - 1) if isinstance(classes, int) and classes > 0 else 1.0))
    return needs


def _is_fractional_power(op: Op, name: str) -> bool:
    exponent = argument(op, 1, "exponent") if name in ("pow", "pow_") else None
    return isinstance(exponent, float) and (exponent < 0 or not exponent.is_integer())


def _indexed(op: Op, name: str, infos: Sequence[ValueInfo]) -> list[tuple[Value, Interval]]:
    index_at, source_at, dim_at = _INDEXED[name]
    index = argument(op, index_at, "index" if name != "take_along_dim" else "indices")
    source = argument(op, source_at, "weight" if name == "embedding" else "input")
    dim = 0 if dim_at is None else argument(op, dim_at, "dim")
    info = infos[source.index] if isinstance(source, Ref) else None
    if not isinstance(info, TensorValue) or not isinstance(dim, int) or not info.shape:
        return []
    return [(index, Interval(0.0, float(info.shape[dim] - 1)))]


def _subscripts(op: Op, infos: Sequence[ValueInfo]) -> list[tuple[Value, Interval]]:
    info = infos[op.args[0].index]
    if not isinstance(info, TensorValue):
        return []
    subscript = op.args[1] if isinstance(op.args[1], tuple) else (op.args[1],)
    dim, found = 0, []
    used = sum(item is not None and item is not Ellipsis for item in subscript)
    for item in subscript:
        if item is Ellipsis:
            dim += len(info.shape) - used
        elif item is not None:
            if isinstance(item, Ref) and dim < len(info.shape):
                found.append((item, Interval(0.0, float(info.shape[dim] - 1))))
            dim += 1
    return found


def drawn_from(info: TensorValue, made: Interval, needed: Interval) -> dict[str, float | None]:
    """The hint columns of an `Input` for a tensor that lies in `made` and that its readers need in `needed`.

    Integers and booleans always get bounds; floats get bounds where something is known, else mean 0 and deviation 1.
    """
    low, high = max(made.low, needed.low), min(made.high, needed.high)
    if low > high:  # they contradict each other where ranges were guessed; what is needed to run wins
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

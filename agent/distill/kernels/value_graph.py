"""A kernel as a graph of values: what TorchInductor's loop bodies compute, one value per distinct operation."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch
from torch._inductor.ops_handler import DefaultHandler
from torch._inductor.virtualized import OpsValue

from agent.distill.eager.sum_order import SumOrder
from agent.distill.kernels.index_expressions import Unsupported, simplified, within
from agent.distill.kernels.triton_ops import EXACT, EXPRESSIONS, IN_FULL, INTEGER_OR_FLOAT, ROUND_SCALARS, TO_BOOL

HALF = (torch.float16, torch.bfloat16)
_DTYPES = frozenset(
    (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.bool)
    + (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
)
REDUCTIONS = frozenset("sum prod max min any argmax argmin xor_sum".split())
_SCANS = {"add": "sum", "mul": "prod"}
"""What a scan combines two elements with, and what its `Value.detail` is called."""

ROW = sympy.Symbol("row", integer=True, nonnegative=True)
COLUMN = sympy.Symbol("column", integer=True, nonnegative=True)


@dataclass(eq=False)
class Value:
    """The result of one operation at one (row, column) of a kernel.

    `op` is an element operation of `EXPRESSIONS`, or "load", "index", "constant", "cast", "narrow" (rounding to a half
    type), "reduce", or "scan" (a reduction up to each column). `order` is how eager adds up a reduction, if that is
    known. `by_row` and `by_column` say what the value varies with. `depth`: how many reductions, one after another, it
    needs. `dtype` is the type that it is computed in: half types are computed in float32. `half` is the half type that
    holds it exactly, None if there is none.
    """

    number: int
    op: str
    args: tuple["Value", ...]
    dtype: torch.dtype
    detail: Any = None
    index: sympy.Expr | None = None
    half: torch.dtype | None = None
    order: SumOrder | None = None
    by_row: bool = False
    by_column: bool = False
    depth: int = 0


@dataclass(frozen=True)
class StoreValue:
    """Writes a value to element `index` of a buffer."""

    buffer: str
    index: sympy.Expr
    value: Value


@dataclass
class Body:
    """What a kernel does over `ranges` (rows, and columns that are reduced or swept), as it is captured.

    `indirect` are the values of which an index is made; `ranges` also has the lengths of what they index.
    """

    ranges: dict[sympy.Symbol, int]
    values: dict[tuple, Value] = field(default_factory=dict)
    stores: list[StoreValue] = field(default_factory=list)
    stored: dict[str, Value] = field(default_factory=dict)
    indirect: dict[sympy.Symbol, Value] = field(default_factory=dict)

    def value(self, op: str, args: tuple[Value, ...], dtype: torch.dtype, **details: Any) -> Value:
        """The value of this operation on these operands, made only once. `details` are further fields of Value."""
        key = (op, *(a.number for a in args), dtype, *sorted(details.items(), key=lambda item: item[0]))
        if key not in self.values:
            index = details.get("index")
            symbols = index.free_symbols if index is not None else set()
            args += tuple(self.indirect[s] for s in sorted(symbols & self.indirect.keys(), key=str))
            value = Value(len(self.values), op, args, dtype, **details)
            value.by_row = ROW in symbols or any(a.by_row for a in args)
            value.by_column = COLUMN in symbols or any(a.by_column for a in args)
            value.depth = max((a.depth for a in args), default=0)
            if op == "reduce":
                value.by_column = False
                value.depth += 1
            elif op == "scan":
                value.by_column = True
            self.values[key] = value
        return self.values[key]


class Capture(DefaultHandler):
    """TorchInductor's operations, noted in a Body instead of printed.

    `buffers` gives the dtype of every buffer that a body reads, `order` how eager adds what the loop body at hand adds.
    `divides`: eager divides there also by constants, where its divisions multiply by the reciprocal otherwise.
    Raises Unsupported on operations that this author does not write.
    """

    def __init__(self, body: Body, buffers: dict[str, torch.dtype]) -> None:
        self.body = body
        self.buffers = buffers
        self.mask: Value | None = None
        self.order: SumOrder | None = None
        self.divides = False
        self.mutates: dict[str, Sequence[str]] = {}  # what a node writes → buffers whose memory that is
        self._constants: dict[int, set[torch.dtype]] = {}  # number of a constant → the dtypes that it was asked for in

    def _default(self, name: str, args: tuple, kwargs: dict[str, Any]) -> Any:
        floating = next((a.dtype for a in args if isinstance(a, Value) and a.dtype.is_floating_point), None)
        if floating is not None:  # a pool's divisor is a plain number
            args = tuple(self.constant(a, floating) if type(a) in (int, float) else a for a in args)
        if name not in EXPRESSIONS or kwargs or not all(isinstance(a, Value) for a in args):
            raise Unsupported(f"TorchInductor's operation {name}")
        dtype = _dtype_of(name, args)
        half = _common_half(args) if name in EXACT else None
        if name in ("maximum", "minimum", "relu") and any(a.dtype == torch.bool for a in args):
            raise Unsupported(f"{name} of bools")
        first = 1 if name == "where" else 0
        if name in ROUND_SCALARS:
            args = tuple(map(self._in_half, args))
        if name not in TO_BOOL:
            args = args[:first] + tuple(self._promoted(a, dtype) for a in args[first:])
        if name == "add" and (contracted := self._normalisation(args)):
            return contracted
        by_constant = name == "truediv" and args[1].op == "constant" and not self.divides
        if dtype == torch.float32 and name in IN_FULL and not by_constant:
            name = IN_FULL[name]
        if name == "pow" and dtype == torch.float32 and args[1].op == "constant" and args[1].detail == -0.5:
            name, args = "rsqrt", args[:1]  # as eager computes it
        return self.body.value(name, args, dtype, half=half)

    def _normalisation(self, args: tuple[Value, ...]) -> Value | None:
        """`(x - mean) * rsqrt(var + eps) * w + b` rounded as in eager's CUDA kernels, which contract it.

        Batch norm is `fma(w * (x - mean), r, b)` there, bit for bit; layer norm `fma((x - mean) * r, w, b)`. A last bit
        of difference would not matter by itself, but a half type or a TF32 convolution behind it magnifies it.
        """
        scaled, shift = args
        if scaled.op != "mul" or scaled.args[0].op != "mul":
            return None
        (centred, inverse), weight = scaled.args[0].args, scaled.args[1]
        inverse = self._inverse_root(inverse)
        if centred.op != "sub" or inverse is None:
            return None
        if inverse.depth:
            normalised = self.body.value("mul", (centred, inverse), centred.dtype)
            return self.body.value("fma", (normalised, weight, shift), shift.dtype)
        product = self.body.value("mul", (weight, centred), centred.dtype)
        return self.body.value("fma", (product, inverse, shift), shift.dtype)

    def _inverse_root(self, value: Value) -> Value | None:
        """rsqrt(x), as eager computes it; torch 2.11 lowers batch norm's to 1 / sqrt(x) * 1."""
        if value.op == "mul" and value.args[1].op == "constant" and value.args[1].detail == 1.0:
            value = value.args[0]
        if value.op == "reciprocal_rn" and value.args[0].op == "sqrt_rn":
            return self.body.value("rsqrt", value.args[0].args, value.dtype)
        return value if value.op == "rsqrt" else None

    def _promoted(self, value: Value, dtype: torch.dtype) -> Value:
        """Bools and integers become numbers of the operation's type; literals need no conversion."""
        convert = value.dtype == torch.bool or (dtype.is_floating_point and not value.dtype.is_floating_point)
        if convert and value.dtype != dtype and value.op != "constant":
            return self.body.value("cast", (value,), dtype)
        return value

    def constant(self, value: float, dtype: torch.dtype) -> Value:
        found = self._constant(value, dtype)
        self._constants.setdefault(found.number, set()).add(dtype)
        return found

    def _constant(self, value: float, dtype: torch.dtype) -> Value:
        number = float(value) if dtype.is_floating_point else value
        if dtype == torch.bool:
            number = bool(value)
        return self.body.value("constant", (), _computed(dtype), detail=number)

    def _in_half(self, value: Value) -> Value:
        """A scalar as eager takes it beside elements of a half type: rounded to that type. TorchInductor of torch 2.11
        does not round it, so that a comparison differs for an element that equals the rounded scalar."""
        dtypes = self._constants.get(value.number, set()) if value.op == "constant" else set()
        if not dtypes & set(HALF):
            return value
        if len(dtypes) > 1:
            raise Unsupported("a constant that is compared in one dtype and used in another")
        return self._constant(torch.tensor(value.detail, dtype=next(iter(dtypes))).item(), torch.float32)

    def index_expr(self, expr: sympy.Expr, dtype: torch.dtype) -> Value:
        index = simplified(expr, self.body.ranges)
        if not within(index, self.body.ranges, dtype):  # source counts in 32 bits, and neither wraps around nor rounds
            raise Unsupported(f"positions that {dtype} or 32 bits may not hold")
        return self.body.value("index", (), _computed(dtype), index=index)

    def load(self, name: str, index: sympy.Expr) -> Value:
        if name in self.body.stored:
            return self.body.stored[name]
        if name not in self.buffers:
            raise Unsupported("a kernel that reads a constant tensor")
        dtype = self.buffers[name]
        if dtype not in _DTYPES:
            raise Unsupported(f"loads of {dtype}")
        half = dtype if dtype in HALF else None
        args = () if self.mask is None else (self.mask,)
        index = simplified(index, self.body.ranges)
        masked = self.mask is not None
        return self.body.value("load", args, _computed(dtype), detail=(name, dtype, masked), index=index, half=half)

    def store(self, name: str, index: sympy.Expr, value: Value, mode: str | None = None) -> None:
        if mode is not None:
            raise Unsupported(f"stores that accumulate ({mode})")
        self._store(name, index, value)

    def store_reduction(self, name: str, index: sympy.Expr, value: Value) -> None:
        self._store(name, index, value)

    def _store(self, name: str, index: sympy.Expr, value: Value) -> None:
        dtype = self.buffers[name]
        if dtype not in _DTYPES:
            raise Unsupported(f"stores of {dtype}")
        self.body.stored |= dict.fromkeys((name, *self.mutates.get(name, ())), self._to(value, dtype))
        if value.op == "narrow" and value.detail == dtype:
            (value,) = value.args  # storing rounds
        self.body.stores.append(StoreValue(name, simplified(index, self.body.ranges), value))

    def to_dtype(self, x: Value, dtype: torch.dtype, src_dtype: Any = None, use_compute_types: bool = True) -> Value:
        return self._to(x, dtype)

    def _to(self, x: Value, dtype: torch.dtype) -> Value:
        if dtype not in _DTYPES:
            raise Unsupported(f"conversion to {dtype}")
        if dtype in HALF and x.op == "constant":
            return self._constant(x.detail, torch.float32)  # eager keeps scalar operands in float32
        if dtype in HALF:
            x = self._cube_in_half(x, dtype)
            exact = x.half == dtype or x.dtype == torch.bool
            as_float = x if x.dtype.is_floating_point else self.body.value("cast", (x,), torch.float32, half=dtype)
            if exact:
                return as_float
            return self.body.value("narrow", (as_float,), torch.float32, detail=dtype, half=dtype)
        if x.dtype == dtype:
            return x
        if dtype == torch.bool:
            zero = self.constant(0, x.dtype)
            return self.body.value("ne", (x, zero), torch.bool)
        return self.body.value("cast", (x,), dtype)

    def _cube_in_half(self, x: Value, dtype: torch.dtype) -> Value:
        """`x ** 3` of a half type is rounded after each product by eager's CUDA kernel."""
        if x.op != "mul" or x.args[0].op != "mul":
            return x
        (first, second), third = x.args[0].args, x.args[1]
        if not first is second is third or first.half != dtype:
            return x
        square = self.body.value("narrow", (x.args[0],), torch.float32, detail=dtype, half=dtype)
        return self.body.value("mul", (square, third), torch.float32)

    def trunc_to_int(self, x: Value, dtype: torch.dtype) -> Value:
        return self.body.value("cast", (x,), dtype)

    def floor_to_int(self, x: Value, dtype: torch.dtype) -> Value:
        return self.body.value("cast", (self.body.value("floor", (x,), x.dtype),), dtype)

    def ceil_to_int(self, x: Value, dtype: torch.dtype) -> Value:
        return self.body.value("cast", (self.body.value("ceil", (x,), x.dtype),), dtype)

    def round_to_int(self, x: Value, dtype: torch.dtype) -> Value:
        return self.body.value("cast", (self.body.value("round", (x,), x.dtype),), dtype)

    def masked(self, mask: Value, body: Any, other: float) -> Value:
        outer = self.mask
        self.mask = mask if outer is None else self.body.value("logical_and", (outer, mask), torch.bool)
        try:
            inside = body()
        finally:
            self.mask = outer
        fill = self.constant(other, inside.dtype)
        half = inside.half if _exact_in_half(fill) else None
        return self.body.value("where", (mask, inside, fill), inside.dtype, half=half)

    def indirect_indexing(self, x: Value, size: Any, check: bool = True, wrap_neg: bool = True) -> sympy.Symbol:
        if wrap_neg:
            length = self.constant(int(size), x.dtype)
            negative = self.body.value("lt", (x, self.constant(0, x.dtype)), torch.bool)
            wrapped = self.body.value("add", (x, length), x.dtype)
            x = self.body.value("where", (negative, wrapped, x), x.dtype)
        symbol = sympy.Symbol(f"indirect{x.number}", integer=True, nonnegative=True)
        self.body.indirect[symbol] = x
        self.body.ranges[symbol] = int(size)  # else eager raises
        return symbol

    def bucketize(
        self,
        values: Value,
        boundaries: tuple[str, sympy.Expr, sympy.Expr, sympy.Expr],
        boundary_indices: Value | int,
        indexing_dtype: torch.dtype,
        right: bool,
        sorter: tuple[str, sympy.Expr] | None = None,
        sorter_indices: Value | None = None,
    ) -> Value:
        """How many of the sorted boundaries are below a value, with `right` also those that are equal. What is not a
        number comes behind all of them. A bisection of so many steps as their number has bits."""
        name, length, stride = boundaries[0], int(boundaries[1]), boundaries[3]
        if sorter is not None or name in self.body.stored:
            raise Unsupported("a search in what is not sorted in memory")
        first = self.indirect_indexing(boundary_indices, 2**31, wrap_neg=False) if boundary_indices != 0 else 0
        many, one = (self.constant(number, torch.int64) for number in (length, 1))
        found = self.constant(0, torch.int64)
        for bit in reversed(range(length.bit_length())):
            further = self.body.value("add", (found, self.constant(2**bit, torch.int64)), torch.int64)
            least = self.body.value("minimum", (further, many), torch.int64)
            place = self.body.value("sub", (least, one), torch.int64)
            boundary = self.load(name, first + stride * self.indirect_indexing(place, length, wrap_neg=False))
            beyond = self._default("gt" if right else "ge", (boundary, values), {})
            there = self.body.value("le", (further, many), torch.bool)
            below = self.body.value("logical_not", (beyond,), torch.bool)
            goes_on = self.body.value("logical_and", (there, below), torch.bool)
            found = self.body.value("where", (goes_on, further, found), torch.int64)
        return self._to(found, indexing_dtype)

    def check_bounds(self, expr: sympy.Expr, size: sympy.Expr, lower: bool, upper: bool) -> None:
        """Checks nothing: on indices out of bounds eager raises, and there is no result to compare with."""

    def reduction(self, dtype: torch.dtype, src_dtype: torch.dtype, kind: str, value: Any) -> Any:
        if kind == "welford_reduce":
            count = self.constant(float(self.body.ranges[COLUMN]), torch.float32)
            mean = self.body.value("truediv", (self._reduce("sum", value, dtype), count), value.dtype)
            distance = self.body.value("sub", (value, mean), value.dtype)
            square = self.body.value("square", (distance,), value.dtype)
            return mean, self._reduce("sum", square, dtype), count
        if kind == "online_softmax_reduce":
            highest = self._reduce("max", value, dtype)
            distance = self.body.value("sub", (value, highest), value.dtype)
            return highest, self._reduce("sum", self.body.value("exp", (distance,), value.dtype), dtype)
        if kind not in REDUCTIONS or not isinstance(value, Value):
            raise Unsupported(f"TorchInductor's reduction {kind}")
        return self._reduce(kind, value, dtype)

    def _reduce(self, kind: str, value: Value, dtype: torch.dtype) -> Value:
        result = torch.int64 if kind.startswith("arg") else _computed(dtype)
        if kind == "any":
            result = torch.bool
        elif not kind.startswith("arg") and value.dtype != result:
            value = self.body.value("cast", (value,), result)
        if kind in ("max", "min") and result == torch.bool:  # which Triton has no lowest or highest of
            raise Unsupported(f"the {kind} of bools")
        half = value.half if kind in ("max", "min") else None
        order = self.order if kind == "sum" and result == torch.float32 else None
        return self.body.value("reduce", (value,), result, detail=kind, half=half, order=order)

    def scan(self, dtypes: Any, combine_fn: Any, values: tuple[Value, ...]) -> tuple[Value, ...]:
        value, *others = values
        operands = tuple(self.body.value("operand", (), value.dtype, detail=n) for n in range(2))
        combined = None if others else combine_fn((operands[0],), (operands[1],))[0]
        combined = combined.value if isinstance(combined, OpsValue) else combined
        kind = _SCANS.get(combined.op) if combined is not None and combined.args == operands else None
        if kind is None:
            raise Unsupported("a scan that neither adds nor multiplies")
        result = _computed(dtypes[0])
        value = value if value.dtype == result else self.body.value("cast", (value,), result)
        if self.body.ranges[COLUMN] == 1:
            return (value,)
        order = self.order if kind == "sum" and result == torch.float32 else None
        return (self.body.value("scan", (value,), result, detail=kind, order=order),)


def _computed(dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if dtype in HALF else dtype


def _dtype_of(name: str, args: tuple[Value, ...]) -> torch.dtype:
    if name in TO_BOOL:
        return torch.bool
    operands = args[1:] if name == "where" else args
    dtype = operands[0].dtype
    for operand in operands[1:]:
        dtype = torch.promote_types(dtype, operand.dtype)
    if name not in INTEGER_OR_FLOAT and not dtype.is_floating_point:
        return torch.float32
    return dtype


def _common_half(args: tuple[Value, ...]) -> torch.dtype | None:
    """The half type that holds every operand exactly, if there is one."""
    floats = [a for a in args if a.dtype.is_floating_point]
    halves = {a.half for a in floats if not _exact_in_half(a)}
    return halves.pop() if len(halves) == 1 else None


def _exact_in_half(value: Value) -> bool:
    """Small integers and infinities are the same in every float type."""
    if value.op != "constant":
        return False
    number = float(value.detail)
    return math.isinf(number) or (abs(number) <= 256 and number.is_integer())

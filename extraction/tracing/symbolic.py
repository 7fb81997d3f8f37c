"""Sizes in a graph that dynamo captured with symbolic dimensions: symbols with names, and numbers as constants.

dynamo hands sizes to a graph as inputs of their own, and computes with them in nodes between those of the tensors. A
record has no such nodes: each number becomes a constant, an expression of `storage.graph.symbols` where it follows a
size.

A symbol is called after a dimension of the example inputs (`extraction.examples.inputs`). Dimensions of one name are
one symbol; where the model needs dimensions of two names to be equal, the first name stands for both. A dimension keeps
its size in this trace where the model asks for that size, or where some number that follows it has no expression.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv, ShapeGuard
from torch.utils._sympy.functions import Mod, PythonMod

from extraction.tracing.expressions import Untranslatable, number_at, text_of
from storage.graph.record import GraphError, Sym, Value

Dims = Sequence[str | None]
"""For each dimension of a tensor the name of its size if that may change, else None."""
Layout = tuple[tuple[str, ...], tuple[str, ...]]
"""Expressions of the shape and of the stride of a tensor."""

MAX_CONDITIONS = 40
"""A size with more conditions becomes a number. Dynamo's time grows with their square, and a trace with so many holds
for hardly any other size."""

_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


@dataclass(frozen=True)
class Sizes:
    """The symbols of one captured graph.

    `names` are dynamo's symbols that may change, as symbols with our names; `values` are all of dynamo's, with their
    sizes in this trace. `fixed` says for each named dimension that cannot change why.
    """

    names: Mapping[sympy.Symbol, sympy.Symbol]
    values: Mapping[sympy.Symbol, int]
    fixed: tuple[str, ...] = ()

    @property
    def symbols(self) -> dict[str, int]:
        """Name → size in this trace."""
        return {ours.name: self.values[symbol] for symbol, ours in self.names.items()}

    def expr(self, number: Any) -> sympy.Basic:
        """The expression of one of dynamo's symbolic numbers in our symbols."""
        expr = number.node.expr
        ours = {s: self.names.get(s, sympy.Integer(self.values[s])) for s in expr.free_symbols if s in self.values}
        return expr.xreplace(ours)

    def without(self, names: frozenset[str], reason: str) -> "Sizes":
        """The same where the symbols of these names are numbers, because of `reason`."""
        kept = {symbol: ours for symbol, ours in self.names.items() if ours.name not in names}
        fixed = tuple(f"{name} = {self.symbols[name]}: {reason}" for name in sorted(names))
        return Sizes(kept, self.values, self.fixed + fixed)


class Constants:
    """The constants that stand for the numbers of a graph. Each expression is translated once."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        self.symbols = sizes.symbols
        self._known: dict[sympy.Basic, bool | int | float | Sym] = {}

    def of(self, value: Any) -> Value:
        """The constant for a number, or a tuple of them. Raises Untranslatable where one has no expression."""
        if isinstance(value, tuple | list):
            return tuple(self.of(item) for item in value)
        if not isinstance(value, _SYMBOLIC):
            return value
        key = value.node.expr
        if key not in self._known:
            expr = self.sizes.expr(value)
            if unknown := {symbol.name for symbol in expr.free_symbols} - self.symbols.keys():
                raise Untranslatable(f"the values of tensors decide {', '.join(sorted(unknown))}")
            self._known[key] = Sym(text_of(expr, self.symbols)) if expr.free_symbols else number_at(expr, {})
        return self._known[key]

    def layout(self, tensor: torch.Tensor) -> Layout:
        """Expressions of the shape and stride of a tensor. Raises Untranslatable as `of`."""
        return self._texts(tensor.shape), self._texts(tensor.stride())

    def _texts(self, numbers: Sequence[Any]) -> tuple[str, ...]:
        return tuple(each.expression if isinstance(each, Sym) else str(each) for each in self.of(tuple(numbers)))


def constants_of(graph: fx.Graph, dims: Mapping[fx.Node, Dims]) -> Constants:
    """The constants of a captured graph; `dims` names dimensions of its placeholders.

    Raises GraphError on sizes that the values of tensors decide.
    """
    sizes = _named(dims)
    while True:
        constants = Constants(sizes)
        for number in _numbers(graph):
            try:
                constants.of(number)
            except Untranslatable as error:
                names = frozenset(symbol.name for symbol in sizes.expr(number).free_symbols)
                if not names or not names <= sizes.symbols.keys():
                    raise GraphError(f"a size depends on the values of tensors: {number}") from error
                sizes = sizes.without(names, str(error))
                break
        else:
            return constants


def is_number(example: Any) -> bool:
    """Whether this is what dynamo has for a value that is a number, or a tuple of numbers, and no tensor."""
    if isinstance(example, tuple | list):
        return isinstance(example, torch.Size) or (bool(example) and all(is_number(item) for item in example))
    return isinstance(example, (*_SYMBOLIC, bool, int, float))


def stride_like(shape: Sequence[str], sizes: Sequence[int], stride: Sequence[int]) -> tuple[str, ...] | None:
    """Expressions of the stride of a tensor without gaps, from those of its shape.

    Dimensions follow each other in memory as they do where the shape is `sizes` and the stride `stride`, in elements.
    None if the tensor has gaps there.
    """
    result = [""] * len(shape)
    inner: list[str] = []
    expected = 1
    for dim in sorted(range(len(shape)), key=lambda dim: (stride[dim], sizes[dim], -dim)):
        if stride[dim] == 0:
            result[dim] = "0"
            continue
        if stride[dim] != expected:
            return None
        result[dim] = _product(inner)
        inner.append(shape[dim])
        expected *= sizes[dim]
    return tuple(result)


def _product(factors: Sequence[str]) -> str:
    number = math.prod(int(each) for each in factors if each.isdecimal())
    named = [each if each.isidentifier() else f"({each})" for each in factors if not each.isdecimal()]
    return "*".join([str(number)] * (number != 1 or not named) + named)


def _numbers(graph: fx.Graph) -> Iterator[Any]:
    """Every symbolic number in the layout of a tensor, or among the arguments of what computes one."""
    for node in graph.nodes:
        example = node.meta.get("example_value")
        if node.op == "output" or is_number(example):
            continue
        yield from _in_layouts(example)
        for argument in node.all_input_nodes:
            value = argument.meta.get("example_value")
            if is_number(value):
                yield from _symbolic(value)


def _in_layouts(example: Any) -> Iterator[Any]:
    if isinstance(example, torch.Tensor):
        if example.layout == torch.strided:
            yield from _symbolic((tuple(example.shape), example.stride()))
    elif isinstance(example, tuple | list):
        for item in example:
            yield from _in_layouts(item)


def _symbolic(value: Any) -> Iterator[Any]:
    if isinstance(value, tuple | list):
        for item in value:
            yield from _symbolic(item)
    elif isinstance(value, _SYMBOLIC):
        yield value


def _named(dims: Mapping[fx.Node, Dims]) -> Sizes:
    """The symbols of the named dimensions, as far as the model leaves them free."""
    named = [
        (name, size.node)
        for node, names in dims.items()
        for size, name in zip(node.meta["example_value"].shape, names, strict=True)
        if name is not None and isinstance(size, torch.SymInt)
    ]
    if not named:
        return Sizes({}, {})
    env: ShapeEnv = named[0][1].shape_env
    values = {symbol: int(value) for symbol, value in env.backed_var_to_val.items()}
    asked: dict[sympy.Symbol, sympy.Symbol] = {}  # by the symbols that dynamo began with; some it then replaced
    for name, node in named:
        asked[node._expr] = _symbol(name, node._expr, asked, values)
    names: dict[sympy.Symbol, sympy.Symbol] = {}
    for symbol, ours in asked.items():
        left = env.replace(symbol)
        if left.is_Symbol:
            names.setdefault(left, ours)
    sizes = Sizes(names, values)
    reasons: dict[str, str] = {}
    for symbol, ours in asked.items():
        if env.symbol_guard_counter[symbol] > MAX_CONDITIONS:
            reasons[ours.name] = f"the model makes more than {MAX_CONDITIONS} conditions on it"
    for guard in env.guards:
        name = _pinned_by(guard, asked)
        if name:
            reasons.setdefault(name, _said(guard, asked))
    gone = {ours.name: values[symbol] for symbol, ours in asked.items() if ours.name not in sizes.symbols}
    fixed = tuple(f"{name} = {size}: {reasons.get(name, 'the model asks for it')}" for name, size in gone.items())
    sizes = Sizes(names, values, fixed)
    for name, reason in reasons.items():
        if name in sizes.symbols:
            sizes = sizes.without(frozenset([name]), reason)
    return sizes


def _symbol(
    name: str, symbol: sympy.Symbol, asked: Mapping[sympy.Symbol, sympy.Symbol], values: Mapping[sympy.Symbol, int]
) -> sympy.Symbol:
    """A symbol of this name, or with a number after it where another size has the name."""
    others = {ours.name: values[other] for other, ours in asked.items()}
    candidate, number = name, 1
    while others.get(candidate, values[symbol]) != values[symbol]:
        number += 1
        candidate = f"{name}_{number}"
    return sympy.Symbol(candidate, integer=True, positive=True)


def _pinned_by(guard: ShapeGuard, asked: Mapping[sympy.Symbol, sympy.Symbol]) -> str:
    """The name of the symbol that a guard fixes, or almost fixes; "" if it fixes none.

    A guard fixes a symbol by saying that something computed from it equals a number. One on divisibility does not.
    """
    expr = guard.expr.xreplace(asked)
    numbers = isinstance(expr, sympy.Eq) and (expr.lhs.is_number or expr.rhs.is_number)
    if not numbers or expr.has(Mod, PythonMod) or len(expr.free_symbols) != 1:
        return ""
    return next(iter(expr.free_symbols)).name


def _said(guard: ShapeGuard, asked: Mapping[sympy.Symbol, sympy.Symbol]) -> str:
    place = re.search(r"# (\S+:\d+)", guard.sloc.maybe_user_loc or "")
    return f"{guard.expr.xreplace(asked)}" + (f" at {place[1]}" if place else "")

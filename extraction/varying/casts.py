"""What a dtype makes of a subgraph: its inputs, and the constants that follow them.

All float inputs are cast together. Constants (`.to(torch.float32)`, `dtype=` arguments) stay as they are, as they would
in a model cast with `model.to(dtype)`. The exception are casts back. A model in half precision computes a norm or a
softmax in float32 and casts the result back to the dtype that it was given (`x.to(torch.float32) … .to(input_dtype)`);
traced in float32, both casts are `.to(torch.float32)` and do nothing. On halves the first one widens. The second one
would still do nothing, since its operand is float32 already. Nobody writes a cast that does nothing, so it is the cast
back, and becomes one to the half type.

A subgraph that takes or mentions float64 or complex numbers keeps its dtypes: it wants that precision.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

import torch

from extraction.analysis.propagate import Invalid, propagate
from extraction.analysis.values import TensorValue
from storage.graph.effects import argument
from storage.graph.record import Graph, Op, Ref, Value
from storage.records import Input, dtype_name, dtype_of

_KEPT = frozenset((torch.float64, torch.complex32, torch.complex64, torch.complex128))
_KEEPING_METHODS = frozenset(("double", "cdouble", "cfloat", "chalf"))
_HALVES = ("float16", "bfloat16")


def dtypes_of(graph: Graph, inputs: Sequence[Input], dtypes: Sequence[str]) -> Iterator[tuple[str, tuple[Input, ...]]]:
    """Yields a label and the inputs of each dtype to try."""
    has_floats = any(dtype_of(i.dtype).is_floating_point for i in inputs)
    if not has_floats or any(dtype_of(i.dtype) in _KEPT for i in inputs) or _mentions_kept(graph):
        yield "as traced", tuple(inputs)
        return
    for dtype in dtypes:
        yield dtype, tuple(replace(i, dtype=dtype) if dtype_of(i.dtype).is_floating_point else i for i in inputs)


def casts_back(graph: Graph, traced: Sequence[Input], cast: Sequence[Input], dtype: str) -> tuple[int, ...]:
    """The ops of a graph that cast back to the model's dtype, where its float32 inputs (`traced`) are halves (`cast`).

    Ops behind one that refuses the dtype are not looked at.
    """
    floats = {i.dtype for i in traced if dtype_of(i.dtype).is_floating_point}
    if dtype not in _HALVES or floats != {"float32"}:
        return ()
    found: list[int] = []
    for number, op in enumerate(graph.ops):
        if not _is_cast(op, "float32"):
            continue
        before = with_casts_back(Graph(graph.inputs, graph.ops[:number], None), found, dtype)
        propagated = propagate(before, cast)
        if isinstance(propagated, Invalid):
            break
        operand = propagated.values[op.args[0].index]
        if isinstance(operand, TensorValue) and operand.dtype == "float32":
            found.append(number)
    return tuple(found)


def with_casts_back(graph: Graph, back: Collection[int], dtype: str) -> Graph:
    """The graph with these ops (`casts_back`) casting to `dtype`."""
    if not back:
        return graph
    ops = (_casting(op, dtype_of(dtype)) if number in back else op for number, op in enumerate(graph.ops))
    return Graph(graph.inputs, tuple(ops), graph.output)


def _is_cast(op: Op, dtype: str) -> bool:
    """Whether the op is `.to(dtype)`, perhaps with more arguments."""
    given = argument(op, 1, "dtype")
    is_dtype = isinstance(given, torch.dtype) and dtype_name(given) == dtype
    return op.kind == "method" and op.target == "to" and is_dtype and isinstance(op.args[0], Ref)


def _casting(op: Op, dtype: torch.dtype) -> Op:
    if "dtype" in op.kwargs:
        return Op(op.kind, op.target, op.args, {**op.kwargs, "dtype": dtype})
    return Op(op.kind, op.target, (op.args[0], dtype, *op.args[2:]), op.kwargs)


def _mentions_kept(graph: Graph) -> bool:
    return any(
        (op.kind == "method" and op.target in _KEEPING_METHODS) or _holds_kept((op.args, op.kwargs)) for op in graph.ops
    )


def _holds_kept(value: Value) -> bool:
    if isinstance(value, tuple | list):
        return any(_holds_kept(item) for item in value)
    if isinstance(value, dict):
        return any(_holds_kept(item) for item in value.values())
    return isinstance(value, torch.dtype) and value in _KEPT

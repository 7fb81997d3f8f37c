"""float16 in place of bfloat16, and the other way round, in a subgraph."""

from dataclasses import replace
from typing import Any

import torch

from storage.graph.record import Graph, Op, Value
from storage.records import Variant

_NAMES = {"float16": "bfloat16", "bfloat16": "float16"}
_DTYPES = {torch.float16: torch.bfloat16, torch.bfloat16: torch.float16}


def exchanged(variant: Variant) -> Variant:
    """The subgraph with the two half precisions exchanged: in its inputs, its outputs and its constants."""
    graph = variant.graph
    ops = tuple(Op(op.kind, op.target, _exchanged(op.args), _exchanged(op.kwargs)) for op in graph.ops)
    return variant.with_changes(
        graph=Graph(graph.inputs, ops, graph.output),
        inputs=tuple(replace(each, dtype=_NAMES.get(each.dtype, each.dtype)) for each in variant.inputs),
        outputs=tuple(replace(each, dtype=_NAMES.get(each.dtype, each.dtype)) for each in variant.outputs),
    )


def holds_halves(variant: Variant) -> bool:
    """Whether an input is of half precision."""
    return any(each.dtype in _NAMES for each in variant.inputs)


def _exchanged(value: Value) -> Any:
    if isinstance(value, torch.dtype):
        return _DTYPES.get(value, value)
    if type(value) in (tuple, list):
        return type(value)(_exchanged(item) for item in value)
    if isinstance(value, dict):
        return {key: _exchanged(item) for key, item in value.items()}
    return value

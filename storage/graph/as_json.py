"""Graph records ↔ JSON. Reading checks everything and executes nothing."""

import json
import math
from typing import Any

import torch

from storage.graph.check import check
from storage.graph.record import RUN_DEVICE, Graph, GraphError, Op, Ref, RunDevice, Sym, Value

FORMAT = 1


def to_json(graph: Graph) -> str:
    """Compact JSON of a graph; equal graphs give equal text."""
    ops = [[op.kind, op.target, _encode(op.args), {k: _encode(v) for k, v in op.kwargs.items()}] for op in graph.ops]
    record = {"format": FORMAT, "inputs": graph.inputs, "ops": ops, "output": _encode(graph.output)}
    return json.dumps(record, separators=(",", ":"), allow_nan=False)


def from_json(text: str) -> Graph:
    """The graph that `to_json` wrote. Raises GraphError on anything else; executes nothing."""
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise GraphError(f"the graph is not JSON: {error}") from None
    if not isinstance(record, dict) or type(record.get("format")) is not int or record["format"] != FORMAT:
        raise GraphError(f"the graph record is not of format {FORMAT}; rebuild the dataset with this version")
    try:
        inputs = record["inputs"]
        ops = []
        for number, (kind, target, args, kwargs) in enumerate(record["ops"]):
            if kind not in ("function", "method") or not isinstance(target, str):
                raise GraphError(f"op {number} of the graph record is malformed")
            decoded = _decode(args)
            if not isinstance(decoded, tuple):
                raise GraphError(f"op {number} of the graph record has malformed arguments")
            ops.append(Op(kind, target, decoded, {str(k): _decode(v) for k, v in kwargs.items()}))
        graph = Graph(inputs, tuple(ops), _decode(record["output"]))
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise GraphError(f"the graph record is malformed: {error!r}") from None
    check(graph)
    return graph


def _encode(value: Value) -> Any:
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, Ref):
        return {"%": value.index}
    if isinstance(value, list):
        return [_encode(v) for v in value]
    if isinstance(value, tuple):
        return {"tuple": [_encode(v) for v in value]}
    if isinstance(value, slice):
        return {"slice": [_encode(value.start), _encode(value.stop), _encode(value.step)]}
    if isinstance(value, dict):
        return {"dict": [[k, _encode(v)] for k, v in value.items()]}
    if isinstance(value, complex):
        return {"complex": [_encode(value.real), _encode(value.imag)]}
    if isinstance(value, RunDevice):
        return {"device": None}
    if isinstance(value, Sym):
        return {"sym": value.expression}
    if value is Ellipsis:
        return {"ellipsis": None}
    for tag, kind in _TORCH_CONSTANTS.items():
        if isinstance(value, kind):
            return {tag: str(value).removeprefix("torch.")}
    raise GraphError(f"a constant of type {type(value).__qualname__} cannot be stored")


_TORCH_CONSTANTS = {"dtype": torch.dtype, "layout": torch.layout, "memory_format": torch.memory_format}
_BY_NAME = {
    tag: {name: value for name, value in vars(torch).items() if isinstance(value, kind)}
    for tag, kind in _TORCH_CONSTANTS.items()
}


def _decode(data: Any) -> Value:
    if data is None or isinstance(data, bool | int | float | str):
        return data
    if isinstance(data, list):
        return [_decode(d) for d in data]
    if not isinstance(data, dict) or len(data) != 1:
        raise GraphError(f"malformed value in a graph record: {str(data)[:80]}")
    ((tag, content),) = data.items()
    if tag == "%" and type(content) is int:
        return Ref(content)
    if tag == "tuple":
        return tuple(_decode(d) for d in content)
    if tag == "slice" and len(content) == 3:
        return slice(*(_decode(d) for d in content))
    if tag == "dict":
        return {str(k): _decode(d) for k, d in content}
    if tag == "float" and content in ("inf", "-inf", "nan"):
        return float(content)
    if tag == "complex" and len(content) == 2:
        return complex(*(_decode(d) for d in content))
    if tag == "device":
        return RUN_DEVICE
    if tag == "sym" and isinstance(content, str):
        return Sym(content)
    if tag == "ellipsis":
        return Ellipsis
    if tag in _BY_NAME and isinstance(content, str) and content in _BY_NAME[tag]:
        return _BY_NAME[tag][content]
    raise GraphError(f"malformed value in a graph record: {str(data)[:80]}")

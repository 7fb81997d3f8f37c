"""Graph records ↔ `torch.fx`, through the allowlist of targets."""

from typing import Any

import torch
from torch import fx

from storage.graph import targets
from storage.graph.check import check
from storage.graph.record import RUN_DEVICE, Graph, GraphError, Op, Ref, RunDevice, Value, map_refs


def from_fx(graph: fx.Graph) -> Graph:
    """The record of an fx graph of call_function and call_method nodes.

    Raises GraphError on get_attr and call_module nodes (lift them to inputs first) and on constants that a record
    cannot hold, TargetError on calls outside the allowlist.
    """
    numbers: dict[fx.Node, Ref] = {}
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    for node in placeholders:
        numbers[node] = Ref(len(numbers))
    ops: list[Op] = []
    output: Value = None
    for node in graph.nodes:
        if node.op == "placeholder":
            continue
        if node.op == "output":
            output = _from_fx_value(node.args[0], numbers)
            continue
        if node.op == "call_function":
            kind, target = "function", targets.name_of(node.target)
        elif node.op == "call_method":
            kind, target = "method", targets.check_method(node.target)
        else:
            raise GraphError(f"node {node.name} is a {node.op} of {node.target!r}, which a graph record does not hold")
        args = tuple(_from_fx_value(a, numbers) for a in node.args)
        kwargs = {key: _from_fx_value(v, numbers, key) for key, v in node.kwargs.items()}
        if kind == "method" and target == "to" and len(args) > 1 and isinstance(args[1], str):
            args = (args[0], RUN_DEVICE, *args[2:])
        ops.append(Op(kind, target, args, kwargs))
        numbers[node] = Ref(len(numbers))
    result = Graph(len(placeholders), tuple(ops), output)
    check(result)
    return result


_CONSTANTS = (bool, int, float, complex, str, torch.dtype, torch.layout, torch.memory_format)


def _from_fx_value(value: Any, numbers: dict[fx.Node, Ref], key: str = "") -> Value:
    if isinstance(value, fx.Node):
        return numbers[value]
    if isinstance(value, torch.device) or (key == "device" and isinstance(value, str)):
        return RUN_DEVICE
    if value is None or value is Ellipsis or type(value) in _CONSTANTS:
        return value
    if isinstance(value, tuple):  # torch.Size, immutable and named tuples among them
        return tuple(_from_fx_value(v, numbers) for v in value)
    if isinstance(value, list):
        return [_from_fx_value(v, numbers) for v in value]
    if isinstance(value, slice):
        parts = (value.start, value.stop, value.step)
        return slice(*(_from_fx_value(v, numbers) for v in parts))
    if isinstance(value, dict) and all(isinstance(k, str) for k in value):
        return {k: _from_fx_value(v, numbers) for k, v in value.items()}
    raise GraphError(f"a constant of type {type(value).__module__}.{type(value).__qualname__} cannot be stored")


def to_fx(graph: Graph, device: torch.device | str) -> fx.Graph:
    """The fx graph of a record, device constants set to `device`; names are `in_0…` and `tmp_0…`.

    Raises TargetError on targets outside the allowlist, GraphError on a graph that is not well formed: torch.fx writes
    Python source from it, keywords and attribute names included.
    """
    check(graph)
    device = torch.device(device)
    result = fx.Graph()
    values: list[fx.Node] = [result.placeholder(f"in_{i}") for i in range(graph.inputs)]

    def node_of(ref: Ref) -> fx.Node:
        return values[ref.index]

    for number, op in enumerate(graph.ops):
        args = _to_fx_value(map_refs(op.args, node_of), device)
        kwargs = _to_fx_value(map_refs(op.kwargs, node_of), device)
        name = f"tmp_{number}"
        if op.kind == "method":
            node = result.create_node("call_method", targets.check_method(op.target), args, kwargs, name)
        else:
            node = result.create_node("call_function", targets.resolve(op.target), args, kwargs, name)
        values.append(node)
    result.output(_to_fx_value(map_refs(graph.output, node_of), device))
    return result


def _to_fx_value(value: Any, device: torch.device) -> Any:
    if isinstance(value, RunDevice):
        return device
    if isinstance(value, tuple):
        return tuple(_to_fx_value(v, device) for v in value)
    if isinstance(value, list):
        return [_to_fx_value(v, device) for v in value]
    if isinstance(value, dict):
        return {k: _to_fx_value(v, device) for k, v in value.items()}
    return value


def to_module(graph: Graph, device: torch.device | str) -> fx.GraphModule:
    """A callable module of the record; `module.forward(*inputs)` runs it."""
    return fx.GraphModule(torch.nn.Module(), to_fx(graph, device))

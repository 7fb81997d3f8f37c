"""A captured fx graph in the form that a record holds: tensors as placeholders, no nodes that compute nothing, and no
numbers that follow from sizes."""

import operator
import re
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from extraction.tracing.symbolic import Constants, is_number
from storage.graph.as_fx import from_fx
from storage.graph.record import Graph, GraphError, Op, Ref, Value, map_refs
from storage.records import Input, dtype_name

_WITHOUT_EFFECT = {
    torch._C._set_grad_enabled,  # a trace is of a forward without gradients
    torch._C._log_api_usage_once,
    torch._assert,
    torch._assert_async,
    torch._check,
    torch.ops.aten._assert_scalar.default,
}
_BINARY = "add and_ floordiv lshift matmul mod mul or_ pow rshift sub truediv xor".split()
_OPERATORS = {
    f"__{name.strip('_')}__": getattr(operator, name)
    for name in [*_BINARY, *"abs eq ge gt invert le lt ne neg".split()]
}
_REFLECTED = {f"__r{name.strip('_')}__": getattr(operator, name) for name in _BINARY}
_OVERLOADS = {torch.ops.aten.index: torch.ops.aten.index.Tensor}  # what transformers indexes masks with
_ATTRIBUTES = {  # dynamo of torch 2.15 has functions for what is read as an attribute
    torch.ops.aten.numpy_T: "T",
    torch.ops.aten.mT: "mT",
    torch.ops.aten.matrix_H: "H",
    torch.ops.aten.mH: "mH",
    torch._C._autograd._get_data_attr: "data",
}
_ENTER_AUTOCAST = torch.amp.autocast_mode._enter_autocast
_EXIT_AUTOCAST = torch.amp.autocast_mode._exit_autocast

_STEP = re.compile(r"\['([^']+)'\]|\[(\d+)\]|\.(\w+)")
_NOT_IN_NAMES = frozenset("self kwargs args _modules _parameters _buffers __dict__".split())


def input_records(graph: fx.Graph, examples: Sequence[Any]) -> list[Input]:
    """A record of each placeholder but symbolic sizes, from dynamo's examples of them, without ranges.

    Parameters and buffers are named as in the model's `state_dict`, other inputs after the argument that they came in
    by. Raises GraphError on other inputs that are not tensors.
    """
    records: list[Input] = []
    taken: set[str] = set()
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    for node, example in zip(placeholders, examples, strict=True):
        if isinstance(example, torch.SymInt):
            continue
        if not isinstance(example, torch.Tensor):
            raise GraphError(f"the graph takes {node.name}, a {type(example).__name__}, as an input")
        grapharg = node.meta.get("grapharg")
        source = str(grapharg.source.name) if grapharg is not None else node.name
        if isinstance(example, torch.nn.Parameter):
            role = "parameter"
        else:
            role = "buffer" if source.startswith("L['self']") else "input"
        records.append(_record(_unique(readable(source), taken), role, example))
    return records


def normalise(module: fx.GraphModule) -> list[Input]:
    """Rewrites the graph of `module` in place; returns records of the placeholders that this adds after the others.

    Tensor constants (`get_attr`) become placeholders of role "buffer"; assertions, gradient switches, usage logging
    and disabled autocast regions go; operators called as methods become functions, functions of ATen the overloads that
    they stand for, and functions that stand for attributes `getattr`. Raises GraphError on attributes that are not
    tensors, such as the bodies of higher-order operators.
    """
    graph = module.graph
    for node in list(graph.nodes):
        disabled_autocast = node.target is _ENTER_AUTOCAST and len(node.args) > 2 and node.args[2] is False
        if disabled_autocast:
            for user in list(node.users):
                if user.target is _EXIT_AUTOCAST:
                    graph.erase_node(user)
        if node.op == "call_function" and (node.target in _WITHOUT_EFFECT or disabled_autocast) and not node.users:
            graph.erase_node(node)
        elif node.op == "call_function" and node.target in _ATTRIBUTES:
            node.target, node.args = getattr, (*node.args, _ATTRIBUTES[node.target])
        elif node.op == "call_function" and isinstance(node.target, torch._ops.OpOverloadPacket):
            node.target = _OVERLOADS.get(node.target, node.target)
        elif node.op == "call_method" and node.target in _OPERATORS:
            node.op, node.target = "call_function", _OPERATORS[node.target]
        elif node.op == "call_method" and node.target in _REFLECTED:
            node.op, node.target, node.args = "call_function", _REFLECTED[node.target], node.args[::-1]
    return _lift_constants(module)


def take_out_numbers(graph: fx.Graph, constants: Constants) -> dict[fx.Node, Value]:
    """Takes what is a number out of a captured graph, in place: from its output, and as nodes that compute one.

    Numbers that a tensor op reads are placeholders after this; the result has the constants that they stand for.
    """
    output = next(node for node in reversed(graph.nodes) if node.op == "output")
    output.args = (_without_numbers(output.args[0]),)
    first = next(node for node in graph.nodes if node.op != "placeholder")
    numbers = {node: None for node in graph.nodes if node is not output and is_number(node.meta.get("example_value"))}
    taken: dict[fx.Node, Value] = {}
    for node in numbers:
        read = [user for user in node.users if user not in numbers]
        if node.op == "placeholder":
            placeholder = node
        elif read:
            with graph.inserting_before(first):
                placeholder = graph.placeholder(f"number_{len(taken)}")
            for user in read:
                user.replace_input_with(node, placeholder)
        else:
            continue
        taken[placeholder] = constants.of(node.meta["example_value"]) if read else None
    for node in reversed(numbers):
        if node.op != "placeholder":
            graph.erase_node(node)
    return taken


def graph_record(graph: fx.Graph, constants: dict[fx.Node, Value]) -> Graph:
    """The record of an fx graph where some placeholders stand for constants.

    Raises GraphError or TargetError where a record cannot hold the graph.
    """
    whole = from_fx(graph)
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    values: list[Value] = []
    inputs = 0
    for node in placeholders:
        values.append(constants[node] if node in constants else Ref(inputs))
        inputs += node not in constants

    def value_of(ref: Ref) -> Value:
        return values[ref.index] if ref.index < len(values) else Ref(ref.index - len(values) + inputs)

    ops = (Op(op.kind, op.target, map_refs(op.args, value_of), map_refs(op.kwargs, value_of)) for op in whole.ops)
    return Graph(inputs, tuple(ops), map_refs(whole.output, value_of))


def readable(source: str) -> str:
    """The state-dict name, or argument name, in dynamo's name of a source.

    `L['self']._modules['conv1']._parameters['weight']` → `conv1.weight`; `L['kwargs']['input_ids']` → `input_ids`.
    """
    steps = [next(filter(None, groups)) for groups in _STEP.findall(source)]
    kept = [step for step in steps if step not in _NOT_IN_NAMES]
    return ".".join(kept) or re.sub(r"\W+", "_", source)


def _without_numbers(value: Any) -> Any:
    """The output without the numbers in its tuples: without symbols dynamo gives none."""
    if isinstance(value, tuple | list):
        kept = (item for item in value if not (isinstance(item, fx.Node) and is_number(item.meta.get("example_value"))))
        return type(value)(_without_numbers(item) for item in kept)
    return value


def _lift_constants(module: fx.GraphModule) -> list[Input]:
    graph = module.graph
    lifted: dict[str, fx.Node] = {}
    records: list[Input] = []
    last = next((node for node in reversed(graph.nodes) if node.op == "placeholder"), None)
    for node in [n for n in graph.nodes if n.op == "get_attr"]:
        constant = _attribute(module, node.target)
        if not isinstance(constant, torch.Tensor):
            raise GraphError(f"the graph holds {node.target}, a {type(constant).__name__}, which is not a tensor")
        if node.target not in lifted:
            with graph.inserting_after(last) if last else graph.inserting_before(None):
                last = lifted[node.target] = graph.placeholder(f"constant_{len(lifted)}")
            role = "parameter" if isinstance(constant, torch.nn.Parameter) else "buffer"
            records.append(_record(node.target, role, constant))
        node.replace_all_uses_with(lifted[node.target])
        graph.erase_node(node)
    return records


def _attribute(module: torch.nn.Module, path: str) -> Any:
    value: Any = module
    for step in path.split("."):
        value = getattr(value, step)
    return value


def _record(name: str, role: str, example: torch.Tensor) -> Input:
    if example.layout != torch.strided:
        raise GraphError(f"input {name} has layout {example.layout}")
    return Input(name, role, dtype_name(example.dtype), tuple(example.shape), tuple(example.stride()))


def _unique(name: str, taken: set[str]) -> str:
    candidate, number = name, 1
    while candidate in taken:
        number += 1
        candidate = f"{name}_{number}"
    taken.add(candidate)
    return candidate

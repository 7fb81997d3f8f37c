"""A captured fx graph in the form that a record holds: inputs as placeholders, no nodes that compute nothing."""

import re
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from storage.graph import GraphError
from storage.records import Input, dtype_name

_WITHOUT_EFFECT = {
    torch._C._set_grad_enabled,  # a trace is of a forward without gradients
    torch._C._log_api_usage_once,
    torch._assert,
    torch._assert_async,
    torch._check,
}
_ENTER_AUTOCAST = torch.amp.autocast_mode._enter_autocast
_EXIT_AUTOCAST = torch.amp.autocast_mode._exit_autocast

_STEP = re.compile(r"\['([^']+)'\]|\[(\d+)\]|\.(\w+)")
_NOT_IN_NAMES = frozenset("self kwargs args _modules _parameters _buffers __dict__".split())


def input_records(graph: fx.Graph, examples: Sequence[Any]) -> list[Input]:
    """A record of each placeholder, from dynamo's examples of them, without ranges.

    Parameters and buffers are named as in the model's `state_dict`, other inputs after the argument that they came in
    by. Raises GraphError on inputs that are not tensors.
    """
    records: list[Input] = []
    taken: set[str] = set()
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    for node, example in zip(placeholders, examples, strict=True):
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
    and disabled autocast regions go. Raises GraphError on attributes that are not tensors, such as the bodies of
    higher-order operators.
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
    return _lift_constants(module)


def readable(source: str) -> str:
    """The state-dict name, or argument name, in dynamo's name of a source.

    `L['self']._modules['conv1']._parameters['weight']` → `conv1.weight`; `L['kwargs']['input_ids']` → `input_ids`.
    """
    steps = [next(filter(None, groups)) for groups in _STEP.findall(source)]
    kept = [step for step in steps if step not in _NOT_IN_NAMES]
    return ".".join(kept) or re.sub(r"\W+", "_", source)


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

"""Signatures, mutations and aliasing of the operations in a torch-level fx graph."""

import functools
import inspect
import operator
from collections.abc import Iterator
from types import FunctionType
from typing import Any, NamedTuple

import torch
from torch import fx
from torch.fx.node import map_arg

_VARIADIC = frozenset("view reshape permute expand repeat tile flip".split())
"""Methods that take their sizes as one tuple or one by one."""

_INPLACE_OPERATORS = frozenset(
    getattr(operator, f"i{name}")
    for name in "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift concat".split()
)
_FRESH_OPERATORS = frozenset(
    getattr(operator, name)
    for name in """add sub mul truediv floordiv mod pow matmul and_ or_ xor lshift rshift neg invert
    eq ne lt le gt ge""".split()
)
_RETURNS_INPUT = frozenset("dropout dropout1d dropout2d dropout3d alpha_dropout feature_alpha_dropout".split())
_RUNNING_STATS = frozenset(("batch_norm", "instance_norm"))


class Signature(NamedTuple):
    """Parameter names in order, and the defaults of those that have one."""

    names: tuple[str, ...]
    defaults: dict[str, Any]

    def bind(self, args: tuple, kwargs: dict[str, Any]) -> dict[str, Any] | None:
        """Arguments by parameter name, defaults filled in; None where they do not fit."""
        if len(args) > len(self.names) or any(k not in self.names for k in kwargs):
            return None
        bound = dict(zip(self.names, args, strict=False))
        if bound.keys() & kwargs.keys():
            return None
        bound.update(kwargs)
        result = {**self.defaults, **bound}
        return {name: result[name] for name in self.names} if result.keys() == set(self.names) else None


def op_name(node: fx.Node) -> str:
    """The bare name of what a node calls: `relu_` of `torch.relu_` and of `.relu_()`."""
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))


def signatures(node: fx.Node) -> Iterator[Signature]:
    """Ways in which the arguments of a node can be named; none for operators and Python built-ins."""
    target = node.target
    if isinstance(target, FunctionType):
        parameters = inspect.signature(target).parameters.values()
        if all(p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) for p in parameters):
            defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
            yield Signature(tuple(p.name for p in parameters), defaults)
    elif not _is_operator(target):
        for schema in _schemas(op_name(node)):
            defaults = {a.name: a.default_value for a in schema.arguments if a.has_default_value()}
            yield Signature(tuple(a.name for a in schema.arguments), defaults)


@functools.cache
def _schemas(name: str) -> tuple:
    return tuple(torch._C._jit_get_schemas_for_operator(f"aten::{name}"))


def _is_operator(target: Any) -> bool:
    return getattr(target, "__module__", None) in ("_operator", "operator", "builtins", "math")


def spread_sizes(node: fx.Node) -> tuple:
    """The node's arguments, with `view(2, 3)` written as `view((2, 3))`."""
    if node.op == "call_method" and node.target in _VARIADIC and len(node.args) >= 2:
        first = node.args[1]
        if not isinstance(first, tuple | list | torch.dtype):
            return (node.args[0], tuple(node.args[1:]))
    return node.args


def argument(node: fx.Node, name: str) -> Any:
    """The argument called `name`, its default where it is not given, None where the operation has none."""
    for signature in signatures(node):
        bound = signature.bind(node.args, dict(node.kwargs))
        if bound is not None and name in bound:
            return bound[name]
    return node.kwargs.get(name)


def mutated(node: fx.Node) -> list[fx.Node]:
    """The values that a node writes over."""
    if node.op not in ("call_function", "call_method"):
        return []
    name, written = op_name(node), []
    first = node.args[0] if node.args else None
    trailing = name.endswith("_") and not name.endswith("__") and not _is_operator(node.target)
    in_place = node.target in _INPLACE_OPERATORS or node.target is operator.setitem
    if in_place or trailing or argument(node, "inplace") is True:
        written.append(first if first is not None else node.kwargs.get("input"))
    if "out" in node.kwargs:
        written.append(node.kwargs["out"])
    if name in _RUNNING_STATS and argument(node, "training") is not False:
        written += [argument(node, "running_mean"), argument(node, "running_var")]
    nodes: list[fx.Node] = []
    map_arg(written, nodes.append)
    return nodes


def is_barrier(node: fx.Node) -> bool:
    """Whether operations may not be moved across the node: it changes how later ones compute."""
    return op_name(node) in ("_enter_autocast", "_exit_autocast")


def may_alias_inputs(node: fx.Node) -> bool:
    """Whether the node's result may share memory with its inputs; true where that is not known."""
    if node.target in _FRESH_OPERATORS:
        return False
    name = op_name(node)
    if mutated(node) or name in _RETURNS_INPUT or _is_operator(node.target):
        return True
    schemas = _schemas(name)
    return not schemas or any(value.alias_info is not None for schema in schemas for value in schema.returns)


def alias_classes(graph: fx.Graph) -> dict[fx.Node, fx.Node]:
    """Every value's representative; values of one class may share memory, values of two cannot."""
    parent: dict[fx.Node, fx.Node] = {}

    def find(node: fx.Node) -> fx.Node:
        while parent.setdefault(node, node) is not node:
            node = parent[node]
        return node

    for node in graph.nodes:
        if node.op in ("call_function", "call_method") and may_alias_inputs(node):
            for value in node.all_input_nodes:
                parent[find(value)] = find(node)
        find(node)
    return {node: find(node) for node in graph.nodes}

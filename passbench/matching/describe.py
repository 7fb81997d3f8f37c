"""Nodes of patterns and graphs as people read them."""

from typing import Any

from torch import fx

from passbench.matching.op_signature import op_name
from storage.graph.targets import TargetError, name_of

WIDTH = 160


def target_text(node: fx.Node) -> str:
    """What a node calls, as a reader writes it: `torch.relu`, `.view()`."""
    if node.op == "call_method":
        return f".{node.target}()"
    if node.op == "placeholder":
        return f"the input {node.name}"
    if node.op != "call_function":
        return f"the graph's {node.op}"
    try:
        return name_of(node.target)
    except (TargetError, TypeError):
        return op_name(node)


def describe(node: fx.Node) -> str:
    """A node on one line: `tmp_0 = torch.add(in_0, in_1)`."""
    if node.op == "output":
        return "the graph's output"
    if node.op == "placeholder":
        return node.name
    args = node.args
    called = target_text(node)
    if node.op == "call_method" and args:
        called, args = f"{value_text(args[0])}.{node.target}", args[1:]
    arguments = [value_text(a) for a in args] + [f"{k}={value_text(v)}" for k, v in node.kwargs.items()]
    return shortened(f"{node.name} = {called}({', '.join(arguments)})")


def value_text(value: Any) -> str:
    """A value of a graph: a node's name, or a constant."""
    if isinstance(value, fx.Node):
        return value.name
    if isinstance(value, list):
        return "[" + ", ".join(map(value_text, value)) + "]"
    if isinstance(value, tuple):
        return "(" + ", ".join(map(value_text, value)) + ("," if len(value) == 1 else "") + ")"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k!r}: {value_text(v)}" for k, v in value.items()) + "}"
    if isinstance(value, slice):
        return f"slice({value_text(value.start)}, {value_text(value.stop)}, {value_text(value.step)})"
    return repr(value)


def shortened(text: str) -> str:
    """At most `WIDTH` characters of a text."""
    return text if len(text) <= WIDTH else text[: WIDTH - 1] + "…"

"""A graph record as Python source, for people and for prompts; never executed by PassNet."""

import torch

from storage.graph.record import Graph, Op, Ref, RunDevice, Value

_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**", "matmul": "@",
    "and_": "&", "or_": "|", "xor": "^", "lshift": "<<", "rshift": ">>",
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
}  # fmt: skip
_PREFIX = {"neg": "-", "pos": "+", "invert": "~", "not_": "not "}


def value_name(number: int, inputs: int) -> str:
    """The name of a value in rendered source: `in_0…` for inputs, `tmp_0…` for results of ops."""
    return f"in_{number}" if number < inputs else f"tmp_{number - inputs}"


def render(graph: Graph, class_name: str = "GraphModule") -> str:
    """Source of a module whose `forward` computes the graph, one op a line, names `in_0…` and `tmp_0…`."""
    names = ", ".join(f"in_{i}" for i in range(graph.inputs))
    lines = ["", "", f"class {class_name}(torch.nn.Module):"]
    lines.append(f"    def forward(self, {names}):" if names else "    def forward(self):")
    for number, op in enumerate(graph.ops):
        lines += [f"        {line}" for line in statements(f"tmp_{number}", op, graph.inputs)]
    lines.append(f"        return {_value(graph.output, graph.inputs)}")
    used = {name for name in ("math", "operator") if any(f" = {name}." in line for line in lines)}
    return "\n".join([*(f"import {name}" for name in sorted(used | {"torch"})), *lines]) + "\n"


def statements(name: str, op: Op, inputs: int) -> list[str]:
    """The source lines that give `name` the op's result; more than one for an op that assigns in place."""
    args = [_value(a, inputs) for a in op.args]
    if op.kind == "method":
        return [f"{name} = {args[0]}.{op.target}({_arguments(args[1:], op, inputs)})"]
    module, _, function = op.target.rpartition(".")
    if module == "operator" and not op.kwargs:
        symbol = function.removeprefix("i")
        if function in _INFIX and len(args) == 2:
            left, right = (f"({text})" if text.startswith("-") else text for text in args)
            return [f"{name} = {left} {_INFIX[function]} {right}"]
        if function in _PREFIX and len(args) == 1:
            return [f"{name} = {_PREFIX[function]}{args[0]}"]
        if function == "getitem":
            return [f"{name} = {args[0]}[{_index(op.args[1], inputs)}]"]
        if function == "setitem":
            return [f"{args[0]}[{_index(op.args[1], inputs)}] = {args[2]}", f"{name} = None"]
        if function != symbol and (symbol in _INFIX or f"{symbol}_" in _INFIX) and isinstance(op.args[0], Ref):
            return [f"{args[0]} {_INFIX.get(symbol) or _INFIX[symbol + '_']}= {args[1]}", f"{name} = {args[0]}"]
    if op.target == "builtins.getattr":
        return [f"{name} = {args[0]}.{op.args[1]}"]
    target = op.target.removeprefix("builtins.")
    return [f"{name} = {target}({_arguments(args, op, inputs)})"]


def _arguments(args: list[str], op: Op, inputs: int) -> str:
    return ", ".join([*args, *(f"{key}={_value(v, inputs)}" for key, v in op.kwargs.items())])


def _index(value: Value, inputs: int) -> str:
    if isinstance(value, tuple) and value:
        # Inside a subscript only its own tuple is written without parentheses.
        items = (_value(v, inputs) if isinstance(v, tuple) else _index(v, inputs) for v in value)
        return ", ".join(items) + ("," if len(value) == 1 else "")
    if isinstance(value, slice):
        start, stop = ("" if v is None else _value(v, inputs) for v in (value.start, value.stop))
        return f"{start}:{stop}" + ("" if value.step is None else f":{_value(value.step, inputs)}")
    return _value(value, inputs)


def _value(value: Value, inputs: int) -> str:
    if isinstance(value, Ref):
        return value_name(value.index, inputs)
    if isinstance(value, tuple):
        return "(" + ", ".join(_value(v, inputs) for v in value) + ("," if len(value) == 1 else "") + ")"
    if isinstance(value, list):
        return "[" + ", ".join(_value(v, inputs) for v in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k!r}: {_value(v, inputs)}" for k, v in value.items()) + "}"
    if isinstance(value, slice):
        return f"slice({', '.join(_value(v, inputs) for v in (value.start, value.stop, value.step))})"
    if isinstance(value, RunDevice):
        return 'torch.device("cuda")'
    if (isinstance(value, float) and value != value) or value in (float("inf"), float("-inf")):
        return f'float("{value}")'
    if isinstance(value, torch.dtype | torch.layout | torch.memory_format):
        return str(value)
    return "..." if value is Ellipsis else repr(value)

"""Which operation a call spells, and its arguments under the names that the operation has for them.

`x + y`, `operator.add(x, y)`, `torch.add(x, y)`, `x.add(y)` and `torch.ops.aten.add.Tensor(x, y)` are one operation,
`add`; `x += y` and `x.add_(y)` are the same in place. Which names mean the same follows from torch's own schemas: a
function and a method are the operator of ATen of their name. A function of `torch.nn.functional` is that operator if
each of its parameters is one of the operator's and every default that a call leaves to it is the operator's. The few
tables here hold what no schema says: Python's operators, casts, and functions of torch that are written in Python.
"""

import functools
import operator
from collections.abc import Callable, Iterable, Iterator
from types import BuiltinFunctionType, FunctionType
from typing import Any, NamedTuple

import torch
from torch import fx

from passbench.matching.op_signature import (
    PYTHON_NAMES,
    OpSignature,
    is_operator,
    schema_signature,
    schemas,
    signatures,
    target_of,
)
from storage.graph import targets

INPLACE = "inplace"
"""The name under which arguments say whether the operation writes to its first one."""

_OPERATORS = {
    "add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "floordiv": "floor_divide", "mod": "remainder",
    "pow": "pow", "matmul": "matmul", "neg": "neg", "pos": "positive", "abs": "abs", "and_": "bitwise_and",
    "or_": "bitwise_or", "xor": "bitwise_xor", "invert": "bitwise_not", "eq": "eq", "ne": "ne", "lt": "lt", "le": "le",
    "gt": "gt", "ge": "ge",
}  # fmt: skip
_COMMUTATIVE = frozenset("add mul and_ or_ xor eq ne".split())
_AUGMENTED = {
    "iadd": "add", "isub": "sub", "imul": "mul", "itruediv": "div", "ifloordiv": "floor_divide", "imod": "remainder",
    "ipow": "pow", "iand": "bitwise_and", "ior": "bitwise_or", "ixor": "bitwise_xor",
}  # fmt: skip
"""Python's operators, and what they are of two tensors. `x @= y` is not among them: a tensor has none in place."""

_CASTS = {
    "float": torch.float32, "double": torch.float64, "half": torch.float16, "bfloat16": torch.bfloat16,
    "int": torch.int32, "long": torch.int64, "short": torch.int16, "char": torch.int8, "byte": torch.uint8,
    "bool": torch.bool,
}  # fmt: skip
"""Methods that are `.to(dtype)`."""

_WRITTEN_IN_PYTHON = {"norm": torch.norm, "split": torch.split}
"""Methods that call a function of torch's which is no operator, with the same arguments in the same order."""
_NUMBERS = frozenset(("dim", "ndimension", "numel", "nelement", "size", "stride", "element_size", "storage_offset"))
"""Methods whose results are numbers, or tuples of such."""


class Spelling(NamedTuple):
    """What a target spells: an operation, in place or not; `overload` alone if it is not None."""

    operation: str
    inplace: bool = False
    overload: str | None = None


def operation_of(node: fx.Node) -> Any:
    """What a node computes, as a key: equal for all spellings of an operation, whether they work in place or not."""
    spelling = _spelling_of(node)
    return spelling.operation if spelling is not None else (node.op, target_of(node))


def same_operation(p: fx.Node, g: fx.Node) -> bool:
    """Whether both nodes call the same operation."""
    return operation_of(p) == operation_of(g)


def bindings(p: fx.Node, g: fx.Node) -> Iterator[tuple[dict[str | int, Any], dict[str | int, Any]]]:
    """The arguments of two calls of the same operation by name, in every way in which both can be named.

    The first is as written, with positions for names, if both are written alike.
    """
    if p.op == g.op and target_of(p) == target_of(g):
        given = _operands_alone(p), _operands_alone(g)
        if len(given[0]) == len(given[1]) and p.kwargs.keys() == g.kwargs.keys():
            yield tuple({**dict(enumerate(args)), **n.kwargs} for args, n in zip(given, (p, g), strict=True))
        for signature in signatures(target_of(g)):
            named = signature.bind(p.args, p.kwargs), signature.bind(g.args, g.kwargs)
            if None not in named:
                yield named
    alike = p.target is g.target and _has_number_first(p) == _has_number_first(g)
    if not (alike and is_operator(g.target)):
        found = forms(g)
        for overload, arguments in forms(p).items():
            if overload in found:
                yield arguments, found[overload]


def _operands_alone(node: fx.Node) -> tuple:
    """Positional arguments; operands of `torch.einsum` one by one: it takes a tuple of them too, and passes them on
    singly, so that a traced pattern has them singly."""
    if target_of(node) is torch.functional.einsum and len(node.args) == 2 and isinstance(node.args[1], tuple | list):
        return (node.args[0], *node.args[1])
    return node.args


def _has_number_first(node: fx.Node) -> bool:
    """Whether a call is `1 + x` or the like: Python asks `x` for its sum, which is that of `x + 1`."""
    if not is_operator(node.target) or node.target.__name__ not in _COMMUTATIVE or len(node.args) != 2:
        return False
    return isinstance(node.args[0], int | float | complex) and isinstance(node.args[1], fx.Node)


def _spelling_of(node: fx.Node) -> Spelling | None:
    if node.op not in ("call_function", "call_method"):
        return None
    if node.target is getattr:
        return Spelling("transpose") if node.args[1:] == ("mT",) else None
    return _spelling(target_of(node), method=node.op == "call_method")


@functools.lru_cache(4096)
def _spelling(target: Any, *, method: bool) -> Spelling | None:
    if method and target in _CASTS:
        return Spelling("to", overload="dtype")
    if isinstance(target, torch._ops.OpOverload):
        if target.namespace != "aten":
            return None
        return _named(target._schema.name.removeprefix("aten::"), target._schema.overload_name)
    if is_operator(target):
        name = getattr(target, "__name__", "")
        inplace = name in _AUGMENTED
        operation = _AUGMENTED.get(name) or _OPERATORS.get(name)
        return None if operation is None or target.__module__ == "math" else Spelling(operation, inplace)
    if target in (*_WRITTEN_IN_PYTHON.values(), torch.functional.meshgrid):
        return Spelling(target.__name__)
    if isinstance(target, FunctionType):
        name = target.__name__
        return Spelling(_aliases().get(name, name)) if _is_operator_of_its_name(target) else None
    if method or isinstance(target, BuiltinFunctionType):
        return _named(target if method else target.__name__)
    return None


def _is_operator_of_its_name(function: FunctionType) -> bool:
    """Whether each parameter of a function of `torch.nn.functional` is one of the operator of its name."""
    if function.__module__ != "torch.nn.functional":
        return False
    return any(
        _operators_names(schema, signature.names).keys() >= {*schema.names} - schema.defaults.keys()
        for signature in signatures(function)
        for _, schema in _overloads(function.__name__, method=False)
        if _operators_names(schema, signature.names).keys() <= {*schema.names}
    )


def _operators_names(schema: OpSignature, names: Iterable[str]) -> dict[str, str]:
    """The operator's names of a function's parameters, and the function's own. `_stacklevel` and `inplace` are none of
    the operator's."""
    public = [n for n in names if n != INPLACE and not n.startswith("_")]
    return {n if n in schema.names else PYTHON_NAMES.get(n, n): n for n in public}


@functools.cache
def _aliases() -> dict[str, str]:
    """Operators that torch documents as other names → what they are names of: `multiply` → `mul`."""
    table: dict[str, str] = {}
    for name, other in targets.documented_aliases().items():
        if name[0] == ".":
            table.setdefault(name[1:], other[1:])
        else:
            table[targets.resolve(name).__name__] = targets.resolve(other).__name__
    return table


def _named(name: str, overload: str | None = None) -> Spelling | None:
    name = _aliases().get(name, name)
    plain = name.removesuffix("_")
    if plain != name and not name.endswith("__") and schemas(plain):
        return Spelling(plain, True, overload)
    return Spelling(name, False, overload) if schemas(name) else None


def forms(node: fx.Node) -> dict[str, dict[str, Any]]:
    """The arguments of a node by the operation's own names, defaults filled in, for each overload that they fit.

    `INPLACE` is among the names. Empty where the node spells no operation, or where its first argument is a number:
    torch takes numbers for tensors there, each spelling in a way of its own.
    """
    spelling = _spelling_of(node)
    if spelling is None:
        return {}
    found = {
        overload: {INPLACE: spelling.inplace, **arguments} if INPLACE not in arguments else arguments
        for overload, arguments in _arguments(node, spelling).items()
        if spelling.overload in (None, overload) and not _is_number(arguments.get("self"))
    }
    normal = _NORMAL.get(spelling.operation)
    return {overload: normal(a) for overload, a in found.items()} if normal is not None else found


def _arguments(node: fx.Node, spelling: Spelling) -> dict[str, dict[str, Any]]:
    args, kwargs, target = node.args, node.kwargs, target_of(node)
    if _has_number_first(node):
        args = args[::-1]
    if target is getattr:
        args, kwargs = (args[0], -2, -1), {}
    elif node.op == "call_method" and target in _CASTS:
        args = (args[0], _CASTS[target], *((False, False, *args[1:]) if len(args) > 1 else ()))
    function = _WRITTEN_IN_PYTHON.get(spelling.operation)
    if function is not None:
        return _by_function(function, args, kwargs)
    if target is torch.functional.meshgrid:  # takes a list too, which a traced pattern hands on to the operator
        args = args if len(args) == 1 and isinstance(args[0], tuple | list) else (args,)
    elif isinstance(target, FunctionType):
        return _of_functional(target, args, kwargs)
    name = spelling.operation + "_" * (spelling.inplace and not is_operator(target))
    bound = {o: s.bind(args, kwargs) for o, s in _overloads(name, method=node.op == "call_method")}
    return {overload: arguments for overload, arguments in bound.items() if arguments is not None}


@functools.lru_cache(4096)
def _overloads(name: str, *, method: bool) -> tuple[tuple[str, OpSignature], ...]:
    """Signatures of an operator by overload; a method's own tensor comes first."""
    return tuple((s.overload_name, schema_signature(s, own_first=method)) for s in schemas(name))


def _by_function(function: Callable, args: tuple, kwargs: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Arguments of a function that is written in Python, or of the method that calls it."""
    (signature,) = signatures(function)
    first = signature.names[0]
    named = {{"self": first, "split_size": "split_size_or_sections"}.get(k, k): v for k, v in kwargs.items()}
    bound = signature.bind(args, named)
    return {} if bound is None else {"": {**bound, "self": bound[first]}}


def _of_functional(function: FunctionType, args: tuple, kwargs: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Arguments of a function of `torch.nn.functional` as those of the operator of its name, where they are."""
    found = {}
    for signature in signatures(function):
        bound = signature.bind(args, kwargs)
        if bound is None or type(bound.get(INPLACE, False)) is not bool:
            continue
        given = {*signature.names[: len(args)], *kwargs}
        left = {n for n in signature.names if n not in given}
        for overload, schema in _overloads(function.__name__, method=False):
            public = {name: bound[own] for name, own in _operators_names(schema, bound).items()}
            own_defaults = {name for name, own in _operators_names(schema, left).items()}
            if all(n in schema.defaults and schema.defaults[n] == public[n] for n in own_defaults):
                arguments = schema.bind((), public)
                if arguments is not None:
                    found[overload] = {INPLACE: bound.get(INPLACE, False), **arguments}
    return found


def _is_number(value: Any) -> bool:
    """Whether a value of a graph is a number, or arithmetic on sizes."""
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if not isinstance(value, fx.Node):
            if isinstance(value, bool | int | float | complex):
                continue
            return False
        if value.op == "call_method" and value.target in _NUMBERS:
            continue
        if value.op != "call_function":
            return False
        if value.target is getattr:
            if value.args[1] not in ("shape", "ndim", "itemsize"):
                return False
        elif value.target is operator.getitem:
            waiting.append(value.args[0])
        elif is_operator(value.target) or getattr(value.target, "__name__", "").startswith("sym_"):
            waiting += value.args
        else:
            return False
    return True


def _transposed(arguments: dict[str, Any]) -> dict[str, Any]:
    """The order of the two dimensions does not matter."""
    one, other = arguments.get("dim0"), arguments.get("dim1")
    if type(one) is int and type(other) is int:
        return {**arguments, "dim0": min(one, other), "dim1": max(one, other)}
    return arguments


def _permuted(arguments: dict[str, Any]) -> dict[str, Any]:
    """All dimensions are named, so that each is counted from the front."""
    dims = arguments.get("dims")
    if isinstance(dims, tuple | list) and all(type(d) is int for d in dims):
        return {**arguments, "dims": tuple(d % len(dims) for d in dims)}
    return arguments


_NORMAL = {"transpose": _transposed, "permute": _permuted}
"""Operations of which arguments that differ mean the same."""

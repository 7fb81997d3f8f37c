"""How the arguments of a call can be named: by position or by keyword, left out or given as their default, sizes one by
one or as a tuple, `1` where a list of `N` is meant.

`passbench.matching.operations` says which calls are spellings of one operation.
"""

import functools
import inspect
import operator
from types import FunctionType
from typing import Any, NamedTuple

import torch
from torch import fx

from storage.graph.targets import documented_aliases, resolve

_SAME = {abs: operator.abs, pow: operator.pow}
"""Built-ins that a trace records as operators."""
PYTHON_NAMES = {"input": "self", "axis": "dim", "keepdims": "keepdim", "x2": "other"}
"""Names that torch's Python bindings take for a schema's."""


def target_of(node: fx.Node) -> Any:
    """What a node calls: a function, or a method's name; of names that torch documents as aliases, the one meant."""
    if isinstance(node.target, str):
        return documented_aliases().get(f".{node.target}", f".{node.target}").removeprefix(".")
    return _aliases().get(node.target, node.target)


@functools.cache
def _aliases() -> dict[Any, Any]:
    """Functions that torch documents as other names → what they are names of; built-ins → the operators that a trace
    records."""
    documented = {resolve(name): resolve(other) for name, other in documented_aliases().items() if name[0] != "."}
    return documented | _SAME


def op_name(node: fx.Node) -> str:
    """The bare name of what a node calls: `relu_` of `torch.relu_`, `.relu_()` and `aten.relu_.default`."""
    if isinstance(node.target, str):
        return node.target
    if isinstance(node.target, torch._ops.OpOverload):
        return node.target._schema.name.rpartition("::")[2]
    return getattr(node.target, "__name__", str(node.target))


class OpSignature(NamedTuple):
    """How arguments can be named: parameters in order, those by keyword only last.

    `sizes` are the lengths of parameters that take a number for a list of equal ones; `variadic` says that the last
    positional parameter takes its list item by item too.
    """

    names: tuple[str, ...]
    positional: int
    defaults: dict[str, Any]
    sizes: dict[str, int]
    variadic: bool

    def bind(self, args: tuple, kwargs: dict[str, Any]) -> dict[str, Any] | None:
        """Arguments by parameter name, defaults filled in; None where they do not fit."""
        named = {k if k in self.names else PYTHON_NAMES.get(k, k): v for k, v in kwargs.items()}
        last = self.positional - 1
        if self.variadic and len(args) > last and all(_is_item(a) for a in args[last:]):
            args = (*args[:last], tuple(args[last:]))
        if len(args) > self.positional or not named.keys() <= set(self.names):
            return None
        bound = dict(zip(self.names, args, strict=False))
        if bound.keys() & named.keys():
            return None
        result = {**self.defaults, **bound, **named}
        if result.keys() != set(self.names):
            return None
        return {name: self._listed(name, result[name]) for name in self.names}

    def _listed(self, name: str, value: Any) -> Any:
        return (value,) * self.sizes[name] if type(value) is int and name in self.sizes else value


def _is_item(value: Any) -> bool:
    return isinstance(value, fx.Node) or type(value) is int


@functools.lru_cache(4096)
def signatures(target: Any) -> tuple[OpSignature, ...]:
    """Ways in which the arguments of a function, or of a method by name, can be named; none for operators."""
    if isinstance(target, FunctionType):
        return _of_function(_undispatched(target))
    if is_operator(target):
        return ()
    return tuple(schema_signature(schema) for schema in schemas(target))


def _of_function(function: FunctionType) -> tuple[OpSignature, ...]:
    parameters = inspect.signature(function).parameters.values()
    if any(p.kind not in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) for p in parameters):
        return ()
    names = tuple(p.name for p in parameters)
    positional = sum(p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters)
    defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
    return (OpSignature(names, positional, defaults, {}, False),)


def _undispatched(function: FunctionType) -> FunctionType:
    """`F.max_pool2d` and its like take anything and dispatch on a flag; either branch knows the parameters."""
    if function.__qualname__ != "boolean_dispatch.<locals>.fn":
        return function
    return inspect.getclosurevars(function).nonlocals["if_false"]


@functools.lru_cache(4096)
def schemas(target: Any) -> tuple:
    """The ATen schemas of a function or method that take or give a tensor."""
    if isinstance(target, torch._ops.OpOverload):
        return (target._schema,)
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    found = torch._C._jit_get_schemas_for_operator(f"aten::{name}")
    return tuple(s for s in found if any("Tensor" in str(v.type) for v in (*s.arguments, *s.returns)))


def schema_signature(schema: Any, *, own_first: bool = False) -> OpSignature:
    """The signature of an ATen schema. `own_first`: `self` comes before all others, as it does for a method."""
    arguments = sorted(schema.arguments, key=lambda a: (a.kwarg_only, own_first and a.name != "self"))
    names = tuple(a.name for a in arguments)
    free = [a for a in arguments if not a.kwarg_only]
    lists = [a for a in free if str(a.type) in ("List[int]", "Optional[List[int]]")]
    defaults = {a.name: _default(a) for a in arguments if a.has_default_value()}
    sizes = {a.name: a.N for a in lists if a.N}
    method = bool(free) and free[0].name == "self"
    variadic = len(free) == 1 + method and bool(lists) and lists[0] is free[-1] and not lists[0].N
    return OpSignature(names, len(free), defaults, sizes, variadic)


def _default(argument: Any) -> Any:
    value = argument.default_value
    return torch.contiguous_format if argument.name == "memory_format" and value == 0 else value


def is_operator(target: Any) -> bool:
    """Whether the target is one of Python's operators or built-ins."""
    return getattr(target, "__module__", None) in ("_operator", "operator", "builtins", "math")


def argument(node: fx.Node, name: str) -> Any:
    """The argument called `name`, its default where it is not given, None where the operation has none."""
    for signature in signatures(target_of(node)):
        bound = signature.bind(node.args, node.kwargs)
        if bound is not None and name in bound:
            return bound[name]
    return node.kwargs.get(name)

"""A pass's `pattern` function as an fx graph, traced with symbolic values."""

import contextlib
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import fx
from torch.fx import _symbolic_trace
from torch.fx.node import map_aggregate
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.overrides import TorchFunctionMode

from passbench.contract import ContractError
from passbench.matching.source_line import source_here
from storage.graph import targets

_INPLACE = """iadd isub imul itruediv ifloordiv imod ipow imatmul iand ior ixor ilshift irshift""".split()
_DISPATCHED = tuple(f for f in vars(F).values() if getattr(f, "__qualname__", "") == "boolean_dispatch.<locals>.fn")
_NOT_RECORDED = (F.sigmoid, F.tanh, *_DISPATCHED)
"""Functions that call others where they should record themselves, as dynamo does."""
_FIELDS = {"values": 0, "indices": 1}
"""Fields of results such as `torch.max`'s, which dynamo reads by number."""


class _PatternProxy(fx.Proxy):
    """A proxy that records `x += y` as `operator.iadd`, as dynamo does, where fx would record `x + y`."""

    def __getattr__(self, name: str) -> Any:
        return self[_FIELDS[name]] if name in _FIELDS else super().__getattr__(name)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.tracer.create_proxy("call_function", operator.setitem, (self, key, value), {})


def _inplace_method(target: Callable) -> Callable:
    def method(self: fx.Proxy, other: Any) -> fx.Proxy:
        return self.tracer.create_proxy("call_function", target, (self, other), {})

    return method


for _name in _INPLACE:
    setattr(_PatternProxy, f"__{_name}__", _inplace_method(getattr(operator, _name)))


class _Recorder(TorchFunctionMode):
    """Records calls that involve no symbolic value, such as `torch.arange(4)`, where fx would execute them."""

    def __init__(self, tracer: fx.Tracer) -> None:
        super().__init__()
        self._tracer = tracer

    def __torch_function__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        symbolic: list[fx.Proxy] = []
        map_aggregate((args, kwargs), lambda x: symbolic.append(x) if isinstance(x, fx.Proxy) else None)
        if symbolic or isinstance(func, type):  # torch.device and the like are constants
            return func(*args, **kwargs)
        return self._tracer.create_proxy("call_function", func, args, kwargs)


def _as_method(name: str, original: Callable) -> Callable:
    def method(value: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(value, fx.Proxy):
            return value.tracer.create_proxy("call_method", name, (value, *args), kwargs)
        return original(value, *args, **kwargs)

    return method


@contextlib.contextmanager
def _methods_of_tensor(names: set[str]) -> Iterator[None]:
    """Within it, `torch.Tensor.add(x, y)` of a symbolic `x` is `x.add(y)`; torch's own would refuse what is no tensor.

    `names` are those of methods.
    """
    own = {name: vars(torch.Tensor)[name] for name in names if name in vars(torch.Tensor)}

    for name in names:
        setattr(torch.Tensor, name, _as_method(name, getattr(torch.Tensor, name)))
    try:
        yield
    finally:
        for name in names:
            if name in own:
                setattr(torch.Tensor, name, own[name])
            else:
                delattr(torch.Tensor, name)


@contextlib.contextmanager
def _no_module_called() -> Iterator[None]:
    """Within it, a module that is called raises NameError, as torch.fx says it of one that its root does not hold.

    torch.fx would replace methods of all modules for the time of a trace, after which Python looks up anew what it knew
    of a thousand classes: two fifths of tracing a small pattern.
    """

    def refuse(module: torch.nn.Module, arguments: Any) -> None:
        raise NameError("module is not installed as a submodule")

    hook = register_module_forward_pre_hook(refuse)
    try:
        with patch.object(_symbolic_trace._Patcher, "patch_method", lambda *_, **__: None):
            yield
    finally:
        hook.remove()


class PatternTracer(fx.Tracer):
    """Traces straight-line torch code; no module, no control flow on values.

    Nodes carry the expression that they come from in `meta["source"]`, and its line in `meta["line"]`.
    """

    def __init__(self) -> None:
        super().__init__(autowrap_functions=_NOT_RECORDED)
        self._autowrap_search.append(F)

    def proxy(self, node: fx.Node) -> fx.Proxy:
        return _PatternProxy(node, self)

    def create_node(self, kind: str, *args: Any, **kwargs: Any) -> fx.Node:
        node = super().create_node(kind, *args, **kwargs)
        if kind.startswith("call_"):
            node.meta["line"], node.meta["source"] = source_here(self._code)
        return node

    def trace(self, root: Callable, concrete_args: dict[str, Any] | None = None) -> fx.Graph:
        self._code = root.__code__
        named = set(root.__code__.co_names)
        methods = named & targets.methods() if "Tensor" in named else set()
        with _methods_of_tensor(methods), _no_module_called(), _Recorder(self):
            graph = super().trace(root, concrete_args)
        for node in graph.nodes:
            node.meta.pop("is_wrapped", None)
        return graph


@dataclass(frozen=True)
class Pattern:
    """A traced pattern: `parameters` are its placeholders, `ops` its operations in order, `outputs` what it returns;
    `single` says that it returns one value rather than a tuple."""

    name: str
    parameters: tuple[fx.Node, ...]
    ops: tuple[fx.Node, ...]
    outputs: tuple[fx.Node, ...]
    single: bool


def trace_pattern(function: Callable, name: str) -> Pattern:
    """Trace `pattern` of module `name`; attribute reads such as `x.shape` become `getattr` nodes.

    Raises ContractError if it cannot be traced, computes nothing, or returns anything but results of its operations.
    """
    where = f"{name}.py: pattern"
    try:
        with torch.no_grad():
            graph = PatternTracer().trace(function)
    except BaseException as error:  # pattern is pass code: it can raise anything
        raise ContractError(
            f"{where} cannot be traced: {type(error).__name__}: {error}; write straight-line torch code"
        ) from error
    ops = tuple(n for n in graph.nodes if n.op in ("call_function", "call_method"))
    strange = [n for n in graph.nodes if n.op in ("get_attr", "call_module")]
    if strange:
        raise ContractError(
            f"{where} uses {strange[0].target!r}, a tensor or module of its own; take it as a parameter"
        )
    if not ops:
        raise ContractError(f"{where} computes nothing; write the operations to replace")
    (output,) = (n for n in graph.nodes if n.op == "output")
    returned = output.args[0]
    single = isinstance(returned, fx.Node)
    outputs = (returned,) if single else returned
    if not isinstance(outputs, tuple | list) or not outputs:
        raise ContractError(f"{where} must return a tensor or a tuple of tensors")
    for value in outputs:
        if not isinstance(value, fx.Node) or value.op == "placeholder":
            raise ContractError(f"{where} returns {value}, which is no result of its operations; leave it out")
    parameters = tuple(n for n in graph.nodes if n.op == "placeholder")
    for parameter in parameters:
        if not parameter.users:
            raise ContractError(f"{where} does not use its parameter {parameter.target!r}; leave it out")
    return Pattern(name, parameters, ops, tuple(outputs), single)

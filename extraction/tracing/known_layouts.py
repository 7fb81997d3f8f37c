"""Dynamo's fake tensors of repeated operators: a layout that this capture knows already is not derived again.

For each operator that it meets, dynamo runs the operator on fake tensors with symbolic sizes to learn the layout of the
result. That is two thirds of the time of a capture. In a model of equal blocks most operators come again with operands
of the same layouts, and so with results of the same.
"""

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import fx
from torch._dynamo import utils as dynamo
from torch._subclasses.fake_tensor import FakeTensor, in_kernel_invocation_manager
from torch.utils._pytree import tree_leaves

_DECIDING = (
    bool, int, float, complex, str, type(None), type(...), torch.dtype, torch.device, torch.layout, torch.memory_format
)  # fmt: skip
"""Types of arguments that are compared by value. Others, such as functions and generators, are not remembered."""
_OF_STORAGE = ("as_strided", "resize", "set_", "storage")
"""Parts of the names of operators whose results depend on more of an operand than its layout."""

_run_node = dynamo.run_node


class _NotRemembered(Exception):
    """An operand, a result or an operator for which the layouts do not say all."""


class KnownLayouts:
    """What operators made of operands of a layout so far, within one capture; `reused` counts what was known."""

    def __init__(self) -> None:
        self.reused = 0
        self._known: dict[Hashable, Any] = {}

    @contextmanager
    def used(self) -> Iterator[None]:
        """Dynamo asks here first inside the `with` block."""
        with patch.object(dynamo, "run_node", self._run):
            yield

    def _run(self, tracer: Any, node: fx.Node, args: Any, kwargs: Any, nnmodule: Any) -> Any:
        """As `torch._dynamo.utils.run_node`."""
        try:
            key = (tracer.fake_mode, *_situation(tracer, node), _key(args), _key(kwargs))
            if key in self._known:
                self.reused += 1
                return _made_again(self._known[key], args, kwargs)
        except _NotRemembered:
            return _run_node(tracer, node, args, kwargs, nnmodule)
        result = _run_node(tracer, node, args, kwargs, nnmodule)
        try:
            if key[-2:] == (_key(args), _key(kwargs)):  # no operand has another layout now
                self._known[key] = _remembered(result, tree_leaves((args, kwargs)))
        except _NotRemembered:
            pass  # as a number, which may be another one the next time
        return result


def _situation(tracer: Any, node: fx.Node) -> tuple[Hashable, ...]:
    """What decides beside the operands. A symbolic size belongs to its fake mode."""
    if node.op not in ("call_function", "call_method") or torch.is_grad_enabled() or tracer.current_tracer.parent:
        raise _NotRemembered
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    if any(part in name for part in _OF_STORAGE):
        raise _NotRemembered
    autocast = tuple((torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in ("cpu", "cuda"))
    return node.op, node.target, autocast, torch.get_default_dtype()


def _key(value: Any) -> Hashable:
    """The same for values of which an operator makes results of the same layout. Raises _NotRemembered."""
    if isinstance(value, torch.Tensor):
        return _layout(value)
    if isinstance(value, tuple | list):
        return (isinstance(value, tuple), *map(_key, value))
    if isinstance(value, dict):
        return (dict, *((name, _key(each)) for name, each in value.items()))
    if isinstance(value, slice):
        return (slice, _key(value.start), _key(value.stop), _key(value.step))
    if isinstance(value, torch.SymInt):
        return (torch.SymInt, value.node._expr)
    if isinstance(value, _DECIDING):
        return (type(value), value)
    raise _NotRemembered


def _layout(tensor: torch.Tensor) -> Hashable:
    plain = type(tensor) is FakeTensor and tensor.layout == torch.strided and tensor.constant is None
    if not plain or tensor.is_quantized or tensor.is_conj() or tensor.is_neg():
        raise _NotRemembered
    numbers = (*tensor.shape, *tensor.stride(), tensor.storage_offset())
    place = (tensor.dtype, tensor.fake_device, tensor.requires_grad, getattr(tensor, "_is_param", False))
    return (place, *(each.node._expr if isinstance(each, torch.SymInt) else each for each in numbers))


def _remembered(result: Any, operands: list[Any]) -> Any:
    """What `_made_again` needs: a tensor of the layout, or the number of the operand that was changed in place."""
    if isinstance(result, tuple | list) and type(result) in (tuple, list):
        return type(result)(_remembered(each, operands) for each in result)
    if not isinstance(result, torch.Tensor):
        raise _NotRemembered
    for number, operand in enumerate(operands):
        if operand is result:
            return number
    _layout(result)
    if result.requires_grad:
        raise _NotRemembered
    return _like(result)  # the result's own layout may be changed in place later


def _made_again(known: Any, args: Any, kwargs: Any) -> Any:
    if isinstance(known, tuple | list):
        return type(known)(_made_again(each, args, kwargs) for each in known)
    if isinstance(known, int):
        changed = tree_leaves((args, kwargs))[known]
        torch.autograd.graph.increment_version(changed)
        return changed
    return _like(known)


def _like(tensor: FakeTensor) -> FakeTensor:
    with in_kernel_invocation_manager(tensor.fake_mode):
        return FakeTensor(tensor.fake_mode, tensor, tensor.fake_device)

"""A subgraph and its gradients as one graph of ATen ops, recorded while autograd runs once on tensors without data.

AOTAutograd (`torch._functorch.aot_autograd`) makes the same graph of any subgraph, at several times the cost: it runs
the subgraph first to see which memory it shares and changes, and then with stand-ins that make every change a new
value. What is recorded here needs neither, since no two outputs share memory and in-place ops change what nothing else
sees.
"""

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import fx
from torch._dispatch.python import enable_python_dispatcher
from torch._prims_common import suggest_memory_format
from torch._subclasses import FakeTensorMode
from torch.fx._lazy_graph_module import _LazyGraphModule
from torch.utils._python_dispatch import TorchDispatchMode

from extraction.analysis.fake_answers import answer, remembered
from extraction.analysis.meta_kernels import (
    DESCRIBED_FACTORIES,
    asks,
    described_by_meta_tensors,
    is_asked,
    is_described,
    is_doubtful,
    is_remembered,
)
from storage.graph import targets
from storage.graph.record import Graph, Op, Ref, RunDevice, Value, map_refs
from storage.records import Input, dtype_of

_META, _CPU = torch.device("meta"), torch.device("cpu")

_FACTORIES = frozenset("arange empty empty_strided eye full linspace ones range scalar_tensor zeros".split())


class NotRecorded(Exception):
    """The subgraph is not of the kind that is recorded; AOTAutograd may trace it."""


def joint_graph(graph: Graph, inputs: Sequence[Input], differentiable: Sequence[bool]) -> tuple[fx.GraphModule, int]:
    """The joint graph in the form that the partitioners of `torch._functorch` take, and its number of forward outputs.

    Its inputs are the subgraph's (`primals_1…`) and a gradient of each output that has one (`tangents_1…`); its outputs
    are the subgraph's, and a gradient or None for each input. `differentiable` says by which inputs.

    Raises NotRecorded, and what an op raises that refuses its arguments or has no derivative.
    """
    if described_by_meta_tensors(graph):
        try:
            return _recorded(graph, inputs, differentiable, _META)
        except NotRecorded:
            pass  # fake tensors may do
    with FakeTensorMode(allow_non_fake_inputs=True):
        return _recorded(graph, inputs, differentiable, _CPU)


def _recorded(
    graph: Graph, inputs: Sequence[Input], differentiable: Sequence[bool], device: torch.device
) -> tuple[fx.GraphModule, int]:
    recorder = _JointRecorder(device, doubts=device == _META and asks(graph))
    primals = [recorder.placeholder("primals", i.shape, i.stride, dtype_of(i.dtype)) for i in inputs]
    wanted = [primal.requires_grad_() for primal, yes in zip(primals, differentiable, strict=True) if yes]
    values: list[Any] = list(primals)
    with enable_python_dispatcher():
        with recorder:
            for op in graph.ops:
                values.append(_called(op, values, device))
        recorder.check()
        outputs = _outputs(graph, values)
        needed = [out for out in outputs if out.requires_grad]
        if not needed:
            raise NotRecorded("no output has a gradient")
        ahead = [recorder.node_of(out) for out in outputs]
        recorder.tag = "is_backward"
        tangents = [recorder.placeholder("tangents", out.shape, _dense(out), out.dtype) for out in needed]
        with recorder:
            found = iter(torch.autograd.grad(needed, wanted, tangents, allow_unused=True))
    recorder.check()
    gradients = [next(found) if primal.requires_grad else None for primal in primals]
    back = [None if each is None else recorder.node_of(each) for each in gradients]
    recorder.graph.output([*ahead, *back])
    return _LazyGraphModule(torch.nn.Module(), recorder.graph), len(ahead)


def _called(op: Op, values: Sequence[Any], device: torch.device) -> Any:
    def resolved(value: Value) -> Any:
        if isinstance(value, RunDevice):
            return device
        if type(value) is tuple or type(value) is list:
            return type(value)(map(resolved, value))
        return {key: resolved(item) for key, item in value.items()} if isinstance(value, dict) else value

    args, kwargs = (resolved(map_refs(part, lambda ref: values[ref.index])) for part in (op.args, op.kwargs))
    if op.kind == "method":
        return getattr(args[0], targets.check_method(op.target))(*args[1:], **kwargs)
    return targets.resolve(op.target)(*args, **kwargs)


def _outputs(graph: Graph, values: Sequence[Any]) -> list[torch.Tensor]:
    refs = graph.output if isinstance(graph.output, tuple | list) else (graph.output,)
    outputs = [values[ref.index] if isinstance(ref, Ref) else None for ref in refs]
    if not all(isinstance(out, torch.Tensor) for out in outputs):
        raise NotRecorded("an output is no tensor")
    memory = {_memory(out) for out in outputs}
    if len(memory) < len(outputs) or not memory.isdisjoint(map(_memory, values[: graph.inputs])):
        raise NotRecorded("outputs share memory")
    return outputs


def _dense(tensor: torch.Tensor) -> tuple[int, ...]:
    """The strides of a tensor without gaps, as AOTAutograd expects tangents: rows first, or channels where they are."""
    with torch.no_grad():
        return tensor.contiguous(memory_format=suggest_memory_format(tensor)).stride()


def _memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


class _JointRecorder(TorchDispatchMode):
    """Records the ATen ops that are called below autograd, as `torch.fx.experimental.proxy_tensor.make_fx` does.

    `tag` is what the partitioner is told of the nodes to come: forward or backward.
    """

    def __init__(self, device: torch.device, doubts: bool) -> None:
        super().__init__()
        self._doubts = doubts
        self.graph = fx.Graph()
        self.tag = "is_forward"
        self._refused = ""
        self._device = device
        self._nodes: dict[int, fx.Node] = {}
        self._tensors: list[torch.Tensor] = []  # alive, so that no other tensor gets the identity of one of `_nodes`

    def placeholder(self, kind: str, shape: Sequence[int], stride: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """A new input of the graph, in the order of their numbers within a kind."""
        tensor = torch.empty_strided(shape, stride, dtype=dtype, device=self._device)
        number = 1 + sum(node.target.startswith(kind) for node in self.graph.find_nodes(op="placeholder"))
        last = next(reversed(self.graph.find_nodes(op="placeholder")), None)
        with self.graph.inserting_after(last) if last else self.graph.inserting_before(None):
            self._made(tensor, self.graph.placeholder(f"{kind}_{number}"))
        return tensor

    def node_of(self, tensor: torch.Tensor) -> fx.Node:
        """The node of a tensor. Raises NotRecorded if it is from elsewhere."""
        if id(tensor) not in self._nodes:
            raise NotRecorded("a constant")
        return self._nodes[id(tensor)]

    def check(self) -> None:
        """Raises NotRecorded if something could not be recorded."""
        if self._refused:
            raise NotRecorded(self._refused)

    def __torch_dispatch__(
        self, func: Any, types: Iterable[type], args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if self._device == _META and is_asked(_name(func)):
            result = answer(func, args, kwargs or {})
        elif self._device == _META and is_remembered(_name(func)) and not _trains(func, args):
            result = remembered(func, args, kwargs or {})
        else:
            result = func(*args, **(kwargs or {}))
        if (
            not self._refused and func.namespace != "prim"
        ):  # an exception that is raised below autograd may end the process
            try:
                self._record(func, args, kwargs or {}, result)
            except NotRecorded as error:
                self._refused = str(error)
        return result

    def _record(self, func: Any, args: tuple, kwargs: dict[str, Any], result: Any) -> None:
        name = _name(func)
        here = name in DESCRIBED_FACTORIES and kwargs.get("device") == _META
        if self._device == _META and not (here or is_asked(name) or is_described(name.removesuffix("_"))):
            raise NotRecorded(f"{name}: meta tensors may not describe it")
        if self._doubts and is_doubtful(name, args[0] if args else None, result):
            raise NotRecorded(f"{name}: meta tensors may tell another stride")
        if self.tag == "is_forward" and torch._C._dispatch_has_kernel_for_dispatch_key(
            func.name(), "CompositeImplicitAutograd"
        ):
            raise NotRecorded(f"{name}: it has no derivative of its own")
        if func is torch.ops.aten.detach.default and _is_factory(self.node_of(args[0]).target):
            self._nodes[id(result)] = self.node_of(args[0])  # torch does so where a new tensor is held by someone
            self._tensors.append(result)
            return
        target = self._functional(func, args) if func._schema.is_mutable else func
        self._made(result, self.graph.call_function(target, _nodes(args, self.node_of), _nodes(kwargs, self.node_of)))

    def _functional(self, func: Any, args: tuple) -> Any:
        """The op that computes what an in-place op writes, where nothing else sees that memory."""
        packet, changed = func.overloadpacket, args[0]
        alone = sum(_memory(tensor) == _memory(changed) for tensor in self._tensors) == 1
        other = getattr(torch.ops.aten, packet.__name__.removesuffix("_"), None)
        if (
            not packet.__name__.endswith("_")
            or not alone
            or func._overloadname not in (other.overloads() if other else ())
        ):
            raise NotRecorded("memory changes that others may see")
        return getattr(other, func._overloadname)

    def _made(self, value: Any, node: fx.Node) -> None:
        node.meta["partitioner_tag"] = self.tag
        node.meta["val"] = value
        if isinstance(value, torch.Tensor):
            if value.device != self._device:
                raise NotRecorded("a tensor of another device")
            if id(value) not in self._nodes:
                self._tensors.append(value)
            self._nodes[id(value)] = node
        elif isinstance(value, tuple | list):
            for number, item in enumerate(value):
                if item is not None:
                    self._made(item, self.graph.call_function(operator.getitem, (node, number)))
        else:
            raise NotRecorded(f"a result of type {type(value).__name__}")


def _name(func: Any) -> str:
    return func._schema.name.removeprefix("aten::")


def _trains(func: Any, args: tuple) -> bool:
    """Whether the op changes running statistics."""
    return func is torch.ops.aten.native_batch_norm.default and args[5]


def _is_factory(target: Any) -> bool:
    name = getattr(target, "_opname", "")
    return name in _FACTORIES or name.endswith("_like")


def _nodes(value: Any, node_of: Callable[[torch.Tensor], fx.Node]) -> Any:
    """Arguments with nodes in place of tensors."""
    if isinstance(value, torch.Tensor):
        return node_of(value)
    if type(value) in (tuple, list):
        return type(value)(_nodes(item, node_of) for item in value)
    return {key: _nodes(item, node_of) for key, item in value.items()} if isinstance(value, dict) else value

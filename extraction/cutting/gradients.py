"""Forward and backward graph of a subgraph, as `torch.compile` splits them for training.

A concrete subgraph and its gradients are traced together, in ATen ops on tensors without data
(`extraction.cutting.joint`, or AOTAutograd where that cannot). The min-cut partitioner of
`torch._functorch.partitioners` splits them: what is cheap is computed again in the backward graph, and the rest is
saved by the forward graph. The backward graph takes the saved values and the gradients of the outputs
(tangents), and returns the gradients of the float inputs; buffers get none.

Attention is traced as its mathematics, since its fused kernels have a backward for one kind of device each.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from unittest.mock import patch

import torch
from torch import fx
from torch._functorch import config as functorch_config
from torch._functorch.aot_autograd import aot_module_simplified
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._subclasses import FakeTensorMode
from torch.fx._lazy_graph_module import _use_lazy_graph_module
from torch.nn.attention import SDPBackend, sdpa_kernel

from extraction.analysis.intervals import intervals
from extraction.analysis.propagate import Invalid, Propagated, propagate, told_by
from extraction.analysis.value_ranges import ANY, Interval, drawn_from
from extraction.analysis.values import TensorValue
from extraction.cutting.joint import joint_graph
from storage.errors import PassNetError
from storage.graph.as_fx import from_fx, to_module
from storage.graph.effects import writes
from storage.graph.record import Graph, GraphError, Op, Ref, map_refs
from storage.graph.targets import TargetError
from storage.records import Input, Variant, dtype_name, dtype_of

TANGENT_STD = 0.1
"""The deviation of drawn tangents. With 1, sums of their products overflow half precision in long graphs."""
_ATEN = torch.ops.aten
_IDENTITIES = frozenset((_ATEN.detach.default, _ATEN.alias.default))
_VIEWS = _IDENTITIES | frozenset(
    (_ATEN.view.default, _ATEN._unsafe_view.default, _ATEN.reshape.default, _ATEN.t.default, _ATEN.permute.default,
     _ATEN.transpose.int, _ATEN.expand.default, _ATEN.unsqueeze.default, _ATEN.squeeze.dim, _ATEN.squeeze.dims,
     _ATEN.clone.default)
)  # fmt: skip
_ONE_DEVICE = ("_for_cpu", "mkldnn", "mkl_", "cudnn", "_thnn")


class BackwardError(PassNetError):
    """A subgraph has no backward graph that a record can hold; the message is the cause, in few words."""


@dataclass(frozen=True)
class Split:
    """A subgraph's forward and backward graph in ATen ops.

    `saved[n]` is the number, in the forward graph, of the value that input n of the backward graph is. The inputs after
    those are tangents, and `tangents[n]` says of which output, counting those that have a gradient. `gradients[n]` are
    the inputs of the subgraph whose gradient output n is; one that is a tangent as it is has no output. `propagated` is
    what `propagate` says of the backward graph.
    """

    forward: Graph
    backward: Graph
    inputs: tuple[Input, ...]
    saved: tuple[int, ...]
    tangents: tuple[int, ...]
    gradients: tuple[tuple[int, ...], ...]
    propagated: Propagated | Invalid


def split(variant: Variant) -> Split:
    """The forward and backward graph of a concrete subgraph; the inputs are those of the backward graph.

    Inputs of the subgraph, and views of them, are drawn as there; what it computed in the interval that its ops tell;
    tangents from a normal distribution of deviation TANGENT_STD. Raises BackwardError.
    """
    ahead, back = _trace(variant)
    if any(mark in str(node.target) for node in back.graph.nodes for mark in _ONE_DEVICE):
        raise BackwardError("an op of one kind of device")
    try:
        forward = from_fx(ahead.graph)
        gradients = _simplify(back.graph)
        graph = from_fx(back.graph)
    except TargetError as error:
        raise BackwardError("target") from error
    except GraphError as error:
        raise BackwardError("graph") from error
    if forward.inputs != len(variant.inputs):
        raise BackwardError("AOTAutograd changed the inputs")
    nodes = [node for node in ahead.graph.nodes if node.op != "output"]
    numbers = {node.name: number for number, node in enumerate(nodes)}
    known = _known(forward, variant, _recorded(forward, ahead.graph))
    inputs, saved, tangents = [], [], []
    for node in back.graph.find_nodes(op="placeholder"):
        record = _record(node)
        if node.name.startswith("tangents_"):
            tangents.append(int(node.name.removeprefix("tangents_")) - 1)
        elif tangents or node.name not in numbers:
            raise BackwardError("AOTAutograd named a saved value in an unknown way")
        else:
            saved.append(numbers[node.name])
            record = _saved(record, variant, nodes[saved[-1]], numbers, known)
        inputs.append(record)
    propagated = _recorded(graph, back.graph) or propagate(graph, inputs)
    return Split(forward, graph, tuple(inputs), tuple(saved), tuple(tangents), gradients, propagated)


def _trace(variant: Variant) -> tuple[fx.GraphModule, fx.GraphModule]:
    """Forward and backward as AOTAutograd splits them, in ATen ops on tensors without data."""
    differentiable = [_has_gradient(each) for each in variant.inputs]
    if not any(differentiable):
        raise BackwardError("no float input")
    graph = _without_changed_inputs(variant)
    # Nothing of what is captured runs, so its Python source need not be compiled.
    with sdpa_kernel(SDPBackend.MATH), _use_lazy_graph_module(True):
        try:
            return _split_joint(graph, variant.inputs, differentiable)
        except Exception:  # any op may refuse to be recorded; AOTAutograd's error is the one that counts
            return _split_by_aot_autograd(graph, variant.inputs, differentiable)


def _split_joint(
    graph: Graph, inputs: Sequence[Input], differentiable: Sequence[bool]
) -> tuple[fx.GraphModule, fx.GraphModule]:
    joint, outputs = joint_graph(graph, inputs, differentiable)
    with torch.no_grad(), patch.object(fx.GraphModule, "recompile", lambda _: None):
        return min_cut_rematerialization_partition(joint, (), num_fwd_outputs=outputs)


def _split_by_aot_autograd(
    graph: Graph, inputs: Sequence[Input], differentiable: Sequence[bool]
) -> tuple[fx.GraphModule, fx.GraphModule]:
    graphs: dict[str, fx.GraphModule] = {}

    def keep(name: str) -> Callable[[fx.GraphModule, list[torch.Tensor]], fx.GraphModule]:
        def compiler(module: fx.GraphModule, _: list[torch.Tensor]) -> fx.GraphModule:
            graphs[name] = module
            return module

        return compiler

    with FakeTensorMode(allow_non_fake_inputs=True):
        arguments = [torch.empty_strided(i.shape, i.stride, dtype=dtype_of(i.dtype)) for i in inputs]
    for argument, wanted in zip(arguments, differentiable, strict=True):
        argument.requires_grad_(wanted)
    try:
        with functorch_config.patch(force_non_lazy_backward_lowering=True):
            aot_module_simplified(
                to_module(graph, "cpu"),
                arguments,
                fw_compiler=keep("forward"),
                bw_compiler=keep("backward"),
                partition_fn=min_cut_rematerialization_partition,
            )
    except Exception as error:  # any op may lack a derivative or refuse to be traced; the errors share no type
        raise BackwardError(f"AOTAutograd: {type(error).__name__}") from error
    if "backward" not in graphs:
        raise BackwardError("no output depends on a float input")
    return graphs["forward"], graphs["backward"]


def _has_gradient(each: Input) -> bool:
    return each.role != "buffer" and dtype_of(each.dtype).is_floating_point


def _without_changed_inputs(variant: Variant) -> Graph:
    """The graph, changing copies instead of inputs: autograd refuses changes of what it differentiates by."""
    graph = variant.graph
    if not any(writes(op) for op in graph.ops):
        return graph
    propagated = propagate(graph, variant.inputs)
    if isinstance(propagated, Invalid):
        raise BackwardError(f"the forward graph does not propagate: {propagated.cause}")
    changed = frozenset().union(*propagated.mutated)
    copied = [n for n, value in enumerate(propagated.values[: graph.inputs]) if value.storages & changed]
    if not copied:
        return graph
    copies = tuple(Op("method", "clone", (Ref(number),), {}) for number in copied)

    def renumber(ref: Ref) -> Ref:
        if ref.index in copied:
            return Ref(graph.inputs + copied.index(ref.index))
        return ref if ref.index < graph.inputs else Ref(ref.index + len(copies))

    ops = (Op(o.kind, o.target, map_refs(o.args, renumber), map_refs(o.kwargs, renumber)) for o in graph.ops)
    return Graph(graph.inputs, (*copies, *ops), map_refs(graph.output, renumber))


def _simplify(graph: fx.Graph) -> tuple[tuple[int, ...], ...]:
    """Removes identities, outputs that nothing computes, and then what is of no use; returns `Split.gradients`."""
    for node in list(graph.nodes):
        if node.op == "call_function" and node.target in _IDENTITIES:
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
    output = graph.output_node()
    gradients: dict[fx.Node, list[int]] = {}
    for number, node in enumerate(output.args[0]):
        if isinstance(node, fx.Node) and node.op != "placeholder":
            gradients.setdefault(node, []).append(number)
    if not gradients:
        raise BackwardError("nothing to compute: the gradients are tangents or saved values")
    output.args = (tuple(gradients),)
    graph.eliminate_dead_code()
    for node in list(graph.nodes):
        if node.op == "placeholder" and not node.users:
            graph.erase_node(node)
    return tuple(tuple(numbers) for numbers in gradients.values())


def _recorded(graph: Graph, source: fx.Graph) -> Propagated | None:
    """What `propagate` says of the graph, as far as the fx graph that it is the record of has the values."""
    nodes = [node for node in source.nodes if node.op != "output"]
    nodes.sort(key=lambda node: node.op != "placeholder")  # a record has its inputs first
    return told_by(graph, [node.meta.get("val") for node in nodes])


def _known(forward: Graph, variant: Variant, propagated: Propagated | None) -> list[Interval]:
    propagated = propagated or propagate(forward, variant.inputs)
    if isinstance(propagated, Invalid):
        raise BackwardError(f"the forward graph does not propagate in ATen: {propagated.cause}")
    return intervals(forward, variant.inputs, propagated)


def _record(node: fx.Node) -> Input:
    value = node.meta["val"]
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
        raise BackwardError(f"it takes a {type(value).__name__} that no record holds")
    stride = tuple(int(step) for step in value.stride())
    return Input(node.name, "input", dtype_name(value.dtype), tuple(value.shape), stride, mean=0.0, std=TANGENT_STD)


def _saved(record: Input, variant: Variant, node: fx.Node, numbers: dict[str, int], known: list[Interval]) -> Input:
    number = numbers[node.name]
    while node.op == "call_function" and node.target in _VIEWS:
        node = node.args[0]
    if node.op == "placeholder":
        origin = variant.inputs[numbers[node.name]]
        drawn = {name: getattr(origin, name) for name in ("low", "high", "mean", "std")}
        return replace(record, role=origin.role if numbers[node.name] == number else "input", **drawn)
    info = TensorValue(record.dtype, record.shape, record.stride, 0)
    return replace(record, **drawn_from(info, known[number], ANY))

"""Rewrites that move work from calls into parameters: parallel linear layers as one, batch norms into convolutions.

Products of parameters that this adds to a graph depend on parameters alone, so that
`passbench.models.parameters.parameter_parts` computes them once. Values are rounded elsewhere than eager rounds them.
"""

import operator
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx

from passbench.models.graph_facts import GraphFacts

_LINEAR = frozenset((F.linear, torch._C._nn.linear))
_CONVOLUTIONS = frozenset((torch.conv1d, torch.conv2d, torch.conv3d, F.conv1d, F.conv2d, F.conv3d))


def merge_weights(module: fx.GraphModule, facts: GraphFacts, moving: int) -> tuple[dict[str, int], GraphFacts]:
    """Rewrite a pure graph in place; returns how many linear layers and batch norms are gone, and the new facts.

    Placeholders from number `moving` on are parameters. Only these are merged. `facts` are the graph's; layers that
    read what some operator writes to stay as they are, and linear ones whose output some operator writes to.
    """
    graph = module.graph
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    static = set(placeholders[moving:])
    written = {n for n in graph.nodes if facts.node_storages.get(n.name, frozenset()) & facts.written_storages}
    memory = _Memory(facts)
    counts = {
        "linear": _merge_linears(graph, static, written, memory),
        "batch_norm": _fold_norms(graph, static - written, memory),
    }
    graph.lint()
    module.recompile()
    return counts, memory.facts(graph)


class _Memory:
    """The memory that new nodes lie in: facts of the new graph without running it on fake tensors again."""

    def __init__(self, facts: GraphFacts) -> None:
        self._before = facts
        self._storages = dict(facts.node_storages)
        self._fresh = min((number for found in facts.node_storages.values() for number in found), default=0)

    def make(self, node: fx.Node, count: int = 1) -> list[int]:
        """Note that a node's tensors lie in new memory; returns its numbers."""
        made = [self._fresh - 1 - n for n in range(count)]
        self._fresh -= count
        self._storages[node.name] = frozenset(made)
        return made

    def lie_in(self, node: fx.Node, storages: Iterable[int]) -> None:
        """Note that a node's tensors lie in memory that others lie in."""
        self._storages[node.name] = frozenset(storages)

    def stand_for(self, node: fx.Node, old: fx.Node, storages: Iterable[int] = ()) -> None:
        """Note that a node gives the old one's tensor, and lies in this memory, too."""
        self._storages[node.name] = self._storages[old.name] | frozenset(storages)
        if "example_value" in old.meta:
            node.meta["example_value"] = old.meta["example_value"]

    def facts(self, graph: fx.Graph) -> GraphFacts:
        """Facts of the graph as it is now: inputs are neither written to nor returned otherwise than before."""
        found = {node.name: self._storages[node.name] for node in graph.nodes if node.name in self._storages}
        return replace(self._before, node_storages=found)


def _arguments(node: fx.Node, names: tuple[str, ...], defaults: tuple[Any, ...]) -> list[Any]:
    """Values of the parameters, given by position or by name."""
    values = [*node.args, *defaults[len(node.args) :]]
    for number, name in enumerate(names):
        if name in node.kwargs:
            values[number] = node.kwargs[name]
    return values


def _merge_linears(graph: fx.Graph, static: set[fx.Node], written: set[fx.Node], memory: _Memory) -> int:
    groups: dict[tuple, list[fx.Node]] = defaultdict(list)
    for node in graph.nodes:
        if node.op == "call_function" and node.target in _LINEAR:
            x, weight, bias = _arguments(node, ("input", "weight", "bias"), (None, None, None))
            known = weight in static and (bias is None or bias in static)
            known = known and x not in written and node not in written  # a part of a whole lies otherwise in memory
            if known and isinstance(x, fx.Node) and "example_value" in weight.meta:
                groups[x, bias is None, weight.meta["example_value"].dtype].append(node)
    gone = 0
    joined: dict[tuple[fx.Node, ...], fx.Node] = {}  # layers may share their weights
    for (x, bare, _), nodes in groups.items():
        weights = [node.args[1] if len(node.args) > 1 else node.kwargs["weight"] for node in nodes]
        if len(nodes) < 2 or len(set(weights)) < len(nodes) or any(w.meta["example_value"].dim() != 2 for w in weights):
            continue
        biases = [_arguments(node, ("input", "weight", "bias"), (None, None, None))[2] for node in nodes]
        sizes = [int(w.meta["example_value"].shape[0]) for w in weights]
        with graph.inserting_before(nodes[0]):
            for each in (weights, *([] if bare else [biases])):
                if tuple(each) not in joined:
                    joined[tuple(each)] = graph.call_function(torch.cat, (each, 0))
                    memory.make(joined[tuple(each)])
            weight, bias = joined[tuple(weights)], None if bare else joined[tuple(biases)]
            whole = graph.call_function(F.linear, (x, weight, bias))
            pieces = graph.call_function(torch.split, (whole, sizes, -1))
            parts = [graph.call_function(operator.getitem, (pieces, n)) for n in range(len(nodes))]
        shared = memory.make(whole)
        memory.lie_in(pieces, shared)
        with torch.no_grad():
            whole.meta["example_value"] = torch.cat([node.meta["example_value"] for node in nodes], -1)
            pieces.meta["example_value"] = torch.split(whole.meta["example_value"], sizes, -1)
        for node, part in zip(nodes, parts, strict=True):
            memory.stand_for(part, node, shared)
            node.replace_all_uses_with(part)
            graph.erase_node(node)
        gone += len(nodes) - 1
    return gone


_NORM = ("input", "running_mean", "running_var", "weight", "bias", "training", "momentum", "eps")
_NORM_DEFAULTS = (None, None, None, None, None, False, 0.1, 1e-5)
_CONV = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
_CONV_DEFAULTS = (None, None, None, 1, 0, 1, 1)


def _fold_norms(graph: fx.Graph, static: set[fx.Node], memory: _Memory) -> int:
    gone = 0
    for node in list(graph.nodes):
        if node.op != "call_function" or node.target is not F.batch_norm:
            continue
        x, mean, variance, scale, shift, training, _, eps = _arguments(node, _NORM, _NORM_DEFAULTS)
        convolved = isinstance(x, fx.Node) and x.op == "call_function" and x.target in _CONVOLUTIONS
        if not convolved or training or len(x.users) > 1:
            continue
        source, weight, bias, *rest = _arguments(x, _CONV, _CONV_DEFAULTS)
        given = [each for each in (mean, variance, scale, shift, weight, bias) if each is not None]
        if mean is None or variance is None or not all(each in static for each in given):
            continue
        with graph.inserting_before(x):
            folded = graph.call_function(folded_weights, (weight, bias, mean, variance, scale, shift, eps))
            new = [graph.call_function(operator.getitem, (folded, n)) for n in range(2)]
            result = graph.call_function(x.target, (source, *new, *rest))
        for each, storage in zip(new, memory.make(folded, 2), strict=True):
            memory.lie_in(each, [storage])
        memory.stand_for(result, node)
        node.replace_all_uses_with(result)
        graph.erase_node(node)
        graph.erase_node(x)
        gone += 1
    return gone


def folded_weights(
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    mean: torch.Tensor,
    variance: torch.Tensor,
    scale: torch.Tensor | None,
    shift: torch.Tensor | None,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Weight and bias of the convolution that does what a convolution and the batch norm after it do.

    Computed in double precision, rounded to the weight's dtype. `weight` is [channels, …], the others [channels].
    """
    factor = torch.rsqrt(variance.double() + eps)
    if scale is not None:
        factor = factor * scale.double()
    shape = (-1, *[1] * (weight.dim() - 1))
    offset = -mean.double() if bias is None else bias.double() - mean.double()
    moved = offset * factor if shift is None else offset * factor + shift.double()
    layout = torch.channels_last if weight.is_contiguous(memory_format=torch.channels_last) else torch.contiguous_format
    folded = (weight.double() * factor.reshape(shape)).to(weight.dtype)
    return (folded.contiguous(memory_format=layout) if weight.dim() == 4 else folded), moved.to(weight.dtype)

"""Which part of a graph does not have eager's bits when it is run by a recipe."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import fx

from passbench.models.agreement import same_bits
from passbench.models.graph_facts import calls_of, graph_facts
from passbench.models.lowering import GraphCall, Serve, copy_of, lower
from passbench.models.recipes import Recipe
from passbench.models.serving import NAMESPACE


def first_unlike(
    given: GraphCall, recipe: Recipe, draws: Sequence[tuple[torch.Tensor, ...]], serve: Serve | None = None
) -> str:
    """The first operator whose value is not eager's to the bit on one of the draws, or the pass that it reads, and the
    module of the model that it is in.

    The graph is compiled once more, so that it gives all values that its operators make, which takes their memory; what
    is fused otherwise then may round otherwise, too. Raises what the compiler raises.
    """
    module = copy_of(given.module)
    names = _making(module.graph, given)
    if recipe.passes and serve is not None:
        serve(module, recipe.passes)
        left = {node.name for node in module.graph.nodes}
        names = [name for name in names if name in left]
    eager, shown = _giving(given.module, names), _giving(module, names)
    facts = graph_facts(shown, [*given.moving, *given.held])
    lowered = lower(GraphCall(shown, given.moving, given.held, facts), replace(recipe, passes=()))
    unlike: set[str] = set()
    for draw in draws:
        with torch.no_grad():
            expected = [x.clone() for x in eager.forward(*draw, *given.held)]
        made = lowered.call(*draw)
        unlike |= {name for name, a, b in zip(names, made, expected, strict=True) if not same_bits(a, b)}
    first = next((node for node in shown.graph.nodes if node.name in unlike), None)
    if first is not None:
        return _said(first, {node.name for node in given.module.graph.nodes})
    return "a pass" if recipe.passes else "no operator alone, but what is fused"


def _making(graph: fx.Graph, given: GraphCall) -> list[str]:
    """The nodes whose values are tensors in memory of their own, and no views."""
    storages = given.facts.node_storages
    found = []
    for node in calls_of(graph):
        read = frozenset().union(*(storages.get(each.name, frozenset()) for each in node.all_input_nodes))
        if isinstance(node.meta.get("example_value"), torch.Tensor) and storages.get(node.name, read) - read:
            found.append(node.name)
    return found


def _giving(module: fx.GraphModule, names: Sequence[str]) -> fx.GraphModule:
    """The same graph with the values of these nodes as its outputs."""
    other = copy_of(module)
    nodes = {node.name: node for node in other.graph.nodes}
    other.graph.output_node().args = (tuple(nodes[name] for name in names),)
    other.recompile()
    return other


def _said(node: fx.Node, known: set[str]) -> str:
    target = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))
    text = f"{target.rpartition('.')[2]} ({node.name})"
    if stack := node.meta.get("nn_module_stack"):
        path, _ = list(stack.values())[-1]
        text += " of " + path.removeprefix("L['model'].")
    ahead = list(node.all_input_nodes)
    while ahead:
        each = ahead.pop()
        if str(each.target).startswith(NAMESPACE):
            return f"pass {each.meta.get('entry', '')[:12]}, which {text} reads"
        if each.name not in known:
            ahead += each.all_input_nodes
    return text

"""Merged weights: which facts hold of a graph in which layers became one."""

import torch
import torch.nn.functional as F
from torch import fx, nn

from passbench.models.graph_facts import GraphFacts, graph_facts
from passbench.models.lowering import copy_of
from passbench.models.model_capture import capture_model
from passbench.models.optimize import optimize_model
from passbench.models.optimized_model import OptimizeSettings
from passbench.models.parameters.weight_merging import merge_weights
from passbench.models.recipes import Recipe
from tests.passbench.models.small_models import Convolutional


class _WritesToParts(nn.Module):
    """Writes into what one of three parallel layers gave, through a view of it, and into what a batch norm gave."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6)
        self.layers = nn.ModuleList(nn.Linear(6, 4) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.norm(self.conv(x)), inplace=True).mean((2, 3))
        a, b, c = (layer(y) for layer in self.layers)
        a.reshape(-1).mul_(2)
        return a + b.relu() + c


def _sharing(facts: GraphFacts, graph: fx.Graph) -> tuple[set[frozenset[str]], set[str]]:
    """Which nodes share memory with which, and which lie in memory that is written to: without its numbers."""
    storages = {node.name: facts.node_storages.get(node.name, frozenset()) for node in graph.nodes}
    groups = {frozenset(n for n, mine in storages.items() if mine & its) for its in storages.values() if its}
    return groups, {name for name, mine in storages.items() if mine & facts.written_storages}


def test_facts_of_merged_weights_are_those_of_a_run_on_fake_tensors() -> None:
    for model, gone in ((Convolutional(), (1, 1)), (_WritesToParts(), (1, 1))):
        captured = capture_model(model.eval(), (torch.randn(2, 3, 9, 9),), {})
        module = copy_of(captured.graph)
        counts, facts = merge_weights(module, captured.facts, len(captured.moving))
        assert (counts["linear"], counts["batch_norm"]) == gone
        again = graph_facts(copy_of(module), [*captured.moving, *(each.tensor for each in captured.held)])
        assert _sharing(facts, module.graph) == _sharing(again, module.graph)
        assert (facts.written, facts.random, facts.same) == (again.written, again.random, again.same)


def test_a_layer_whose_output_is_written_to_is_not_merged() -> None:
    model, x = _WritesToParts().eval(), torch.randn(2, 3, 9, 9)
    recipe = Recipe("merged", "eager", once=True, merged=True)
    ours = optimize_model(model, (x,), {}, OptimizeSettings(recipe=recipe))
    with torch.no_grad():
        torch.testing.assert_close(ours(x), model(x))

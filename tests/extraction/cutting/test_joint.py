"""Backward graphs of recorded joint graphs are those of AOTAutograd, and what cannot be recorded is left to it."""

import pytest
import torch
from torch import fx
from torch.nn.attention import SDPBackend, sdpa_kernel

from extraction.analysis.propagate import propagate, told_by
from extraction.cutting.gradients import (
    _has_gradient,
    _simplify,
    _split_by_aot_autograd,
    _split_joint,
    _without_changed_inputs,
    split,
)
from extraction.cutting.joint import NotRecorded
from storage.errors import PassNetError
from storage.graph.as_fx import from_fx
from storage.graph.record import Graph, Op, Ref
from storage.records import Input, Variant
from tests.extraction.cutting.test_backward import LINES, SUBGRAPHS
from tests.support.graphs import corpus
from tests.support.in_memory import cut_corpus


def _described(backward: fx.Graph) -> tuple:
    given = [node.meta["val"] for node in backward.find_nodes(op="placeholder") if node.users]
    return _simplify(backward), from_fx(backward), [(each.dtype, each.shape, each.stride()) for each in given]


def _both(variant: Variant) -> tuple[tuple, tuple]:
    given = _without_changed_inputs(variant), variant.inputs, [_has_gradient(each) for each in variant.inputs]
    with sdpa_kernel(SDPBackend.MATH):
        return _described(_split_joint(*given)[1].graph), _described(_split_by_aot_autograd(*given)[1].graph)


@pytest.mark.parametrize("name", SUBGRAPHS)
def test_the_backward_graph_is_that_of_aot_autograd(name: str) -> None:
    recorded, traced = _both(SUBGRAPHS[name])
    assert recorded == traced


def test_the_backward_graphs_of_a_corpus_are_those_of_aot_autograd() -> None:
    compared = 0
    for variant in cut_corpus(corpus()).variants:
        if variant.symbols or not any(map(_has_gradient, variant.inputs)):
            continue
        try:
            recorded, traced = _both(variant)
        except PassNetError:
            continue
        assert recorded == traced
        compared += 1
    assert compared > 10


def test_in_place_ops_on_views_are_left_to_aot_autograd() -> None:
    ops = (
        Op("function", "operator.mul", (Ref(0), 3.0), {}),
        Op("method", "view", (Ref(1), -1), {}),
        Op("method", "mul_", (Ref(2), 2.0), {}),
    )
    variant = Variant("fusible", Graph(1, ops, (Ref(1),)), (LINES,), ())
    with pytest.raises(NotRecorded):
        _split_joint(variant.graph, variant.inputs, [True])
    assert split(variant).backward.ops


@pytest.mark.parametrize("name", SUBGRAPHS)
def test_recorded_values_tell_what_propagation_tells(name: str) -> None:
    variant = SUBGRAPHS[name]
    parts = split(variant)
    assert parts.propagated == propagate(parts.backward, parts.inputs)


def test_a_value_that_was_changed_in_place_does_not_tell() -> None:
    ops = (Op("function", "torch.exp", (Ref(0),), {}), Op("function", "torch.relu", (Ref(1),), {}))
    graph = Graph(1, ops, (Ref(2),))
    given, made = torch.empty(2, 3, device="meta"), torch.empty(2, 3, device="meta")
    assert told_by(graph, [given, made, made]) is None
    told = told_by(graph, [given, made, torch.empty(2, 3, device="meta")])
    assert told == propagate(graph, [Input("in_0", "input", "float32", (2, 3), (3, 1))])

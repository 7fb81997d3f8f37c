"""Small real models captured with symbolic sizes: at every size the graph is what a capture at that size gives."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from dedup.hashes import graph_hash
from extraction.analysis.propagate import Propagated, propagate
from extraction.analysis.values import TensorValue
from extraction.examples.inputs import Example, by_signature, image
from extraction.failures import ModelError
from extraction.tracing.capture import CapturedGraph, CaptureSizes, capture
from extraction.tracing.symbolic import MAX_CONDITIONS, stride_like
from extraction.tracing.trace import Trace, trace_module
from storage.graph.symbols import at, evaluate, size

Made = tuple[nn.Module, Mapping[str, Any]]


def timm_model(name: str, **options: Any) -> Made:
    import timm

    side = options.get("img_size", 64)
    return timm.create_model(name, **options).eval(), {"x": image(3, side, side)}


def transformers_model(class_name: str, config_name: str, **options: Any) -> Made:
    import transformers

    config = getattr(transformers, config_name)(use_cache=False, **options)
    module = getattr(transformers, class_name)._from_config(config).eval()
    return module, by_signature(module, config.to_dict())


BLOCKS = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 48}
MODELS: dict[str, tuple[Callable[[], Made], dict[str, int], dict[str, int]]] = {
    "convnext": (
        lambda: timm_model("convnext_atto", depths=(1, 1, 1, 1), dims=(8, 8, 16, 16)),
        {"batch": 2, "height": 64, "width": 64},
        {"batch": 3, "height": 256, "width": 192},
    ),
    "vit": (
        lambda: timm_model("vit_tiny_patch16_224", depth=1, embed_dim=24, img_size=64),
        {"batch": 2},
        {"batch": 1},
    ),
    "bert": (
        lambda: transformers_model("BertModel", "BertConfig", vocab_size=99, **BLOCKS),
        {"batch": 2, "sequence": 60},
        {"batch": 3, "sequence": 37},
    ),
    "gpt2": (
        lambda: transformers_model("GPT2Model", "GPT2Config", vocab_size=99, n_embd=32, n_layer=1, n_head=4),
        {"batch": 2, "sequence": 60},
        {"batch": 1, "sequence": 128},
    ),
    "t5": (
        lambda: transformers_model(
            "T5Model", "T5Config", vocab_size=99, d_model=32, d_kv=8, d_ff=48, num_layers=1, num_heads=4
        ),
        {"batch": 2, "sequence": 60, "decoder_sequence": 60},
        {"batch": 3, "sequence": 48, "decoder_sequence": 17},
    ),
    "wav2vec2": (
        lambda: transformers_model(
            "Wav2Vec2Model", "Wav2Vec2Config", conv_dim=(16,) * 7, num_conv_pos_embeddings=8, **BLOCKS
        ),
        {"batch": 2, "samples": 16_000},
        {"batch": 3, "samples": 12_345},
    ),
}


def make(name: str) -> Made:
    with torch.device("meta"):
        return MODELS[name][0]()


@functools.cache
def symbolic(name: str) -> Trace:
    return trace_module(lambda: make(name), name)


def static(name: str, sizes: Mapping[str, int]) -> CapturedGraph:
    """What a capture without symbols gives on inputs of these sizes."""
    module, inputs = make(name)
    resized = {}
    for key, value in inputs.items():
        resized[key] = value
        if isinstance(value, Example):
            shape = [sizes.get(dim, number) for dim, number in zip(value.dims, value.tensor.shape, strict=True)]
            resized[key] = replace(value, tensor=torch.empty(shape, dtype=value.tensor.dtype, device="meta"))
    (one,), breaks = capture(module, resized, CaptureSizes.FIXED)
    assert breaks == []
    return one.record()


@pytest.mark.parametrize("name", MODELS)
def test_at_the_sizes_of_the_trace_it_is_the_static_graph(name: str) -> None:
    (graph,) = symbolic(name).graphs
    plain = static(name, {})
    assert graph.symbols == MODELS[name][1]
    assert (plain.symbols, plain.symbolic) == ({}, ())
    assert all(each.symbolic_shape is None for each in plain.inputs)
    assert graph_hash(graph.concrete) == graph_hash(plain.graph)
    assert [(i.name, i.role, i.dtype, i.shape, i.stride) for i in graph.inputs] == [
        (i.name, i.role, i.dtype, i.shape, i.stride) for i in plain.inputs
    ]


@pytest.mark.parametrize("name", MODELS)
def test_at_other_sizes_it_is_the_graph_of_a_capture_there(name: str) -> None:
    (graph,) = symbolic(name).graphs
    sizes = MODELS[name][2]
    there = at(graph.graph, sizes)
    assert graph_hash(there) == graph_hash(static(name, sizes).graph)
    inputs = [
        replace(i, shape=numbers(i.symbolic_shape, sizes), stride=numbers(i.symbolic_stride, sizes))
        for i in graph.inputs
    ]
    propagated = propagate(there, inputs)
    assert isinstance(propagated, Propagated), propagated
    for value, layout in zip(propagated.values, graph.symbolic, strict=True):
        assert not isinstance(value, TensorValue) or value.shape == numbers(layout[0], sizes)


@pytest.mark.parametrize("name", MODELS)
def test_layouts_are_those_of_propagation(name: str) -> None:
    (graph,) = symbolic(name).graphs
    propagated = propagate(graph.concrete, graph.inputs)
    assert isinstance(propagated, Propagated)
    for value, layout in zip(propagated.values, graph.symbolic, strict=True):
        if isinstance(value, TensorValue):
            assert tuple(numbers(part, graph.symbols) for part in layout) == (value.shape, value.stride)
        else:
            assert layout is None


def numbers(expressions: tuple[str, ...], sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(size(each, sizes) for each in expressions)


def test_a_size_that_the_model_asks_for_is_a_number_and_the_reason_is_kept() -> None:
    found = symbolic("vit")
    assert [line.partition(":")[0] for line in found.fixed] == ["height = 64", "width = 64"]
    assert "timm/layers/patch_embed.py:" in found.fixed[0]
    assert found.static_reason == ""
    assert "height" not in "".join(found.graphs[0].inputs[0].symbolic_shape)


class Scripted(nn.Module):
    """A model whose forward is a function."""

    def __init__(self, function: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x)


def of(function: Callable[[torch.Tensor], Any], *shape: int, dims: tuple[str | None, ...]) -> Trace:
    example = Example(torch.empty(shape, device="meta"), dims)
    return trace_module(lambda: (Scripted(function), {"x": example}), "made up")


def constants(function: Callable[[torch.Tensor], Any], *shape: int, dims: tuple[str | None, ...]) -> str:
    (graph,) = of(function, *shape, dims=dims).graphs
    return " ".join(str([op.args, op.kwargs]) for op in graph.graph.ops)


def test_numbers_become_expressions_and_their_nodes_go() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        batch, length = x.shape
        torch._check(length > 2)
        half = length // 2
        return x[:, :half].reshape(batch * half) * (1.0 / length) + max(half, 7)

    (graph,) = of(function, 4, 10, dims=("batch", "sequence")).graphs
    assert graph.graph.op_sequence == ["operator.getitem", ".reshape", "operator.mul", "operator.add"]
    text = constants(function, 4, 10, dims=("batch", "sequence"))
    for expected in ("Sym(expression='sequence//2')", "batch*(sequence//2)", "1.0/float(sequence)"):
        assert expected in text or expected.replace("float(sequence)", "sequence") in text
    assert at(graph.graph, {"batch": 4, "sequence": 10}) == graph.concrete


def test_numbers_that_come_out_are_no_output() -> None:
    (graph,) = of(lambda x: (x + 1, x.shape[0]), 4, 10, dims=("batch", None)).graphs
    assert len(graph.graph.output) == 1


def test_a_number_that_has_no_expression_fixes_its_symbol_alone() -> None:
    found = of(lambda x: x * round(x.shape[1] / 3), 4, 10, dims=("batch", "sequence"))
    assert found.symbols == {"batch": 4}
    assert found.fixed[0].startswith("sequence = 10: ")


def test_dimensions_that_must_be_equal_are_one_symbol_with_the_first_name() -> None:
    found = of(lambda x: x + x.transpose(1, 2), 4, 10, 10, dims=("batch", "height", "width"))
    assert found.symbols == {"batch": 4, "height": 10}
    assert found.graphs[0].inputs[0].symbolic_shape == ("batch", "height", "height")


def test_two_sizes_of_one_name_are_two_symbols_only_where_they_differ() -> None:
    same = of(lambda x: x * 2, 4, 10, 10, dims=("batch", "sequence", "sequence"))
    other = of(lambda x: x * 2, 4, 10, 12, dims=("batch", "sequence", "sequence"))
    assert same.symbols == {"batch": 4, "sequence": 10}
    assert other.symbols == {"batch": 4, "sequence": 10, "sequence_2": 12}


def test_a_condition_that_leaves_few_sizes_makes_a_number() -> None:
    def windows(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.shape[1] // 4 == 3 else x - 1

    assert of(windows, 4, 13, dims=("batch", "sequence")).symbols == {"batch": 4}

    def padded(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.shape[1] % 4 == 0 else nn.functional.pad(x, (0, 4 - x.shape[1] % 4))

    assert of(padded, 4, 12, dims=("batch", "sequence")).symbols == {"batch": 4, "sequence": 12}


def test_too_many_conditions_make_a_number() -> None:
    def choosy(x: torch.Tensor) -> torch.Tensor:
        for number in range(2, MAX_CONDITIONS + 30):
            if (x.shape[1] * number) % 1013 == 5:
                x = x + 1
        return x * 2

    found = of(choosy, 4, 1000, dims=("batch", "sequence"))
    assert found.symbols == {"batch": 4}
    assert f"more than {MAX_CONDITIONS} conditions" in found.fixed[0]


def test_sizes_are_numbers_where_only_they_can_be_captured() -> None:
    def breaking(x: torch.Tensor) -> torch.Tensor:
        if isinstance(torch.jit.annotate(int, x.shape[0]), torch.SymInt):
            raise RuntimeError("no symbols here")
        return x + x.shape[0]

    def picky(x: torch.Tensor) -> torch.Tensor:
        table = torch.zeros(20, device="meta")
        return x + table[torch.tensor([x.shape[0]]).item()]

    found = of(breaking, 4, 10, dims=("batch", None))
    assert found.graphs[0].graph.op_sequence == ["operator.add"]


def test_what_fails_either_way_fails_with_its_own_category() -> None:
    with pytest.raises(ModelError, match="5") as raised:
        of(lambda x: x @ torch.ones(5, 5, device="meta"), 4, 10, dims=("batch", None))
    assert raised.value.category == "unsupported_input"


@given(st.permutations(["batch", "height", "width", "3"]), st.permutations(range(4)))
def test_strides_follow_the_order_in_memory(shape: list[str], order: list[int]) -> None:
    def tensor(sizes: Mapping[str, int]) -> torch.Tensor:
        inside = torch.empty([size(shape[dim], sizes) for dim in order], device="meta")
        return inside.permute([order.index(dim) for dim in range(4)])

    here, there = {"batch": 2, "height": 5, "width": 7}, {"batch": 4, "height": 6, "width": 9}
    found = stride_like(shape, tensor(here).shape, tensor(here).stride())
    assert tuple(evaluate(each, there) for each in found) == tensor(there).stride()


def test_strides_with_gaps_have_no_such_expression() -> None:
    assert stride_like(["batch", "4"], (2, 4), (8, 1)) is None
    assert stride_like(["batch", "4"], (2, 4), (0, 1)) == ("0", "1")

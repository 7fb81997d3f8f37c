"""Real models on the meta device, and graphs of made-up ones for what real ones seldom do."""

import functools
import math
from dataclasses import replace

import pytest
import torch
from torch import fx, nn

from extraction.analysis.plausible_inputs import with_ranges
from extraction.classify import classify
from extraction.examples.inputs import BATCH
from extraction.failures import CATEGORIES, ModelError, classify_end
from extraction.sources.catalog import parse_entry
from extraction.sources.spec import Spec, spec_of
from extraction.tracing.capture import Captured, capture
from extraction.tracing.normalise import graph_record, normalise, readable
from extraction.tracing.trace import Trace, trace, with_kernels
from storage.graph.as_fx import from_fx, to_fx, to_module
from storage.graph.as_json import from_json, to_json
from storage.graph.record import GraphError
from storage.graph.targets import GETATTR
from storage.records import Input, TracedGraph

MODELS = ["timm:resnet10t", "transformers:bert", "transformers:clip"]


@functools.cache
def traced(text: str) -> Trace:
    return trace(spec_of(parse_entry(text)), text)


def inputs_of(graph: TracedGraph, role: str) -> dict[str, Input]:
    return {each.name: each for each in graph.inputs if each.role == role}


@pytest.mark.parametrize("text", MODELS)
def test_a_real_model_is_one_graph_that_round_trips_exactly(text: str) -> None:
    (graph,) = traced(text).graphs
    assert traced(text).graph_breaks == ()
    assert from_json(to_json(graph.graph)) == graph.graph
    assert from_fx(to_fx(graph.concrete, "meta")) == graph.concrete
    assert len(graph.inputs) == graph.graph.inputs
    assert len({each.name for each in graph.inputs}) == len(graph.inputs)


@pytest.mark.parametrize("text", MODELS)
def test_the_graph_runs_on_its_inputs(text: str) -> None:
    (graph,) = traced(text).graphs
    tensors = [
        torch.empty_strided(i.shape, i.stride, dtype=getattr(torch, i.dtype), device="meta") for i in graph.inputs
    ]
    assert to_module(graph.concrete, "meta").forward(*tensors) is not None


def test_tracing_twice_gives_the_same() -> None:
    again = trace(spec_of(parse_entry("timm:resnet10t")), "timm:resnet10t")
    assert again == traced("timm:resnet10t")


def test_parameters_buffers_and_inputs_keep_their_names() -> None:
    (graph,) = traced("timm:resnet10t").graphs
    assert list(inputs_of(graph, "input")) == ["x"]
    assert inputs_of(graph, "input")["x"].shape == (BATCH, 3, 176, 176)
    assert "layer1.0.conv1.weight" in inputs_of(graph, "parameter")
    assert "layer1.0.bn1.running_var" in inputs_of(graph, "buffer")
    (text,) = traced("transformers:bert").graphs
    assert set(inputs_of(text, "input")) == {"input_ids", "attention_mask"}


def test_values_are_drawn_so_that_the_model_runs() -> None:
    (graph,) = traced("timm:resnet10t").graphs
    variance = inputs_of(graph, "buffer")["layer1.0.bn1.running_var"]
    assert variance.low > 0
    weight = inputs_of(graph, "parameter")["layer1.0.conv1.weight"]
    assert weight.std == pytest.approx(1 / math.sqrt(math.prod(weight.shape[1:])))
    assert inputs_of(graph, "parameter")["layer1.0.bn1.weight"].mean == 1.0
    (text,) = traced("transformers:bert").graphs
    ids = inputs_of(text, "input")["input_ids"]
    assert (ids.low, ids.high) == (0, 30521)
    mask = inputs_of(text, "input")["attention_mask"]
    assert (mask.low, mask.high) == (0, 1)


def test_kernels_are_counted_by_op_or_the_reason_is_kept() -> None:
    (graph,) = traced("timm:resnet10t").graphs
    counted = with_kernels(graph)
    assert len(counted.kernels) == len(graph.graph.ops)
    assert 0 < len({kernel for op in counted.kernels for kernel in op}) < len(graph.graph.ops)
    wrong = tuple(replace(each, shape=(1, 1, 1, 1)) if each.name == "x" else each for each in graph.inputs)
    broken = TracedGraph("broken", 0, graph.graph, wrong)
    assert "to have 3 channels, but got 1" in with_kernels(broken).lowering_error


def captured(module: nn.Module, *shape: int) -> tuple[list[Captured], list[str]]:
    return capture(module.to("meta").eval(), {"x": torch.empty(shape or (4, 8), device="meta")})


class Switches(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch._assert(x.shape[0] == 4, "four rows")
        with torch.no_grad(), torch.autocast("cpu", enabled=False):
            x = torch.relu(x)
        return x + 1


def test_nodes_that_compute_nothing_are_left_out() -> None:
    (one,), breaks = captured(Switches())
    record = one.record()
    assert record.graph.op_sequence == ["torch.relu", "operator.add"]
    assert [each.name for each in record.inputs] == ["x"]
    assert breaks == []


class Noted(nn.Module):
    """What stands in `seen` shows that the call came to its end."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen = torch.relu(x)
        return self.seen + 1


class Outer(nn.Module):
    """Dynamo leaves `forward` alone, and compiles its parts one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Noted(), Switches()

    @torch._dynamo.disable(recursive=False)
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x)) * 2


def _op_sequences(module: nn.Module) -> list[list[str]]:
    return [each.record().graph.op_sequence for each in captured(module)[0]]


def test_a_call_of_one_graph_is_not_run_behind_it() -> None:
    module = Noted()
    assert _op_sequences(module) == [["torch.relu", "operator.add"]]
    assert not hasattr(module, "seen")


def test_what_comes_behind_a_graph_is_captured_too() -> None:
    module = Outer()
    assert _op_sequences(module) == [["torch.relu", "operator.add"]] * 2
    assert hasattr(module.first, "seen")
    hooked = Switches()
    hooked.register_forward_hook(lambda _module, _inputs, output: torch.exp(output))
    assert [op for sequence in _op_sequences(hooked) for op in sequence] == ["torch.relu", "operator.add", "torch.exp"]


def test_tensor_constants_become_buffers() -> None:
    module = nn.Module()
    module.linear = nn.Linear(8, 8, device="meta")
    module.table = torch.ones(8, device="meta")
    attributes = torch.fx.Graph()
    x = attributes.placeholder("x")
    weight, again = attributes.get_attr("linear.weight"), attributes.get_attr("linear.weight")
    product = attributes.call_function(torch.matmul, (x, weight))
    attributes.output((attributes.call_function(torch.matmul, (product, again)), attributes.get_attr("table")))
    each = Captured(torch.fx.GraphModule(module, attributes), [Input("x", "input", "float32", (4, 8), (8, 1))])
    record = each.record()
    assert [(i.name, i.role, i.shape) for i in record.inputs] == [
        ("x", "input", (4, 8)),
        ("linear.weight", "parameter", (8, 8)),
        ("table", "buffer", (8,)),
    ]
    assert record.graph.inputs == 3


class Broken(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(x)
        torch._dynamo.graph_break()
        return y * 2 + x


def test_graph_breaks_are_several_graphs_and_a_reason() -> None:
    graphs, breaks = captured(Broken())
    assert [each.record().graph.op_sequence for each in graphs] == [["torch.relu"], ["operator.mul", "operator.add"]]
    assert len(breaks) == 1
    assert "graph_break" in breaks[0]
    assert "Hint" not in breaks[0]


class OperatorsAsMethods(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.__abs__().__ne__(2)


def test_operators_that_are_called_as_methods_are_functions() -> None:
    (graph,), _ = captured(OperatorsAsMethods())
    assert graph.record().graph.op_sequence == ["operator.abs", "operator.ne"]


class Attributes(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.T @ x.mT.H @ x.mH.data


def test_attributes_are_read_by_getattr_whatever_dynamo_makes_of_them() -> None:
    module = Attributes()
    (graph,), _ = captured(module, 3, 3)
    record = graph.record().graph
    assert [op.args[1] for op in record.ops if op.target == GETATTR] == ["T", "mT", "H", "mH", "data"]
    x = torch.randn(3, 3)
    assert torch.equal(to_module(record, "cpu")(x)[0], module(x))


class Checkpointed(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.utils.checkpoint.checkpoint(torch.relu, x, use_reentrant=False)


def test_the_operands_of_a_reflected_operator_change_places() -> None:
    graph = fx.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    difference = graph.call_method("__rsub__", (x, y))
    graph.output(graph.call_method("__and__", (difference, x)))
    module = fx.GraphModule(nn.Module(), graph)
    normalise(module)
    record = graph_record(module.graph, {})
    assert record.op_sequence == ["operator.sub", "operator.and_"]
    three, five = torch.tensor(3), torch.tensor(5)
    assert to_module(record, "cpu")(three, five).item() == (5 - 3) & 3


def test_higher_order_operators_are_refused_with_a_reason() -> None:
    (one,), _ = captured(Checkpointed())
    with pytest.raises(GraphError, match="not a tensor"):
        one.record()


class Values(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[: int(x.sum().item())]


class Reduction(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ torch.ones(5, 5, device=x.device)


class Missing(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        import no_such_package

        return no_such_package.f(x)


@pytest.mark.parametrize(
    ("module", "category", "message"),
    [
        (Values(), "data_dependent", "meta tensors"),
        (Reduction(), "unsupported_input", "got \\[4, 8\\] X \\[5, 5\\]"),
        (Missing(), "missing_dependency", "no_such_package"),
    ],
)
def test_failures_have_a_category_and_a_useful_line(module: nn.Module, category: str, message: str) -> None:
    with pytest.raises(ModelError, match=message) as raised:
        captured(module)
    assert raised.value.category == category
    assert "\n" not in str(raised.value)


def test_a_config_that_makes_no_model() -> None:
    good = spec_of(parse_entry("transformers:bert"))
    bad = Spec(good.source, good.config.replace('"hidden_size":768', '"hidden_size":7'), "0", good.libraries)
    with pytest.raises(ModelError, match="hidden size") as raised:
        trace(bad, "bad")
    assert raised.value.category == "config"


@pytest.mark.parametrize(
    ("error", "category"),
    [
        (MemoryError(), "out_of_memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"), "out_of_memory"),
        (ImportError("This needs the timm library but it was not found; pip install timm"), "missing_dependency"),
        (ValueError("loading this model requires trust_remote_code=True"), "remote_code"),
        (OSError("You are trying to access a gated repo."), "gated"),
        (GraphError("a constant cannot be stored"), "graph_break"),
        (ModelError("not_found", "no such model"), "not_found"),
        (SystemError("bad call"), "internal"),
    ],
)
def test_exceptions_by_category(error: Exception, category: str) -> None:
    assert classify(error)[0] == category
    try:
        raise RuntimeError("outer") from error
    except RuntimeError as outer:
        assert classify(outer, "config")[0] == (category if category != "internal" else "config")


def test_every_category_is_in_the_closed_set() -> None:
    with pytest.raises(ValueError, match="odd"):
        ModelError("odd", "")
    assert len(set(CATEGORIES)) == 14
    assert classify_end("signal", 11, "")[0] in CATEGORIES


def test_names_from_dynamo_s_sources() -> None:
    assert readable("L['self']._modules['layer1']._modules['0']._parameters['weight']") == "layer1.0.weight"
    assert readable("L['kwargs']['input_ids']") == "input_ids"
    assert readable("L['args'][0]") == "0"
    assert readable("G['x']") == "x"


def test_ranges_without_uses_follow_roles() -> None:
    graph = from_json('{"format":1,"inputs":4,"ops":[],"output":{"%":0}}')
    shapes = [("bias", "parameter"), ("scale", "parameter"), ("pos_embed", "parameter"), ("x", "input")]
    inputs = [Input(name, role, "float32", (4,) * (1 + (name == "pos_embed")), (1,)) for name, role in shapes]
    inputs[2] = Input("pos_embed", "parameter", "float32", (4, 4), (4, 1))
    assert [(i.mean, i.std) for i in with_ranges(graph, inputs)] == [(0, 0.02), (1, 0.1), (0, 0.02), (0, 1)]

"""What dynamo and fx print of real models is read as the graph that they captured."""

from collections.abc import Iterator

import pytest
import torch
from torch import fx

from extraction.tracing.normalise import normalise
from storage.graph.as_fx import from_fx
from storage.layout.forward import read_forward
from storage.layout.graph_source import graph_of


def _captured(module: torch.nn.Module, **inputs: torch.Tensor) -> list[fx.GraphModule]:
    graphs: list[fx.GraphModule] = []

    def backend(graph: fx.GraphModule, _: list[torch.Tensor]) -> object:
        graphs.append(graph)
        return graph.forward

    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(module.eval(), backend=backend, dynamic=False)(**inputs)
    return graphs


def _timm(name: str, size: int, **options: object) -> Iterator[fx.GraphModule]:
    import timm

    yield from _captured(timm.create_model(name, **options), x=torch.empty(2, 3, size, size))


def _transformers(name: str, **inputs: torch.Tensor) -> Iterator[fx.GraphModule]:
    import transformers

    sizes = {"hidden_size": 32, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 64}
    config = transformers.AutoConfig.for_model(name, **sizes, vocab_size=100, num_key_value_heads=2)
    config.use_cache = False  # as PassNet traces; torch 2.11 cannot trace an empty cache on the meta device
    yield from _captured(transformers.AutoModel.from_config(config), **inputs)


MODELS = {
    "resnet10t": lambda: _timm("resnet10t", 64),
    "xcit": lambda: _timm("xcit_nano_12_p16_224", 224, depth=1),
    "llama": lambda: _transformers("llama", input_ids=torch.zeros(2, 8, dtype=torch.int64)),
    "deberta": lambda: _transformers("deberta-v2", input_ids=torch.zeros(2, 8, dtype=torch.int64)),
}


@pytest.mark.parametrize("model", MODELS)
def test_printed_code_is_read_as_the_captured_graph(model: str) -> None:
    with torch.device("meta"):
        graphs = list(MODELS[model]())
    assert graphs
    for module in graphs:
        printed = module.code, module.print_readable(print_output=False)
        normalise(module)  # which drops what computes nothing, as the parser does
        module.recompile()
        expected = from_fx(module.graph)
        assert len(expected.ops) > 10
        for source in printed:
            forward = read_forward(source, "model.py")
            assert graph_of(forward) == expected
            named = ["parameter" if "_parameters_" in argument.name else "tensor" for argument in forward.arguments]
            if source is printed[0]:
                assert [argument.kind for argument in forward.arguments] == named

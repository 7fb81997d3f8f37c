"""Models that read values are traced with random ones; real classes, made small by their configs."""

from importlib.util import find_spec

import pytest
import torch

from extraction.examples import real_values
from extraction.examples.inputs import by_signature
from extraction.examples.tensors import tensor
from extraction.failures import ModelError
from extraction.sources import transformers_models as source
from extraction.sources.spec import Spec, config_text, hash_of
from extraction.tracing.trace import trace


def spec(name: str, changes: dict) -> Spec:
    """The spec of a class's default config with some fields changed."""
    config = config_text(source.normalise({**source.config(name), **changes}))
    return Spec("transformers", config, hash_of("transformers", config), ())


SMALL = {"d_model": 16, "vocab_size": 50, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16}


@pytest.fixture(scope="module")
def xlm() -> Spec:
    """A model that asks whether its longest text is as long as its input."""
    return spec("xlm", {"emb_dim": 32, "n_heads": 2, "n_layers": 1, "vocab_size": 50})


def test_a_model_that_reads_values_is_traced_in_pieces(xlm: Spec) -> None:
    traced = trace(xlm, "small")
    assert traced.graph_breaks and sum(len(graph.graph.ops) for graph in traced.graphs) > 20
    assert "batch" in traced.symbols


def test_a_model_too_large_for_values_fails_as_before(xlm: Spec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(real_values, "MAX_BYTES", 1000)
    with pytest.raises(ModelError, match=r"meta tensors.*too large to be traced with values") as raised:
        trace(xlm, "small")
    assert raised.value.category == "data_dependent"


def test_values_and_weights_do_not_depend_on_what_was_drawn_before() -> None:
    with torch.device("meta"):
        inputs = {"sound": tensor((2, 5), ("batch", None)), "ids": tensor((2, 3), ("batch", None), torch.int64)}
    inputs["use_cache"] = False
    first, state = real_values.with_values(inputs), torch.random.get_rng_state()
    weights = [real_values.with_weights(lambda: torch.nn.Linear(3, 2)).weight for _ in range(2)]
    torch.rand(7)
    assert torch.equal(first["sound"].tensor, real_values.with_values(inputs)["sound"].tensor)
    assert first["ids"].tensor.eq(1).all() and first["use_cache"] is False and first["ids"].dims == ("batch", None)
    assert torch.equal(*weights) and not torch.equal(state, torch.random.get_rng_state())
    assert all(each.device.type == "cpu" for each in [*weights, first["sound"].tensor, first["ids"].tensor])


def test_texts_end_where_a_classifier_looks_for_their_end() -> None:
    with torch.device("meta"):
        inputs = {"input_ids": tensor((2, 5), ("batch", "sequence"), torch.int64)}
        classifier = source.build(spec("bart/BartForSequenceClassification", SMALL).fields)
        assert real_values.end_of_text(source.build(spec("bart", SMALL).fields)) is None
    ids = real_values.with_values(inputs, real_values.end_of_text(classifier))["input_ids"].tensor
    assert ids.tolist() == [[1, 1, 1, 1, classifier.config.eos_token_id]] * 2
    other = spec("bart/BartForSequenceClassification", {**SMALL, "eos_token_id": 7})
    assert other.config_hash != spec("bart/BartForSequenceClassification", SMALL).config_hash
    assert spec("bart", {"eos_token_id": 7}).config_hash == spec("bart", {}).config_hash


def test_a_class_that_reads_a_part_of_its_type_s_config_gets_that_part() -> None:
    changes = {"decoder": {**source.config("musicgen")["decoder"], "hidden_size": 32, "num_attention_heads": 2}}
    config = spec("musicgen", changes).fields
    with torch.device("meta"):
        model = source.build(config)
        inputs = by_signature(model, config)
    assert type(model.config).__name__ == "MusicgenDecoderConfig" and model.config.hidden_size == 32
    assert inputs["input_ids"].dims == ("batch", "sequence", None)  # one channel for each of its codebooks


@pytest.mark.skipif(find_spec("natten") is not None, reason="the library is there")
def test_a_class_whose_library_is_not_installed_says_which() -> None:
    with pytest.raises(ModelError, match="requires the natten library") as raised:
        trace(spec("dinat", {}), "dinat")
    assert raised.value.category == "missing_dependency"


def test_numbers_of_layers_fit_the_layers_that_are_kept() -> None:
    config = {**source.config("bert"), "part": {"vision_feature_layer": [24, 18, -5, 0], "num_hidden_layers": 25}}
    part = source.normalise(config)["part"]
    assert part == {"vision_feature_layer": [1, 1, -2, 0], "num_hidden_layers": 2}


def test_no_part_of_a_model_keeps_past_keys_and_values() -> None:
    with torch.device("meta"):
        model = source.build(spec("llava", {}).fields)
    assert model.config.use_cache is False and model.config.text_config.use_cache is False


def test_masks_with_a_pattern_of_their_own_leave_no_trace_of_vmap() -> None:
    from transformers import BertConfig, masking_utils

    source.build(spec("bert", {"num_hidden_layers": 1}).fields)

    def near(batch: torch.Tensor, head: torch.Tensor, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        return (query - key).abs() < 2

    config = BertConfig()
    config._attn_implementation = "sdpa"
    made = masking_utils.create_bidirectional_mask(config, torch.zeros(2, 5, 8), None, and_mask_function=near)
    distance = torch.arange(5)[:, None] - torch.arange(5)
    assert torch.equal(made, (distance.abs() < 2).expand(2, 1, 5, 5))

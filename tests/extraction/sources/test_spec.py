"""Specs: what changes the graph changes the hash, what does not leaves it."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extraction.failures import ModelError
from extraction.sources import transformers_models
from extraction.sources.catalog import parse_entry
from extraction.sources.registry import SOURCES
from extraction.sources.spec import Spec, spec_of


def spec(text: str) -> Spec:
    return spec_of(parse_entry(text))


def test_a_spec_is_plain_data_with_a_stable_hash() -> None:
    first = spec("transformers:bert")
    assert first == spec("transformers:bert") == Spec.from_json(first.to_json())
    assert len(first.config_hash) == 64
    assert first.fields["class"] == "BertModel"
    assert dict(first.libraries).keys() == {"torch", "transformers"}


def test_weights_tags_of_one_architecture_share_a_spec() -> None:
    assert spec("timm:resnet18.a1_in1k").config_hash == spec("timm:resnet18").config_hash
    small, large = spec("timm:vit_base_patch16_224"), spec("timm:vit_base_patch16_224.augreg_in21k")
    assert small.fields["num_classes"] != large.fields["num_classes"]
    assert small.config_hash != large.config_hash


def test_task_heads_differ_from_their_base() -> None:
    assert spec("transformers:bert/BertForMaskedLM").config_hash != spec("transformers:bert").config_hash
    assert spec("transformers:bert/BertModel").config_hash == spec("transformers:bert").config_hash
    assert spec("transformers:bert/BertForSequenceClassification").fields["num_labels"] == 2


def test_labels_count_where_a_head_has_them() -> None:
    three = {"id2label": {str(number): f"label {number}" for number in range(3)}}
    for head, differs in (("BertForTokenClassification", True), ("BertForMaskedLM", False), ("BertModel", False)):
        config = transformers_models.config(f"bert/{head}")
        changed = transformers_models.normalise({**config, **three})
        assert (changed != transformers_models.normalise(config)) is differs
    own = transformers_models.config("pvt/PvtForImageClassification")
    assert own["id2label"] is None and transformers_models.normalise(own)["num_labels"] == own["num_labels"] == 1000


def test_layers_that_a_head_reads_are_kept() -> None:
    config = transformers_models.normalise(transformers_models.config("dpt"))
    assert config["num_hidden_layers"] == 4 and config["backbone_out_indices"] == [0, 1, 2, 3]


def test_a_classifier_of_texts_has_a_token_that_does_not_count() -> None:
    assert transformers_models.config("gpt2")["pad_token_id"] is None
    assert transformers_models.config("gpt2/GPT2ForSequenceClassification")["pad_token_id"] == 0
    assert transformers_models.config("bert/BertForSequenceClassification")["pad_token_id"] == BERT["pad_token_id"]


def test_another_name_of_the_number_of_layers_follows_it() -> None:
    config = {**BERT, "num_blocks": BERT["num_hidden_layers"]}
    assert transformers_models.normalise(config)["num_blocks"] == 2
    assert transformers_models.normalise({**config, "num_blocks": 7})["num_blocks"] == 7


def test_library_versions_are_in_the_trace_key_and_not_in_the_hash() -> None:
    now = spec("timm:resnet18")
    later = Spec(now.source, now.config, now.config_hash, (("timm", "99"), ("torch", "99")))
    assert later.trace_key != now.trace_key


BERT = transformers_models.config("bert")


@pytest.mark.parametrize(
    "change",
    [
        {"id2label": {"0": "cat", "1": "dog"}},
        {"transformers_version": "4.0"},
        {"_name_or_path": "org/fine-tune"},
        {"architectures": ["BertForMaskedLM"]},
        {"dtype": "bfloat16"},
        {"initializer_range": 0.5},
        {"init_std": 0.5},
        {"bos_token_id": 7},
        {"use_cache": False},
        {"num_hidden_layers": 24},
    ],
)
def test_what_cannot_change_the_graph_is_dropped(change: dict) -> None:
    assert transformers_models.normalise({**BERT, **change}) == transformers_models.normalise(BERT)


@pytest.mark.parametrize(
    "change",
    [
        {"hidden_size": 1024},
        {"hidden_act": "relu"},
        {"layer_norm_eps": 1e-6},
        {"vocab_size": 100},
        {"num_hidden_layers": 1},
        {"hidden_dropout_prob": 0.2},
        {"pad_token_id": 1},
    ],
)
def test_what_changes_the_graph_is_kept(change: dict) -> None:
    assert transformers_models.normalise({**BERT, **change}) != transformers_models.normalise(BERT)


def test_layers_are_kept_until_every_kind_has_been_seen() -> None:
    kinds = ["sliding"] * 5 + ["full"] + ["sliding"] * 6
    reduced = transformers_models.normalise({**BERT, "num_hidden_layers": 12, "layer_types": kinds})
    assert reduced["num_hidden_layers"] == 6
    assert reduced["layer_types"] == kinds[:6]
    nested = transformers_models.normalise({**BERT, "text_config": {"num_hidden_layers": 12, "bos_token_id": 3}})
    assert nested["text_config"] == {"num_hidden_layers": 2}


@given(st.dictionaries(st.sampled_from(sorted(BERT)), st.integers(1, 50) | st.booleans() | st.text(max_size=5)))
def test_normalising_twice_changes_nothing(changes: dict) -> None:
    config = {**BERT, **changes, "model_type": "bert", "class": "BertModel"}
    once = transformers_models.normalise(config)
    assert transformers_models.normalise(once) == once
    assert json.loads(json.dumps(once)) == once


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("timm:resnet19", r"no model 'resnet19'; did you mean .*resnet1"),
        ("timm:resnet18.a9_in1k", r"no weights tag 'a9_in1k'; did you mean .*a1_in1k"),
        ("transformers:brt", r"no model type 'brt'; did you mean .*bert"),
        ("transformers:bert/BertForMaskedLMs", r"not a class of model type bert; did you mean BertForMaskedLM"),
    ],
)
def test_unknown_names_come_with_close_ones(text: str, message: str) -> None:
    with pytest.raises(ModelError, match=message) as raised:
        spec(text)
    assert raised.value.category == "not_found"


def test_a_library_that_fails_costs_its_own_model(monkeypatch: pytest.MonkeyPatch) -> None:
    def config(name: str) -> dict:
        raise ImportError("No module named 'detectron2'")

    monkeypatch.setitem(SOURCES, "timm", replace(SOURCES["timm"], config=config))
    with pytest.raises(ModelError, match="detectron2") as raised:
        spec("timm:resnet18")
    assert raised.value.category == "missing_dependency"

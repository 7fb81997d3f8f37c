"""The Hub as a source of models, on loopback and by its own client: listings, configs, and what goes wrong."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub.utils import logging

from extraction.failures import ModelError
from extraction.sources import hub_configs, transformers_models
from extraction.sources.catalog import parse_entry, read_catalog
from extraction.sources.spec import Spec, spec_of, specs_of
from extraction.tracing.trace import build
from storage.errors import PassNetError
from tests.support.hub_server import HubServer

BERT = {"model_type": "bert", "architectures": ["BertForMaskedLM"], "hidden_size": 32, "num_attention_heads": 2,
        "intermediate_size": 64, "vocab_size": 100}  # fmt: skip
RESNET = {"architecture": "resnet18", "num_classes": 10,
          "pretrained_cfg": {"tag": "a1_in1k", "input_size": [3, 224, 224], "url": "https://elsewhere"}}  # fmt: skip


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    """A Hub that this process takes for the real one, with a cache of its own and hardly a pause between attempts."""
    constants = huggingface_hub.constants
    with HubServer(tokens={"hf_owner": "owner", "hf_stranger": "stranger"}, page_size=3) as server:
        monkeypatch.setattr(constants, "ENDPOINT", server.endpoint)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        template = server.endpoint + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(constants, "HF_ASSETS_CACHE", str(tmp_path / "assets"))
        monkeypatch.setenv("HF_TOKEN", "hf_stranger")
        monkeypatch.setattr("huggingface_hub.utils._http.time", _Hasty())
        verbosity = logging.get_verbosity()
        logging.set_verbosity_error()
        monkeypatch.setattr(hub_configs, "PAUSE_S", 0.01)
        hub_configs.forget()
        yield server
        hub_configs.forget()
        logging.set_verbosity(verbosity)


class _Hasty:
    """The clock of the client, where every pause takes a thousandth of its time and is kept."""

    pauses: list[float] = []  # noqa: RUF012 - one for the fixture's life

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        time.sleep(seconds / 1000)

    def __getattr__(self, name: str):
        return getattr(time, name)


def put(hub: HubServer, name: str, fields: object, **about: object) -> None:
    data = fields if isinstance(fields, bytes) else json.dumps(fields).encode()
    repo = hub.put("model", name, {"config.json": data})
    for key, value in about.items():
        setattr(repo, key, value)


def spec(name: str) -> Spec:
    return spec_of(parse_entry(f"hub:{name}"))


def fails(name: str) -> tuple[str, str]:
    with pytest.raises(ModelError) as raised:
        spec(name)
    return raised.value.category, str(raised.value)


def test_a_listing_is_by_downloads_over_pages_up_to_the_limit(hub: HubServer) -> None:
    for number in range(8):
        put(hub, f"org/m{number}", BERT, downloads=(number * 5) % 8)
    entries = read_catalog("hub", limit=7)
    assert [entry.name for entry in entries] == [f"org/m{n}" for n in (3, 6, 1, 4, 7, 2, 5)]
    assert all(entry.revision == hub.repo(entry.name, "model").head.oid for entry in entries)
    assert hub.count("GET", "/api/models$") == 3
    assert read_catalog("hub", limit=2) == entries[:2]
    assert hub.count("GET", "/api/models$") == 4


def test_a_listing_is_filtered_by_task_and_library(hub: HubServer) -> None:
    put(hub, "org/a", RESNET, labels=("timm",), task="image-classification")
    put(hub, "org/b", BERT, labels=("transformers",), task="fill-mask")
    put(hub, "org/c", BERT, labels=("transformers",), task="image-classification")
    names = lambda query: [entry.name for entry in read_catalog(query, limit=9)]  # noqa: E731
    assert names("hub?task=image-classification") == ["org/a", "org/c"]
    assert names("hub?task=image-classification&library=timm") == ["org/a"]
    assert names("hub?library=transformers") == ["org/b", "org/c"]


def test_a_listing_waits_as_long_as_it_is_told_and_goes_on(hub: HubServer) -> None:
    for number in range(5):
        put(hub, f"org/m{number}", BERT)
    hub.fail("/api/models", 429, retry_after="7")
    hub.fail("/api/models", 500)
    _Hasty.pauses.clear()
    assert len(read_catalog("hub", limit=5)) == 5
    assert [round(pause) for pause in _Hasty.pauses] == [8, 2]  # the client adds a second; then it backs off


def test_a_listing_that_cannot_be_had_says_so(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    put(hub, "org/a", BERT)
    hub.fail("/api/models", 429, retry_after="86400")
    with pytest.raises(PassNetError, match=r"does not list models .*429.*check the network"):
        read_catalog("hub", limit=1)
    hub.fail("/api/models", 503, times=99)
    with pytest.raises(PassNetError, match=r"does not list models .*503"):
        read_catalog("hub", limit=1)


def test_a_listing_that_cannot_be_kept_says_where(
    hub: HubServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    put(hub, "org/bert", BERT)
    (tmp_path / "file").touch()
    monkeypatch.setattr(huggingface_hub.constants, "HF_ASSETS_CACHE", str(tmp_path / "file" / "assets"))
    with pytest.raises(PassNetError, match=r"cannot write to .* another HF_HOME"):
        read_catalog("hub", 1)


def test_a_process_that_has_loaded_nothing_of_the_client_yet_lists_models() -> None:
    code = "from extraction.sources import hub_models; print(hub_models.listing('', 1))"
    environment = os.environ | {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert "storage.errors.PassNetError: " in done.stderr and "no listing of hub" in done.stderr, done


def test_offline_the_last_listing_and_configs_are_the_answer(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    put(hub, "org/a", BERT)
    put(hub, "org/b", BERT)
    listed = read_catalog("hub", limit=5)
    before = specs_of(listed)
    put(hub, "org/c", BERT)
    asked = len(hub.requests)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    hub_configs.forget()
    assert read_catalog("hub", limit=5) == listed
    assert specs_of(listed) == before
    assert fails("org/c")[0] == "not_found"
    assert "HF_HUB_OFFLINE" in fails("org/c")[1]
    with pytest.raises(PassNetError, match=r"no listing of hub.library=timm is in the cache"):
        read_catalog("hub?library=timm", limit=5)
    assert len(hub.requests) == asked


def test_a_config_is_fetched_once_and_nothing_else_is(hub: HubServer) -> None:
    put(hub, "org/a", BERT)
    hub.put("model", "org/a", {"model.safetensors": b"x" * 100, "modeling.py": b"raise SystemExit"})
    entry = read_catalog("hub", limit=1)[0]
    assert spec_of(entry) == spec_of(entry)
    hub_configs.forget()
    spec_of(entry)  # a commit never changes: from the cache
    assert {r.path.rpartition("/")[2] for r in hub.requests if "resolve" in r.path} == {"config.json"}
    assert hub.count("GET", "/resolve/") == 1


def test_models_of_the_hub_share_the_specs_of_the_libraries(hub: HubServer) -> None:
    put(hub, "org/bert", {"model_type": "bert", "architectures": ["BertForMaskedLM"]})
    put(hub, "org/tuned", {**transformers_models.config("bert"), "architectures": ["BertForMaskedLM"],
                           "_name_or_path": "/home/me", "temperature": 0.5, "transformers_version": "4.1"})  # fmt: skip
    put(hub, "timm/resnet", {**RESNET, "num_classes": 1000})
    assert spec("org/bert") == spec("org/tuned") == spec_of(parse_entry("transformers:bert/BertForMaskedLM"))
    assert spec("timm/resnet") == spec_of(parse_entry("timm:resnet18"))
    put(hub, "org/wider", {"model_type": "bert", "architectures": ["BertForMaskedLM"], "hidden_size": 960})
    put(hub, "org/base", {"model_type": "bert"})
    assert len({spec(f"org/{name}").config_hash for name in ("bert", "wider", "base")}) == 3
    assert spec("org/base") == spec_of(parse_entry("transformers:bert"))


def test_a_model_of_a_config_from_the_hub_is_built(hub: HubServer) -> None:
    put(hub, "org/bert", BERT)
    put(hub, "org/resnet", RESNET)
    bert, inputs = build(spec("org/bert"))
    assert type(bert).__name__ == "BertForMaskedLM"
    assert {"input_ids", "attention_mask"} <= inputs.keys()
    resnet, _ = build(spec("org/resnet"))
    assert resnet.num_classes == 10


@pytest.mark.parametrize(
    ("fields", "category", "message"),
    [
        (b'{"model_type": "bert", "hidd', "config", "is no JSON: JSONDecodeError"),
        (b"[1, 2]", "config", "is a list, not an object"),
        (b"[" * 100_000, "config", "is no JSON: RecursionError"),
        (b"\xff\xfe\x00", "config", "is no JSON"),
        ({"model_type": "bert", "hidden_size": "wide"}, "config", "hidden_size"),
        ({"model_type": "unheard"}, "config", "has no model type 'unheard'"),
        ({"model_type": ["bert"]}, "config", "has no model type"),
        ({"model_type": "bert", "architectures": ["BertForLaughs"]}, "config", "has no class BertForLaughs"),
        ({}, "config", "has no model type None"),
        ({**BERT, "num_labels": 10**9}, "config", "num_labels is 1000000000, and no model has"),
        ({**BERT, "num_hidden_layers": 10**400}, "config", "num_hidden_layers is 1"),
        ({"model_type": "llava", "text_config": {"num_hidden_layers": 1e9}}, "config", "num_hidden_layers is 1"),
        ({"model_type": "gpt_neo", "attention_types": [[["global"], 10**9]]}, "config", "attention_types is 1"),
        (
            {"model_type": "mine", "auto_map": {"AutoModel": "modeling.Mine"}},
            "remote_code",
            "model type 'mine' is code in its repository, which is never executed",
        ),
        (
            {"model_type": "llama", "architectures": ["MyLlama"], "auto_map": {"AutoModel": "modeling.MyLlama"}},
            "remote_code",
            "class MyLlama is code in its repository",
        ),
        ({**RESNET, "model_args": {"checkpoint_path": "/etc/passwd"}}, "config", "'checkpoint_path', which loads"),
        ({**RESNET, "architecture": "resnet19"}, "not_found", "timm has no model 'resnet19'"),
        ({**RESNET, "pretrained_cfg": {"input_size": [3, -1, "a"]}}, "config", "not three numbers"),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 12 else "",
)
def test_what_a_config_can_be(hub: HubServer, fields: object, category: str, message: str) -> None:
    put(hub, "org/odd", fields)
    found, said = fails("org/odd")
    assert (found, message in said) == (category, True), said


def test_code_of_a_repository_is_not_needed_for_a_class_that_the_library_has(hub: HubServer) -> None:
    put(hub, "org/a", {**BERT, "auto_map": {"AutoModel": "modeling.Mine"}})
    assert spec("org/a").fields["class"] == "BertForMaskedLM"


def test_what_a_config_asks_to_load_is_left_out(hub: HubServer) -> None:
    put(hub, "org/a", BERT)
    put(hub, "org/b", {**BERT, "_attn_implementation": "org/kernel", "attn_implementation": "org/kernel",
                       "quantization_config": {"quant_method": "gptq"}, "use_kernels": True})  # fmt: skip
    assert spec("org/b") == spec("org/a")
    put(hub, "org/detr", {"model_type": "detr", "use_pretrained_backbone": True, "backbone": "resnet50"})
    assert not spec("org/detr").fields.get("use_pretrained_backbone")


def test_a_config_of_50_mb_is_refused_before_it_is_read(hub: HubServer, tmp_path: Path) -> None:
    put(hub, "org/huge", json.dumps({**BERT, "notes": "x" * (50 << 20)}).encode())
    assert fails("org/huge") == ("config", "config.json of org/huge is larger than 8388608 bytes")
    assert sum(file.stat().st_size for file in (tmp_path / "cache").rglob("*") if file.is_file()) < 16 << 20


def test_repositories_that_are_closed_or_not_there(hub: HubServer) -> None:
    put(hub, "org/gated", BERT, gated=True)
    put(hub, "org/private", BERT, private=True)
    put(hub, "org/there", BERT)
    hub.put("model", "org/bare", {"README.md": b""})
    assert fails("org/gated")[0] == "gated"
    assert fails("org/private")[0] == "not_found"
    assert fails("org/none")[0] == "not_found"
    assert fails("org/there@v9") == ("not_found", "org/there has no revision 'v9'")
    assert fails("org/bare") == ("config", "org/bare has no config.json")
    assert fails("org/..")[0] == "not_found"


@pytest.mark.parametrize(("status", "retry_after"), [(429, "3"), (500, None), (503, None), (0, None)])
def test_a_config_is_asked_for_again(hub: HubServer, status: int, retry_after: str | None) -> None:
    put(hub, "org/a", BERT)
    hub.fail("/resolve/", status, times=3, retry_after=retry_after)
    assert spec("org/a").source == "transformers"


def test_the_clients_lines_about_tries_are_kept_back_meanwhile() -> None:
    before = logging.get_verbosity()
    logging.set_verbosity_warning()
    with hub_configs.bounded_client():
        assert logging.get_verbosity() == logging.ERROR
    assert logging.get_verbosity() == logging.WARNING
    logging.set_verbosity(before)


def test_a_hub_that_keeps_failing_costs_the_model_and_then_ends_the_build(hub: HubServer) -> None:
    names = [f"org/m{number}" for number in range(8)]
    for name in names:
        put(hub, name, BERT)
    hub.fail("/resolve/.*", 500, times=10_000)
    category, said = fails(names[0])
    assert (category, "HTTP status 500" in said) == ("timeout", True), said
    with pytest.raises(PassNetError, match=r"no usable answer .* set HF_HUB_OFFLINE=1") as raised:
        specs_of([parse_entry(f"hub:{name}") for name in names])
    assert not isinstance(raised.value, ModelError)


def test_a_hub_that_says_nothing_is_not_waited_for(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    put(hub, "org/a", BERT)
    monkeypatch.setattr(hub_configs, "SILENCE_S", 0.2)
    hub.slow("/resolve/", 1.0, times=2)
    assert spec("org/a").source == "transformers"
    hub.slow("/api/models", 1.0, times=1)
    assert len(read_catalog("hub", limit=1)) == 1
    hub_configs.forget()
    put(hub, "org/b", BERT)
    hub.slow("/org/b/resolve/", 1000.0, times=99)
    assert fails("org/b")[0] == "timeout"
    assert not [r for r in hub.requests if "/org/b/resolve/" in r.path], "the Hub has not answered yet"


def test_many_configs_are_fetched_side_by_side(hub: HubServer) -> None:
    entries = [parse_entry(f"hub:org/m{number}") for number in range(16)]
    for entry in entries:
        put(hub, entry.name, BERT)
    hub.meet("/resolve/", hub_configs.FETCHERS)
    found = specs_of([*entries, parse_entry("hub:org/none")])
    assert len({each.config_hash for each in found[:16]}) == 1
    assert found[16].category == "not_found"

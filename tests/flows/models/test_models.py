"""Whole models through the command line, on the CPU: tune, explain, evaluate-models, library."""

import json
from pathlib import Path

import pytest
import torch

from flows.models.named_model import named_model
from flows.models.tune import regions_of
from storage.errors import PassNetError
from storage.versions.store import Store
from tests.flows.commands import error_line, passnet_here

CPU = torch.device("cpu")
OWN = "tests.flows.models.own_model:residual"


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()


def said(*arguments: str) -> dict:
    """The JSON document that a command prints."""
    done = passnet_here(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_catalogues_line_is_a_model_and_a_call():
    named = named_model("timm:resnet10t", 2, "bfloat16", CPU)
    assert named.batch == 2 and {p.dtype for p in named.model.parameters()} == {torch.bfloat16}
    (x,) = named.kwargs.values()
    assert x.shape[0] == 2 and x.dtype == torch.bfloat16 and not named.model.training
    with torch.no_grad():
        assert named.model(**named.kwargs).shape == (2, 1000)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("nope", "is no model"),
        ("json:nope", "cannot be called"),
        ("tests.flows.models.own_model:Residual", "must return"),
        ("dir:nowhere", "."),
        ("timm:", "is not a name of source timm"),
    ],
)
def test_what_is_no_model_is_one_line(name, why):
    with pytest.raises(PassNetError, match=why):
        named_model(name, None, None, CPU)
    with pytest.raises(PassNetError, match="leave out --batch"):
        named_model(OWN, 2, None, CPU)


def test_regions_have_the_sizes_of_the_call():
    samples, places = regions_of(named_model(OWN, None, None, CPU))
    assert samples and all(len(sample.variants) == 1 for sample in samples) and sum(places.values()) >= len(samples)
    shapes = {i.shape for sample in samples for i in sample.variants[0].inputs}
    assert (4, 8) in shapes


def test_tune_explain_and_library(tmp_path):
    data = ["--data", str(tmp_path)]
    first = said("tune", OWN, *data)
    assert first["chosen"].startswith("eager") and not first["remembered"] and first["ops"] == 8
    assert {way["way"] for way in first["ways"]} == {"eager", "eager-once"} and not first["why_not"]
    page = tmp_path / "page.html"
    document = said("explain", OWN, *data, "--out", str(page))
    assert document["remembered"] and document["chosen"] == first["chosen"]
    assert any("addmm" in line["name"] for line in document["kernels"]) and document["eager_kernels"]
    assert document["served_by"]["eager"] == 8 and "relu" in document["code"]
    html = page.read_text()
    assert "eager-once" in html and "<script" not in html
    assert said("library", "list", *data)["entries"] == []
    assert "has 0 passes" in error_line(passnet_here("library", "show", "ffff", *data))


def test_models_are_measured_and_published(tmp_path):
    data = ["--data", str(tmp_path)]
    done = said("evaluate-models", OWN, *data)
    (row,) = done["rows"]
    assert row["status"] == "ok" and row["batch"] == 4 and row["dtype"] == "float32" and not row["times_meaningful"]
    version = Store(tmp_path).latest()
    assert version.table("model_results").to_pylist()[0]["chosen"] == row["chosen"]
    again = said("evaluate-models", OWN, *data)
    assert again["rows"] == done["rows"] and again["version"] == version.name, "nothing is measured again"
    assert "there is no regime 'fast'" in error_line(passnet_here("evaluate-models", OWN, "--regimes", "fast", *data))
    assert "over eager" in passnet_here("evaluate-models", OWN, *data).stdout


def test_the_library_takes_passes_of_a_version(tmp_path):
    from tests.support.scored import scored

    store = scored(tmp_path / "data")
    done = said("library", "add", "latest", "--data", str(store.root))
    assert Path(done["library"]) == store.root / "library" and done["rows"] > 0
    assert json.dumps(done["hashes"]) and done["added"] == len(done["hashes"])

"""Whole models through the command line, on the CPU: tune, explain, evaluate-models, library."""

import json
import threading
import time
from pathlib import Path

import pytest
import torch

from agent.registry import author as author_named
from agent.run.opening import alone
from flows.models.explain import explain
from flows.models.named_model import named_model
from flows.models.tune import regions_of, tune
from passbench.library.pass_library import PassLibrary
from passbench.models.optimized_model import OptimizeSettings
from passbench.settings import Settings
from storage.errors import PassNetError
from storage.versions.store import Store
from tests.flows.commands import error_line, passnet_here
from tests.passbench.library.small_library import library

CPU = torch.device("cpu")
OWN = "tests.flows.models.own_model:residual"


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()


@pytest.fixture(autouse=True, scope="module")
def _interpreted():
    """Triton's kernels run in its interpreter where a pass with such serves."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_INTERPRET", "1")
        yield


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
        ("tests.flows.models.own_model:torch", "cannot be called: it is a value of type module"),
        ("tests.flows.models.own_model:raising", r"raised ValueError: no weights here \(own_model.py:\d+\)"),
        ("tests.flows.models.own_model:tensor_alone", "a value of type Tensor as args"),
        ("dir:nowhere", "."),
        ("timm:", "is not a name of source timm"),
    ],
)
def test_what_is_no_model_is_one_line(name, why):
    with pytest.raises(PassNetError, match=why):
        named_model(name, None, None, CPU)
    with pytest.raises(PassNetError, match="leave out --batch"):
        named_model(OWN, 2, None, CPU)


def test_a_model_that_fails_on_its_call_is_refused(tmp_path):
    named = named_model("tests.flows.models.own_model:too_wide", None, None, CPU)
    with pytest.raises(PassNetError, match=r"the model fails on the example call: RuntimeError: .*4x9"):
        tune(named, tmp_path, OptimizeSettings(effort="quick"))


@pytest.mark.parametrize(
    ("part", "author"), [("models", None), ("passes", "distill-static"), ("runs", "distill-static")]
)
def test_a_library_that_cannot_be_written_is_told_before_anything_is_measured(tmp_path, part, author):
    (tmp_path / part).touch()  # no permissions: root may write everywhere
    named, said = named_model(OWN, None, None, CPU), []
    with pytest.raises(PassNetError, match=f"cannot write to .*{part} .*choose another"):
        tune(named, tmp_path, OptimizeSettings(effort="quick"), author=author, limit=1, say=said.append)
    assert not said


def test_two_that_tune_a_model_take_turns_at_its_regions(tmp_path):
    named, said, done = named_model(OWN, None, None, CPU), [], []
    missing = regions_of(named)[0][:1]
    writer = author_named("distill-static", None, None)

    def other():
        done.append(
            tune(named, tmp_path, OptimizeSettings(effort="quick"), author=writer.name, limit=1, say=said.append)
        )

    with alone(writer, missing, 1, "cpu", Settings(), tmp_path):
        thread = threading.Thread(target=other)
        thread.start()
        deadline = time.monotonic() + 60
        while not any("this one goes on when that has ended" in line for line in said):
            assert thread.is_alive() and time.monotonic() < deadline, said
            time.sleep(0.05)
    thread.join()
    assert done[0][0]["regions"]["written"] + sum(done[0][0]["regions"]["left"].values()) >= 1


def test_regions_have_the_sizes_of_the_call():
    samples, places = regions_of(named_model(OWN, None, None, CPU))
    assert samples and all(len(sample.variants) == 1 for sample in samples) and sum(places.values()) >= len(samples)
    shapes = {i.shape for sample in samples for i in sample.variants[0].inputs}
    assert (4, 8) in shapes


def test_tune_explain_and_library(tmp_path):
    """An author writes passes for the model's regions, which are a way of running the whole."""
    data = ["--data", str(tmp_path)]
    first = said("tune", OWN, "--author", "distill-static", "--limit", "1", *data)
    assert not first["remembered"] and first["ops"] == 8 and not first["why_not"]
    assert first["regions"]["written"] == 1 and first["regions"]["regions"] == 2
    (entry,) = said("library", "list", *data)["entries"]
    served = {way["way"]: way for way in first["ways"]}["eager-once+passes"]
    assert served["served"] == {entry["hash"]: 1} and served["us"] > 0 and not served["reason"]
    page = tmp_path / "page.html"
    document = said("explain", OWN, *data, "--out", str(page))
    assert document["remembered"] and document["chosen"] == first["chosen"]
    assert any("addmm" in line["name"] for line in document["kernels"]) and document["eager_kernels"]
    assert "relu" in document["code"] and "eager-once+passes" in page.read_text() and "<script" not in page.read_text()
    bare = said("tune", OWN, "--without", "passes", "--without", "once", *data)
    assert [way["way"] for way in bare["ways"]] == ["eager"] and not bare["regions"]
    assert "has no pass 'ffff'" in error_line(passnet_here("library", "show", "ffff", *data))


def test_a_pass_of_another_machine_is_measured_before_it_serves(tmp_path):
    (entry,) = library(tmp_path, 4, 8, device="NVIDIA H200").entries()
    named = named_model(OWN, None, None, CPU)
    document, _ = tune(named, tmp_path, OptimizeSettings(effort="quick"))
    assert document["regions"]["measured"] == 1 and document["regions"]["written"] == 0
    assert {row["device"] for row in PassLibrary(tmp_path).entry(entry.name).passports} == {"NVIDIA H200", "cpu"}
    assert any(way["served"] == {entry.name: 1} for way in document["ways"])


def test_models_are_measured_and_published(tmp_path):
    data = ["--data", str(tmp_path)]
    done = said("evaluate-models", OWN, *data)
    (row,) = done["rows"]
    assert row["status"] == "ok" and row["batch"] == 4 and row["dtype"] == "float32" and not row["times_meaningful"]
    version = Store(tmp_path).latest()
    assert version.table("model_results").to_pylist()[0]["chosen"] == row["chosen"]
    again = said("evaluate-models", OWN, *data)
    assert again["rows"] == done["rows"] and again["version"] == version.name, "nothing is measured again"
    assert "over eager" in passnet_here("evaluate-models", OWN, *data).stdout
    nothing = passnet_here("evaluate-models", "timm:nosuch", *data)
    assert nothing.returncode == 1 and "timm has no model 'nosuch'" in nothing.stdout


def test_the_library_takes_passes_of_a_version(tmp_path):
    from tests.support.scored import scored

    store = scored(tmp_path / "data")
    done = said("library", "add", "latest", "--data", str(store.root))
    assert Path(done["library"]) == store.root / "library" and done["rows"] > 0
    assert json.dumps(done["hashes"]) and done["added"] == len(done["hashes"])


def test_a_model_without_weights_is_tuned_and_explained(tmp_path):
    named = named_model("tests.flows.models.own_model:without_parameters", None, None, CPU)
    document, fast = tune(named, tmp_path, OptimizeSettings(effort="quick"))
    assert document["ops"] == 1 and named.device == CPU
    assert explain(named, fast, tmp_path)["model"] == named.name


def test_a_module_that_cannot_be_imported_is_one_clear_line(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "raises_on_import.py").write_text("raise ValueError('no weights here')\n")
    (tmp_path / "is_no_python.py").write_text("def f(:\n")
    for module, said in (("raises_on_import", "ValueError: no weights here"), ("is_no_python", "SyntaxError")):
        with pytest.raises(PassNetError, match=f"{module} cannot be imported: {said}"):
            named_model(f"{module}:f", None, None, CPU)

"""Evaluation: results and scores land as a new version, finished samples are not run again, failures are records."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from flows.evaluate_model import evaluate_model, summary_of_run
from storage.errors import PassNetError
from storage.versions.store import Store
from tests.flows.commands import error_line, passnet_here, passnet_json
from tests.support.stores import few


@pytest.fixture(scope="module")
def evaluated(built, tmp_path_factory):
    """A data directory in which two authors have been evaluated, and the summary."""
    data = tmp_path_factory.mktemp("evaluated") / "data"
    few(Store(built).latest(), data, samples=3, variants=2)
    done = evaluate_model.fn(author="eager,distill", data=str(data), category="fusible", limit=3, device="cpu")
    return data, done


def parts_of(data, run):
    """The files of a run's samples, the one with the fewest variants first: kernels are interpreted here, slowly."""
    found = sorted((data / "runs" / run).glob("*.parquet"))
    return sorted(found, key=lambda path: pq.read_metadata(path).num_rows)


def test_results_and_scores_are_a_new_version_beside_the_same_dataset(evaluated):
    data, done = evaluated
    old, new = (Store(data).open(name) for name in ("v1", "v2"))
    assert done["version"] == new.name and new.manifest.parent == old.name
    assert new.table("samples").equals(old.table("samples"))
    rows = new.table("results").to_pylist()
    assert {r["author"] for r in rows} == {"eager", "distill"}
    assert {r["status"] for r in rows if r["author"] == "eager"} == {"ok"}
    scores = new.table("scores").to_pylist()
    assert {s["t"] for s in scores if s["clock"] == "e2e"} == set(range(-10, 5))


def test_the_offline_author_writes_passes_that_are_right(evaluated):
    data, _ = evaluated
    rows = [r for r in Store(data).latest().table("results").to_pylist() if r["author"] == "distill"]
    assert {r["status"] for r in rows} == {"ok"}
    written = [r for r in rows if r["compiler"] == "pass"]
    assert written, "none of the samples was worth a pass"
    assert all(r["matches"] >= 1 and "two_processes" in r["layers"] for r in written)
    assert all("pattern" in f["content"] for r in written for f in r["pass_files"] if f["path"].endswith(".py"))


def test_times_without_a_gpu_are_labelled(evaluated):
    data, done = evaluated
    assert not any(r["times_meaningful"] for r in Store(data).latest().table("results").to_pylist())
    assert done["times_meaningful"] is False


def test_evaluating_again_measures_nothing_and_publishes_nothing(evaluated):
    data, done = evaluated
    parts = {p: p.stat().st_mtime_ns for p in (data / "runs").rglob("*.parquet")}
    again = evaluate_model.fn(author="eager,distill", data=str(data), category="fusible", limit=3, device="cpu")
    assert again["version"] == done["version"]
    assert {p: p.stat().st_mtime_ns for p in (data / "runs").rglob("*.parquet")} == parts


@pytest.mark.parametrize("number", [0, 1], ids=["eager", "distill"])
def test_an_interrupted_evaluation_runs_only_what_is_missing(evaluated, number):
    data, done = evaluated
    run = done["runs"][number]
    parts = parts_of(data, run["run"])
    parts[0].unlink()  # a pass that was written, and not yet measured, stays behind
    before = {p: p.stat().st_mtime_ns for p in parts[1:]}
    evaluate_model.fn(author=run["author"], data=str(data), category="fusible", limit=3, device="cpu")
    assert parts[0].exists()
    assert {p: p.stat().st_mtime_ns for p in parts[1:]} == before


def test_score_report_diff_and_versions(evaluated, tmp_path):
    data, done = evaluated
    scores = passnet_json("score", "distill", "--data", data)["scores"]
    assert {s["author"] for s in scores} == {"distill"}
    stored = [s for s in Store(data).latest().table("scores").to_pylist() if s["author"] == "distill"]
    assert sorted(scores, key=lambda s: s["t"]) == sorted(stored, key=lambda s: s["t"])
    page = passnet_json("report", "latest", "--out", tmp_path / "report", "--data", data)["page"]
    text = Path(page).read_text(encoding="utf-8")
    assert "data:image/png;base64," in text and "no GPU ran" in text
    assert {p.name for p in (tmp_path / "report").iterdir()} >= {"index.html", "es_t.png", "results.csv", "scores.csv"}
    difference = passnet_json("diff", "v1", done["version"], "--data", data)["configs"]
    same = {"added": 0, "removed": 0, "changed": 0, "columns": {}, "rows": difference["samples"]["rows"]}
    assert difference["samples"] == same
    assert difference["results"]["added"] > 0
    assert [v["version"] for v in passnet_json("versions", "--data", data)["versions"]][:2] == ["v1", "v2"]


def test_bench_and_check_of_one_pass(evaluated, tmp_path):
    data, done = evaluated
    run = next(r["run"] for r in done["runs"] if r["author"] == "distill")
    places = (data / "runs" / run / "passes" / part.stem / "1" for part in parts_of(data, run))
    pass_dir = next(place for place in places if place.is_dir())
    assert passnet_json("check", pass_dir) == {"findings": []}
    sample = pass_dir.parent.name
    answer = passnet_json("bench", sample, "--passes", pass_dir, "--data", data, "--device", "cpu")
    assert answer["sample"] == sample and answer["compiler"] == "pass"
    assert {v["status"] for v in answer["variants"]} == {"ok"}
    assert all(-10 <= v["t_min"] <= 1 for v in answer["variants"])
    module = next(p for p in pass_dir.glob("*.py"))
    module.write_text(module.read_text() + "\nimport os\n\nHOME = os.environ\n")
    refused = passnet_here("check", pass_dir)
    assert refused.returncode == 1 and "forbidden_call" in refused.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--author", "nobody"], "distill"),
        (["--author", "llm"], "--model"),
        (["--author", "eager", "--version", "v9"], "v1"),
        (["--author", "eager", "--device", "cuda:7"], "cpu"),
        (["--author", "eager", "--device", "toaster"], "device"),
    ],
)
def test_what_cannot_be_evaluated_is_one_clear_line(data_dir, arguments, said):
    assert said in error_line(passnet_here("evaluate", "--data", data_dir, *arguments))


def test_an_empty_data_directory_says_what_to_do(tmp_path):
    assert "passnet build" in error_line(passnet_here("evaluate", "--data", tmp_path, "--author", "eager"))


def test_a_corrupt_result_is_named_and_nothing_is_published(evaluated):
    data, done = evaluated
    versions = len(Store(data).versions())
    part = next((data / "runs" / done["runs"][0]["run"]).glob("*.parquet"))
    content = part.read_bytes()
    part.write_bytes(b"not parquet")
    with pytest.raises(PassNetError, match=part.name):
        evaluate_model.fn(author="eager", data=str(data), category="fusible", limit=3, device="cpu")
    part.write_bytes(content)
    assert len(Store(data).versions()) == versions


def test_a_corrupt_shard_is_named_before_anything_is_measured(evaluated):
    """One that the evaluation does not read: results are published beside it."""
    data, _ = evaluated
    version = Store(data).open()
    shard = version.path / next(
        shard.path for shard in version.manifest.shards if shard.config not in ("fusible", "samples")
    )
    content, runs = shard.read_bytes(), sorted((data / "runs").iterdir())
    shard.unlink()  # other versions have the same file
    shard.write_bytes(content[:-1])
    with pytest.raises(PassNetError, match=f"{shard.name}.* is corrupt"):
        evaluate_model.fn(author="inductor-strict", data=str(data), category="fusible", limit=1, device="cpu")
    shard.write_bytes(content)
    assert sorted((data / "runs").iterdir()) == runs


def test_a_summary_counts_what_matched_and_cuts_reasons_between_words():
    """A pass that could not be compiled may have failed before it was applied."""
    row = {"author": "a", "sample": "s", "compiler": "pass", "matches": None, "reason": ""}
    row |= {"t_min": None, "speedup_e2e": None, "error_code": 1}
    reason = "cannot be compiled, " * 10
    rows = [
        row | {"status": "ok", "matches": 1, "t_min": -10.0},
        row | {"status": "compile_error", "reason": f"{reason}\nline 2"},
        row | {"status": "compile_error", "matches": 2},
        row | {"status": "no_match", "matches": 0},
    ]
    found = summary_of_run("r", rows, [])
    assert (found["ok"], found["matched"]) == (1, 2)
    said = next(said for _, said, _ in found["failures"] if said)
    assert len(said) <= 120 and said.endswith("cannot be …")

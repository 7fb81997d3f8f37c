"""`python -m agent.run` on a CPU: it measures, goes on where it stopped, and says why where it does not."""

import json
import shutil
import textwrap
from pathlib import Path

import pytest

from agent.run import evaluation_run
from agent.run.__main__ import main
from storage.parquet import read_rows
from storage.records import Sample
from storage.schema import RESULTS
from storage.versions.version import Version
from tests.passbench.samples import add_relu_sample
from tests.support.stores import publish_samples

ROOT = Path(__file__).resolve().parents[3]
FAST = ["--device", "cpu", "--categories", "fusible"]


@pytest.fixture(scope="module")
def version(tmp_path_factory) -> Version:
    """Two samples of two variants."""
    variants = add_relu_sample((3, 40), (5, 7)).variants
    named = [
        tuple(v.with_changes(variant_hash=f"{name}{n}") for n, v in enumerate(variants)) for name in ("one", "two")
    ]
    samples = [Sample(f"fusible-{v[0].variant_hash}", v[0].variant_hash, "fusible", "eval", v) for v in named]
    return publish_samples(samples, tmp_path_factory.mktemp("run") / "data")


def files(out: Path) -> dict[str, int]:
    return {str(p.relative_to(out)): p.stat().st_mtime_ns for p in sorted(out.glob("runs/*/*.parquet"))}


def test_it_measures_and_a_second_call_measures_only_what_is_missing(version, tmp_path, caplog, monkeypatch):
    given = [str(version.path), *FAST, "--authors", "eager", "--at-most", "1", "--out", str(tmp_path)]
    given += ["--compile-ahead", "1"]  # eager compiles nothing
    assert main(given) == 0
    before = files(tmp_path)
    assert len(before) == 2
    rows = read_rows(tmp_path / "results.parquet", RESULTS)
    assert [(r["author"], r["status"]) for r in rows] == [("eager", "ok")] * 2
    assert {score["run"] for score in json.loads((tmp_path / "scores.json").read_text())} == {rows[0]["run"]}
    lost = tmp_path / sorted(before)[0]
    lost.unlink()
    assert main(given) == 0
    after = files(tmp_path)
    assert after.keys() == before.keys()
    assert [name for name in before if before[name] != after[name]] == [str(lost.relative_to(tmp_path))]
    text = (tmp_path / "summary.md").read_text()
    assert "| eager | - | all | 2 | 2 | 2 | 2 |" in text and "No GPU ran" in text
    assert "1 of 1 variants" not in caplog.text
    monkeypatch.setattr(evaluation_run, "QUIET_S", 0.0)
    assert main([*given, "--protocol", "paper"]) == 0
    assert caplog.text.count(": ok; 1 of 1 variants") == 2, "a sample that takes long shows its variants"
    assert "has 2 finished samples: settings protocol was passnet, is paper" in caplog.text


def test_passes_are_written_ahead_and_a_second_call_goes_on(version, tmp_path):
    given = [
        str(version.path),
        *FAST,
        "--authors",
        "distill,eager",
        "--at-most",
        "1",
        "--out",
        str(tmp_path),
        "--mixed",
    ]
    given += ["--write-ahead", "2"]
    assert main([*given, "--write-first", "300"]) == 0
    rows = read_rows(tmp_path / "results.parquet", RESULTS)
    assert sorted((r["author"], r["status"]) for r in rows) == [("distill", "ok")] * 2 + [("eager", "ok")] * 2
    answers = {path: path.stat().st_mtime_ns for path in tmp_path.glob("ahead/distill/*/answer.json")}
    assert len(answers) == 2
    before = files(tmp_path)
    (tmp_path / sorted(before)[0]).unlink()
    assert main(given) == 0
    after = files(tmp_path)
    assert [name for name in before if before[name] != after[name]] == sorted(before)[:1]
    assert answers == {path: path.stat().st_mtime_ns for path in answers}, "no pass is written twice"


def test_passes_that_are_there_are_run_on_their_samples(version, tmp_path):
    passes = tmp_path / "passes"
    shutil.copytree(ROOT / "tests" / "support" / "passes" / "add_relu", passes / "fusible-one0")
    given = [str(version.path), *FAST, "--authors", "", "--passes", str(passes), "--out", str(tmp_path / "out")]
    assert main(given) == 0
    rows = read_rows(tmp_path / "out" / "results.parquet", RESULTS)
    assert {(r["sample"], r["author"], r["status"]) for r in rows} == {("fusible-one0", "ready", "ok")}


def test_no_sample_and_no_time_are_told_by_the_exit_status(version, tmp_path, capsys):
    given = [str(version.path), *FAST, "--out", str(tmp_path), "--authors", "eager"]
    assert main([*given, "--budget", "0"]) == 1
    assert main([*given, "--split", "train"]) == 1
    assert main([*given[:-1], "nobody"]) == 1
    assert "there is no author 'nobody'" in capsys.readouterr().err
    (tmp_path / "names.txt").write_text("fusible-one0 fusible-three0\n")
    assert main([*given, "--budget", "0", "--names", str(tmp_path / "names.txt")]) == 1
    assert "names.txt names what is no sample in eval of" in (said := capsys.readouterr().err)
    assert ": fusible-three0\n" in said


@pytest.mark.parametrize("given", [("--names", "nowhere.txt"), ("--passes", "nowhere")])
def test_a_file_that_is_not_there_is_one_clear_line(version, tmp_path, capsys, given):
    assert main([str(version.path), *given, "--out", str(tmp_path / "out")]) == 1
    assert "agent.run: what --names or --passes gives cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        *(("--part", part, "is no part: the two parts of two are") for part in ("1", "2/2", "a/b", "0/0")),
        ("--limit", "0", "'0' is no whole number from 1 on"),
        ("--split", "eval,test", "there is no 'test': use train, eval"),
    ],
)
def test_a_wrong_value_is_a_usage_error(version, tmp_path, capsys, option, value, said):
    with pytest.raises(SystemExit) as ended:
        main([str(version.path), option, value, "--out", str(tmp_path / "out")])
    assert ended.value.code == 2 and said in capsys.readouterr().err


def test_a_gpu_host_needs_no_more_than_the_workers_libraries(torch_forks):
    code = """
        import sys
        for name in ("prefect", "pydantic_ai", "datasets", "huggingface_hub", "transformers", "timm", "click"):
            sys.modules[name] = None
        import agent.run.__main__
        from agent.registry import author
        from storage.errors import PassNetError
        assert author("distill").name == "distill"
        try:
            author("llm", "openai:gpt-5.5")
        except PassNetError as error:
            print(error)
    """
    done = torch_forks(textwrap.dedent(code), directory=ROOT)
    assert done.returncode == 0, done.stderr
    assert "pip install" in done.stdout

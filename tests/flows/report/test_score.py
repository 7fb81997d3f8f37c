"""`passnet score`: runs of a version and files of results, both clocks, groups, attempts, and what goes wrong."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flows.cli.tables import score_text
from flows.report.score_run import score_run
from passbench.result import EAGER_VARIES, NO_GRAPH_OF_CANDIDATE, NO_GRAPH_OF_EAGER
from passbench.score import LEVELS
from storage.errors import PassNetError
from storage.schema import RESULTS, SCORES, SUBGRAPHS
from storage.versions.store import Store
from tests.flows.commands import error_line, passnet_here, passnet_json

RECORD = Path(__file__).parents[3] / "benchmarks" / "passbench" / "h200_quickstart"


def result(run: str, sample: str, variant: str, attempt: int = 1, **changes: object) -> dict:
    return {
        "run": run, "author": run.rpartition("-")[0] or run, "model": "", "attempt": attempt, "status": "ok",
        "sample": sample, "category": sample.split("-")[0], "variant_hash": variant, "reason": "", "t_min": -10,
        "speedup_e2e": 2.0, "speedup_device": 4.0, "times_meaningful": True, "device": "GPU", "protocol": "passnet",
    } | changes  # fmt: skip


FAILED = {"speedup_e2e": None, "speedup_device": None, "t_min": None}
ROWS = [
    *(result("inductor-01", "fusible-1", v) for v in ("half", "single")),
    result("inductor-01", "sole_op-1", "whole", speedup_e2e=0.5, libraries=[("torch", "2.11.0")]),
    result("inductor-direct-02", "fusible-1", "half", speedup_device=None, times_meaningful=False),
    *(result("distill-03", "fusible-1", v, n, speedup_e2e=n) for v in ("half", "single") for n in (1, 2, 3)),
    result("distill-03", "fusible-1", "single", 4, status="compile_error", error_code=3, **FAILED),
    result("distill-03", "fusible-1", "half", 4, reason=f"not right; {EAGER_VARIES} only from t = 0"),
    result("distill-03", "sole_op-1", "whole", 1, status="runtime_error", reason="eager failed: no kernel", **FAILED),
    result("distill-04", "sole_op-1", "whole", 1, status="timeout", **FAILED),
]
DTYPES = {"half": "float16", "single": "float32", "whole": "int64"}


def variant(name: str, shape: list[int]) -> dict:
    tensor = {"name": "in_0", "role": "input", "dtype": DTYPES[name], "shape": shape}
    return {"variant_hash": name, "inputs": [tensor], "outputs": [{"dtype": DTYPES[name], "shape": shape}]}


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """A data directory whose newest version holds `ROWS` and their variants."""
    directory = tmp_path_factory.mktemp("scored")
    tables = {
        ("fusible", "eval"): pa.Table.from_pylist([variant("half", [8]), variant("single", [64, 64])], SUBGRAPHS),
        ("sole_op", "eval"): pa.Table.from_pylist([variant("whole", [2048, 2048])], SUBGRAPHS),
        ("results", "all"): pa.Table.from_pylist(ROWS, RESULTS),
    }
    Store(directory).publish(tables, kind="evaluate", parent=None, parameters={}, summary={})
    return directory


def write(path: Path, rows: list[dict]) -> str:
    pq.write_table(pa.Table.from_pylist(rows, RESULTS), path)
    return str(path)


def lines(done: dict, clock: str = "e2e") -> dict[str, dict]:
    return {line["run"]: line for line in done["runs"] if line["clock"] == clock}


def test_a_run_by_both_clocks_with_its_t_table(data):
    done = score_run(["inductor-01"], data)
    assert {(s["clock"], s["t"]) for s in done["scores"]} == {(c, t) for c in ("e2e", "device") for t in LEVELS}
    assert done["scores"][0].keys() == set(SCORES.names)
    e2e, device = lines(done)["inductor-01"], lines(done, "device")["inductor-01"]
    assert e2e["aggregate"] == pytest.approx((2 * 2 * 0.5) ** (1 / 3)) and device["aggregate"] == pytest.approx(4.0)
    low, high = e2e["interval"]
    assert low < e2e["aggregate"] < high
    assert (e2e["samples"], e2e["n"], e2e["lam"]) == (2, 3, 1.0)
    assert e2e["slower"] == pytest.approx(1 / 3) and device["slower"] == 0
    assert e2e["fast_p"] == {"0.8": 2 / 3, "1.0": 2 / 3, "1.2": 2 / 3, "1.5": 2 / 3, "2.0": 0.0}
    assert {s["clock"] for s in score_run(["inductor-01"], data, clock="device")["scores"]} == {"device"}


@pytest.mark.parametrize(
    ("asked", "es_t"),
    [({"t": -10}, 0.1), ({"t": -6}, 2 ** (1 / 3)), ({"p": 1.0}, 1.0), ({"t": -10, "b": 0.5}, 0.5)],
)
def test_level_penalty_and_b_are_those_asked_for(tmp_path, asked, es_t):
    path = write(tmp_path / "a.parquet", [row | {"t_min": -6} for row in ROWS[:3]])
    assert lines(score_run([path], tmp_path, **asked))["inductor-01"]["es_t"] == pytest.approx(es_t)


@pytest.mark.parametrize(
    ("name", "runs"),
    [
        ("latest", ["distill-03", "distill-04", "inductor-01", "inductor-direct-02"]),
        ("distill", ["distill-03", "distill-04"]),
        ("inductor", ["inductor-01"]),  # the author, not what starts so
        ("inductor-d", ["inductor-direct-02"]),
    ],
)
def test_runs_by_id_author_or_prefix(data, name, runs):
    assert sorted(lines(score_run([name], data))) == runs


def test_several_attempts_all_or_the_best(data):
    every = score_run(["distill-03"], data)
    line = lines(every)["distill-03"]
    assert (line["attempts"], line["n"]) == (4, 8)
    assert line["pass_at_k"] == {"1": 0.75, "2": 1.0, "3": 1.0, "4": 1.0}
    assert "pass@k at t = -5: k=1 75.0%, k=2 100.0%" in score_text(every)
    best = lines(score_run(["distill-03"], data, best=True))["distill-03"]
    assert (best["n"], best["aggregate"]) == (2, pytest.approx(3.0))
    assert best["pass_at_k"] == line["pass_at_k"]


@pytest.mark.parametrize(
    ("by", "groups"),
    [
        ("sample", {"fusible-1": 2.0, "sole_op-1": 0.5}),
        ("category", {"fusible": 2.0, "sole_op": 0.5}),
        ("dtype", {"float16": 2.0, "float32": 2.0, "int64": 0.5}),
        ("size", {"below 1K": 2.0, "1K to 16K": 2.0, "4M and more": 0.5}),
        ("group", {"fusible float16": 2.0, "fusible float32": 2.0, "sole_op int64": 0.5}),
    ],
)
def test_groups(data, by, groups):
    done = score_run(["inductor-01"], data, by=by)
    found = {line["group"]: line["aggregate"] for line in lines(done)["inductor-01"]["groups"]}
    assert list(found) == list(groups) and found == pytest.approx(groups)
    assert all(group in score_text(done) for group in groups)


def test_authors_over_their_runs(data):
    done = score_run(["latest"], data, by="author")
    found = {line["group"]: line["n"] for line in done["authors"] if line["clock"] == "e2e"}
    assert found == {"distill": 9, "inductor": 3, "inductor-direct": 1}
    assert "By author" in score_text(done)


def test_what_is_left_out_is_said(data):
    done = score_run(["latest"], data)
    text = " ".join(score_text(done).split())
    assert "1 of 14 rows are left out: eager itself failed" in text
    assert "inductor-direct-02 has no device scores: 1 of 1 correct variants have no device time" in text
    assert "no GPU ran for some or all rows" in text
    assert "in 1 of 14 rows eager, called twice, is not right" in text


def test_files_and_directories_of_results(data, tmp_path):
    whole, part = write(tmp_path / "a.parquet", ROWS[:3]), write(tmp_path / "b.parquet", ROWS[4:])
    nowhere = tmp_path / "nowhere"
    for names in ([whole, part], [str(tmp_path)], [whole, str(tmp_path)]):
        assert set(lines(score_run(names, nowhere))) == {"inductor-01", "distill-03", "distill-04"}
    version = Store(data).latest()
    done = score_run([str(version.path)], nowhere, by="dtype")
    assert len(lines(done)["inductor-01"]["groups"]) == 3
    assert {score["torch"] for score in done["scores"] if score["run"] == "inductor-01"} == {"2.11.0"}


def test_kernels_only_leaves_out_what_called_the_library(data, tmp_path):
    called = {"library_ops": ["aten.mm"], "kernels_only": False}
    rows = [
        result("a-01", "fusible-1", "half", **called),
        result("a-01", "fusible-1", "single", library_ops=[], kernels_only=True),
        result("a-01", "fusible-2", "whole", **FAILED),
    ]
    path = write(tmp_path / "a.parquet", rows)
    every, only = (score_run([path], tmp_path, kernels_only=k) for k in (False, True))
    assert [lines(done)["a-01"]["n"] for done in (every, only)] == [3, 2]
    assert (
        not every["notes"]
        and "1 of 3 rows are left out, as asked for: the pass called operators of" in only["notes"][0]
    )


def test_without_capture_leaves_out_what_used_a_cuda_graph(tmp_path):
    rows = [result("a-01", "fusible-1", kind, capture_used=used) for kind, used in (("half", True), ("single", False))]
    path = write(tmp_path / "a.parquet", [*rows, result("a-01", "fusible-2", "whole", **FAILED)])
    counts = [lines(score_run([path], tmp_path, without_capture=only))["a-01"]["n"] for only in (False, True)]
    assert counts == [3, 2]


def test_by_the_device_clock_what_eager_cannot_have_is_left_out_and_a_pass_that_cannot_has_failed(tmp_path):
    untimed = {"speedup_device": None, "device_note": f"{NO_GRAPH_OF_EAGER}: a synchronisation"}
    rows = [
        result("a-01", "fusible-1", "half"),
        result("a-01", "fusible-1", "single", **untimed),
        result("a-01", "fusible-2", "whole", **untimed | {"device_note": f"{NO_GRAPH_OF_CANDIDATE}: the same"}),
    ]
    done = score_run([write(tmp_path / "a.parquet", rows)], tmp_path)
    line = lines(done, "device")["a-01"]
    assert (lines(done)["a-01"]["n"], line["n"], line["lam"]) == (3, 2, 0.5)
    assert done["notes"] == [
        "1 of 3 rows are left out by the device's clock: eager cannot be captured in a CUDA graph on those variants"
    ]


def test_a_file_of_before_has_no_library_ops(tmp_path):
    table = pa.Table.from_pylist(ROWS[:3], RESULTS).drop_columns(["library_ops", "kernels_only", "capture_used"])
    pq.write_table(table, tmp_path / "old.parquet")
    every, only = (score_run([str(tmp_path / "old.parquet")], tmp_path, kernels_only=k) for k in (False, True))
    assert lines(every) == lines(only) and "0 of 3 rows are left out" in only["notes"][0]


def test_a_file_alone_has_no_dtypes(data, tmp_path):
    path = write(tmp_path / "a.parquet", ROWS[:3])
    done = score_run([path], tmp_path, by="group")
    assert done["by"] == "category" and "no dtypes" in done["notes"][0]
    assert [g["group"] for g in lines(done)["inductor-01"]["groups"]] == ["fusible", "sole_op"]
    assert score_run([path], data, by="group")["by"] == "group"  # the version holds these variants
    path = write(tmp_path / "b.parquet", [*ROWS[:3], result("inductor-01", "fusible-2", "other")])
    done = score_run([path], data, by="dtype")
    assert [g["group"] for g in lines(done)["inductor-01"]["groups"]] == ["float16", "float32", "int64", "unknown"]
    assert "1 of 4 variants" in done["notes"][0]


def test_the_measured_record_scores_as_its_page_says():
    done = score_run([str(RECORD)], Path("nowhere"))
    found = {run: (round(line["aggregate"], 3), round(line["es_t"], 3)) for run, line in lines(done).items()}
    assert found == {"eager": (0.994, 0.994), "inductor": (0.475, 0.240), "distill": (0.624, 0.344)}


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["nosuch"], "it has distill-03, distill-04, inductor-01, inductor-direct-02"),
        (["nosuch.parquet"], "does not exist"),
        (["FOLDER/empty"], "no Parquet file"),
        (["FOLDER/text.parquet"], "cannot read results"),
        (["FOLDER/other.parquet"], "no column 'run'"),
        (["FOLDER/later.parquet"], "of this PassNet: its column 'timings' holds int64"),
        (["FOLDER/none.parquet"], "none.parquet has no rows"),
        (["FOLDER/status.parquet"], "status 'great'"),
        (["FOLDER/speed.parquet"], "speedup_e2e 0.0"),
        (["FOLDER/unnamed.parquet"], "has sample None"),
        (
            ["FOLDER/a.parquet", "FOLDER/twice.parquet"],
            "run 'inductor-01' has variant half of fusible-1, attempt 1 twice",
        ),
        (["latest", "FOLDER/a.parquet"], "not both"),
        (["FOLDER/broken.parquet"], "eager failed on all"),
    ],
)
def test_what_cannot_be_scored_is_one_clear_line(data, tmp_path, names, said):
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.parquet").write_text("no parquet")
    pq.write_table(pa.table({"x": [1]}), tmp_path / "other.parquet")
    for name in ("a", "twice"):
        write(tmp_path / f"{name}.parquet", ROWS[:3])
    table = pa.Table.from_pylist(ROWS[:1], RESULTS).drop_columns(["timings"]).append_column("timings", pa.array([1]))
    pq.write_table(table, tmp_path / "later.parquet")
    write(tmp_path / "none.parquet", [])
    write(tmp_path / "status.parquet", [ROWS[0] | {"status": "great"}])
    write(tmp_path / "speed.parquet", [ROWS[0] | {"speedup_e2e": 0.0}])
    write(tmp_path / "unnamed.parquet", [ROWS[0] | {"sample": None}])
    write(tmp_path / "broken.parquet", [row for row in ROWS if row["reason"] and row["status"] != "ok"])
    with pytest.raises(PassNetError) as caught:
        score_run([name.replace("FOLDER", str(tmp_path)) for name in names], data)
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_on_the_command_line(data):
    arguments = ["--data", data, "--clock", "e2e", "--t", "0", "--p", "0.5", "--b", "0.2", "--best", "--by", "group"]
    done = passnet_json("score", "distill", *arguments)
    assert (done["t"], done["p"], done["b"], done["best"], done["by"]) == (0, 0.5, 0.2, True, "group")
    text = passnet_here("score", "latest", *arguments).stdout
    assert "ES_0" in text and "pi3" in text and "fast_p" in text
    assert "distill-03" in error_line(passnet_here("score", "nosuch", "--data", data))


@pytest.mark.parametrize("wrong", [["--t", "5"], ["--clock", "wall"], ["--by", "colour"], ["--p", "-1"], ["--b", "0"]])
def test_wrong_options_are_usage_errors(wrong):
    assert passnet_here("score", "latest", *wrong).returncode == 2

"""`passnet versions`, `diff`, `rollback` and `gc`, as the command line answers."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

from flows.cli.main import main
from flows.cli.versions.diff import diff_versions
from flows.cli.versions.texts import diff_text
from storage.schema import SUBGRAPHS
from storage.versions.store import Store
from tests.support.scored import scored
from tests.support.stores import NOTHING, build, damage, names, shard, subgraphs


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(a) for a in arguments])


def answer(*arguments: object) -> dict:
    done = run(*arguments, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_rows_added_removed_and_changed(tmp_path: Path) -> None:
    store = Store(tmp_path)
    old = build(store, "gone", "same", "other")
    rows = subgraphs("same", "other", "new", "newer").to_pylist()
    rows[1] |= {"kernels": 7, "code": "x"}
    tables = {("fusible", "train"): pa.Table.from_pylist(rows, SUBGRAPHS), ("fusible", "eval"): subgraphs()}
    new, _ = store.publish(tables, kind="build", parent=old, **NOTHING)
    found = diff_versions(old, new)["configs"]
    assert found["fusible"] == {
        "added": 2, "removed": 1, "changed": 1, "columns": {"code": 1, "kernels": 1}, "rows": 4,
    }  # fmt: skip
    back = diff_versions(new, old)["configs"]["fusible"]
    assert (back["added"], back["removed"], back["changed"]) == (1, 2, 1)
    nothing = {"added": 0, "removed": 0, "changed": 0, "columns": {}}
    assert diff_versions(new, new)["configs"]["fusible"] == {**nothing, "rows": 4}
    assert found["models"] == {**nothing, "rows": 0}
    text = run("diff", "v1", "v2", "--data", tmp_path).stdout
    assert "v1 → v2" in text and "kernels:1" in text


def test_rows_that_only_moved_to_another_shard_did_not_change(tmp_path: Path) -> None:
    store = Store(tmp_path)
    old, new = build(store, "a", "b", "c"), build(store, "c", "a", "b", "d")
    assert diff_versions(old, new)["configs"]["fusible"] == {
        "added": 1, "removed": 0, "changed": 0, "columns": {}, "rows": 4,
    }  # fmt: skip


def test_shards_of_both_versions_are_not_read(tmp_path: Path) -> None:
    store = Store(tmp_path)
    old = build(store, "a")
    new, _ = store.publish(
        {("typical", "train"): subgraphs("z")}, kind="build", parent=old, keep=["fusible"], **NOTHING
    )
    damage(shard(old), "changed")
    assert diff_versions(old, new)["configs"]["typical"]["added"] == 1


def test_scores_stand_side_by_side(tmp_path: Path) -> None:
    store = scored(tmp_path)
    found = diff_versions(store.open("v1"), store.open("v2"))
    line = found["scores"]["distill-0123456789 (e2e)"]
    assert line["old"] is None and line["new"] > 1 and "distill-0123456789 (device)" in found["scores"]
    assert found["configs"]["results"]["added"] == 36 and found["configs"]["fusible"]["changed"] == 0


def test_a_score_without_a_gpu_says_that_it_says_nothing() -> None:
    lines = {f"{run} (e2e)": {"old": None, "new": 0.5, "times_meaningful": run == "gpu"} for run in ("gpu", "cpu")}
    text = diff_text({"old": "v1", "new": "v2", "configs": {}, "scores": lines})
    assert "cpu (e2e, no GPU: says nothing)" in text and "gpu (e2e) " in text


def test_versions_are_listed_and_verified(tmp_path: Path) -> None:
    store = Store(tmp_path)
    first = build(store, "a", "b")
    build(store, "c", parent=first)
    listed = answer("versions", "--verify", "--data", tmp_path)["versions"]
    assert [(v["version"], v["parent"], v["rows"], v["problem"]) for v in listed] == [
        ("v1", None, {"fusible": 2}, ""),
        ("v2", "v1", {"fusible": 1}, ""),
    ]
    assert "all files are as their SHA-256 says" in run("versions", "--verify", "--data", tmp_path).stdout
    damage(shard(first), "truncated")
    assert answer("versions", "--data", tmp_path)["versions"] == listed
    done = run("versions", "--verify", "--data", tmp_path)
    assert done.exit_code == 1 and f"v1: {shard(first)} is corrupt" in done.stdout
    (first.path / "manifest.json").write_text("{")
    done = run("versions", "--data", tmp_path, "--json")
    problems = {v["version"]: v["problem"] for v in json.loads(done.stdout)["versions"]}
    assert done.exit_code == 1 and "manifest" in problems["v1"] and problems["v2"] == ""


def test_rollback_and_gc(tmp_path: Path) -> None:
    store = Store(tmp_path)
    build(store, "a"), build(store, "b")
    done = answer("rollback", "v1", "--data", tmp_path)
    assert (done["version"], done["created"]) == ("v3", True) and names(store.open()) == ["a"]
    assert "already" in run("rollback", "v1", "--data", tmp_path).stdout
    would = answer("gc", "--keep", 1, "--dry-run", "--data", tmp_path)
    assert would["versions"] == ["v1", "v2"] and would["bytes"] > 0 and store.names() == ["v1", "v2", "v3"]
    assert "removed 2 versions (v1, v2) and 0 unlisted files" in run("gc", "--keep", 1, "--data", tmp_path).stdout
    assert store.names() == ["v3"]


def test_upload_and_download(tmp_path: Path) -> None:
    build(Store(tmp_path / "a"), "a")
    url = f"file://{tmp_path}/backup"
    assert answer("upload", url, "--data", tmp_path / "a") == {"version": "v1", "url": url, "copied": 4, "there": 0}
    assert "4 files copied, 0 were there" in run("download", url, "--data", tmp_path / "b").stdout
    assert names(Store(tmp_path / "b").open()) == ["a"]


@pytest.mark.parametrize("arguments", [["gc", "--keep", "0"], ["rollback"], ["diff", "v1"]])
def test_wrong_usage(arguments: list[str]) -> None:
    assert run(*arguments).exit_code == 2


def test_what_is_not_there_is_one_line(tmp_path: Path) -> None:
    build(Store(tmp_path), "a")
    for arguments in (["rollback", "v9"], ["diff", "v1", "v9"]):
        done = run(*arguments, "--data", tmp_path)
        assert done.exit_code == 1 and "no version 'v9'" in done.stderr

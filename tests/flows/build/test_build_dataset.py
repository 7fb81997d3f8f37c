"""Builds: what a version holds, doing nothing twice, going on after a kill, and failing without loss."""

import hashlib
import os
import re
import shutil
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pyarrow as pa
import pytest
from datasets import load_dataset

from extraction.sources.catalog import read_catalog
from extraction.sources.spec import specified
from extraction.tracing.trace_store import TraceStore
from flows.build_dataset import build_dataset, built_as, shard_sizes
from flows.progress import Progress, listening
from storage.errors import PassNetError
from storage.graph.as_fx import from_fx, to_fx
from storage.graph.as_json import from_json, to_json
from storage.parquet import parquet_summary
from storage.schema import CATEGORIES, RESULTS
from storage.versions.store import Store, Version
from tests.flows.commands import error_line, passnet_build, passnet_here
from tests.support.processes import alive
from tests.support.stores import NOTHING, subgraphs
from tests.support.warm_forks import WarmForks


def files(directory: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in directory.rglob("*") if path.is_file()}


def test_a_version_holds_all_categories_and_loads_as_a_dataset(built):
    version = Store(built).latest()
    version.verify()
    for category in CATEGORIES:
        rows = load_dataset(str(version.path), category, split="train")
        assert len(rows) > 0
        assert {r["category"] for r in rows} == {category}
    assert version.table("models")["status"].to_pylist() == ["traced", "traced"]


def test_variants_are_unique_and_no_family_is_in_both_splits(built):
    version = Store(built).latest()
    families = {"train": set(), "eval": set()}
    for category in CATEGORIES:
        hashes = version.table(category)["variant_hash"].to_pylist()
        assert len(hashes) == len(set(hashes))
        for split in families:
            families[split] |= set(version.table(category, split)["family_hash"].to_pylist())
    assert families["eval"]
    assert not families["train"] & families["eval"]
    samples = version.table("samples").to_pylist()
    assert {s["family_hash"] for s in samples if s["split"] == "eval"} == families["eval"]


def test_uniqueness_is_counted_by_every_notion_and_told_on_the_card(built):
    version = Store(built).latest()
    unique = version.manifest.summary["unique"]
    columns = {"text": "code", "graph": "graph_hash", "family": "family_hash", "with_shapes": "variant_hash"}
    everything = {notion: set() for notion in columns}
    for category in CATEGORIES:
        table = version.table(category, columns=list(columns.values()))
        values = {notion: set(table[column].to_pylist()) for notion, column in columns.items()}
        assert unique[category] == {notion: len(found) for notion, found in values.items()}
        for notion, found in values.items():
            everything[notion] |= found
    assert unique["all"] == {notion: len(found) for notion, found in everything.items()}
    assert unique["all"]["family"] < unique["all"]["graph"] < unique["all"]["with_shapes"]
    line = f"| `fusible` | {' | '.join(str(count) for count in unique['fusible'].values())} |"
    assert line in (version.path / "README.md").read_text()


def test_every_stored_graph_makes_the_round_trip_and_its_source_compiles(built):
    version = Store(built).latest()
    for category in CATEGORIES:
        for row in version.table(category, columns=["graph", "code"]).to_pylist():
            graph = from_json(row["graph"])
            assert to_json(graph) == row["graph"]
            assert to_json(from_fx(to_fx(graph, "cpu"))) == row["graph"]
            compile(row["code"], "<code>", "exec")


def test_a_second_build_traces_nothing_and_publishes_nothing(data_dir, built):
    catalog = built.parent / "catalog.txt"
    before = files(data_dir)
    done = passnet_here("build", "--catalog", catalog, "--workers", 2, "--data", data_dir)
    assert done.returncode == 0, done.stderr
    assert "0 to trace" in done.stderr
    assert "Nothing new" in done.stdout
    assert files(data_dir).keys() - {str(data_dir / "versions" / ".lock")} == before.keys() - {
        str(data_dir / "versions" / ".lock")
    }
    assert [v.name for v in Store(data_dir).versions()] == ["v1"]


def test_one_new_model_traces_and_cuts_one_model_and_keeps_the_eval_families(data_dir, built, tmp_path):
    """`data_dir` is a copy of `built`: shards are found again in a data directory that was moved."""
    catalog = tmp_path / "more.txt"
    catalog.write_text((built.parent / "catalog.txt").read_text() + "timm:test_resnet\n")
    done = passnet_here("build", "--catalog", catalog, "--workers", 2, "--data", data_dir)
    assert done.returncode == 0, done.stderr
    assert "1 to trace" in done.stderr
    old, new = (Store(data_dir).open(name) for name in ("v1", "v2"))
    before, after = (set(v.table("samples", "eval")["family_hash"].to_pylist()) for v in (old, new))
    assert before <= after
    assert new.manifest.parent == "v1"
    for stage in ("cut", "typical"):
        here, there = ({path.name for path in data.glob(f"shards/*/{stage}/*")} for data in (data_dir, built))
        assert there < here and len(here) == len(there) + 1, "one model is cut"
    earlier, now = varied_files(built), varied_files(data_dir)
    new_files = now.keys() - earlier.keys()
    assert new_files and not subgraphs_of(now, new_files) & subgraphs_of(earlier, earlier), "each is varied once"
    places = places_of(old, "typical")
    assert places and {place for place in places_of(new, "typical") if place[0] != "timm:test_resnet"} == places

    fresh = tmp_path / "fresh"
    shutil.copytree(data_dir / "traces", fresh / "traces")
    whole = build_dataset.fn(catalog=str(catalog), workers=2, data=str(fresh))
    for category in ("sole_op", "fusible"):
        assert rows_of(new, category) == rows_of(Store(fresh).latest(), category)
    again = build_dataset.fn(catalog=str(catalog), workers=2, data=str(data_dir), full=True)
    for category in CATEGORIES:
        assert rows_of(Store(data_dir).latest(), category) == rows_of(Store(fresh).latest(), category)
    for count in ("subgraphs", "duplicates", "dropped", "unique"):
        assert again[count] == whole[count]
    now, there = varied_files(data_dir), varied_files(fresh)
    assert subgraphs_of(now, now) >= subgraphs_of(there, there)


def test_results_that_are_published_meanwhile_go_with_the_new_version(data_dir, built):
    """An evaluation ends while a build works: its results are of the same variants."""
    store = Store(data_dir)
    of_first = next(
        row
        for row in store.latest().table("sole_op", columns=["variant_hash", "sources"]).to_pylist()
        if any(source["model"] == "timm:resnet10t" for source in row["sources"])
    )
    row = {"run": "eager-0123", "sample": "sole_op-0123", "variant_hash": of_first["variant_hash"]}

    def evaluation(event: Progress) -> None:
        if (event.stage, event.done) == ("publish", 0):
            results = pa.Table.from_pylist([row], RESULTS)
            kept = {"keep": ["models", "samples", *CATEGORIES], "parent": store.latest()}
            store.publish({("results", "all"): results}, kind="evaluate", **kept, **NOTHING)

    with listening(evaluation):
        done = build_dataset.fn(catalog=str(built.parent / "catalog.txt"), limit=1, workers=2, data=str(data_dir))
    assert (done["version"], store.latest().manifest.parent) == ("v3", "v2")
    assert [row["run"] for row in store.latest().table("results").to_pylist()] == ["eager-0123"]


def varied_files(data: Path) -> dict[str, set[str]]:
    """File → the subgraphs whose variants it has."""
    return {p.name: set(parquet_summary(p)["subgraphs"]) for p in data.glob("shards/*/varied/*/*.parquet")}


def subgraphs_of(files: dict[str, set[str]], names: Iterable[str]) -> set[str]:
    return {subgraph for name in names for subgraph in files[name]}


def places_of(version: Version, category: str) -> set[tuple[str, int, int]]:
    """Where the graphs of a category were found: model, first and last op."""
    rows = version.table(category, columns=["sources"]).to_pylist()
    return {(source["model"], source["start"], source["end"]) for row in rows for source in row["sources"]}


def rows_of(version: Version, category: str) -> dict[str, dict]:
    return {row["variant_hash"]: row for row in version.table(category).to_pylist()}


@pytest.fixture
def killed_at(warm_forks: WarmForks) -> Callable[[str, Path, Path], str]:
    """A function that starts a build, and kills it as soon as a new file of a pattern is in its data directory; it
    returns what the build said."""

    def killed(pattern: str, catalog: Path, data: Path) -> str:
        before, said = set(data.glob(pattern)), data.parent / "said.txt"
        build = passnet_build(warm_forks, said, "--catalog", catalog, "--data", os.path.relpath(data))
        deadline = time.monotonic() + 200
        while not set(data.glob(pattern)) - before:
            assert alive(build.pid) and time.monotonic() < deadline, said.read_text()
            time.sleep(0.05)
        os.killpg(build.pid, signal.SIGKILL)
        assert build.wait(60) == -signal.SIGKILL
        assert Store(data).latest() is None, "nothing is published by half a build"
        return said.read_text()

    return killed


def test_models_that_a_killed_build_traced_are_not_traced_again(tmp_path, killed_at):
    catalog, data = tmp_path / "catalog.txt", tmp_path / "data"
    catalog.write_text("timm:test_resnet\ntimm:test_vit\ntimm:test_byobnet\n")
    assert "3 to trace" in killed_at("traces/*/*.parquet", catalog, data)
    assert len(TraceStore(data / "traces").missing(specified(read_catalog(str(catalog))))) == 1


def test_a_build_that_is_killed_at_every_stage_goes_on_and_gives_the_same_bytes(built, tmp_path, killed_at):
    catalog, data = built.parent / "catalog.txt", tmp_path / "data"
    shutil.copytree(built / "traces", data / "traces")
    killed_at("shards/*/cut/*.parquet", catalog, data)
    killed_at("shards/*/varied/*/*.parquet", catalog, data)
    kept = len(list(data.glob("shards/*/varied/*/*.parquet")))
    said = killed_at("work/*/unique/*.parquet", catalog, data)
    assert not re.search(r"\b(cut|typical) \d+/", said)
    done, total = map(int, re.search(r"\bvary (\d+)/(\d+)", said).groups())
    assert total > done == kept
    done = passnet_here("build", "--catalog", catalog, "--data", os.path.relpath(data))
    assert done.returncode == 0, done.stderr
    undisturbed, disturbed = (Store(each).latest().path / "data" for each in (built, data))
    assert contents(disturbed) == contents(undisturbed)
    assert not [path for path in (data / "work").iterdir() if path.is_dir()]


def contents(directory: Path) -> dict[str, str]:
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in directory.rglob("*.parquet")
    }


def test_a_version_that_was_brought_back_holds_what_its_build_made(tmp_path):
    store, version = Store(tmp_path), None
    for name in ("first", "second"):
        about = NOTHING | {"parameters": {"identity": name}}
        rows = {("fusible", "train"): subgraphs(name)}
        version, _ = store.publish(rows, kind="build", parent=version, **about)
    again, _ = store.rollback("v1")
    assert built_as(store, again, "first") == store.open("v1") and built_as(store, again, "second") is None


def test_shards_cover_the_catalogue():
    for models in (0, 1, 2, 7, 20, 1000, 100_000):
        sizes = shard_sizes(models)
        assert sum(sizes) == models
        assert all(0 < size <= 100 for size in sizes)


@pytest.mark.parametrize(
    ("catalog", "said"),
    [
        ("timm:resnet10t\nnonsense here\n", "catalog.txt"),
        ("timm:no_such_model\n", "not_found"),
        ("", "no entries"),
    ],
)
def test_a_bad_catalogue_is_one_clear_line_and_publishes_nothing(tmp_path, catalog, said):
    path = tmp_path / "catalog.txt"
    path.write_text(catalog)
    line = error_line(passnet_here("build", "--catalog", path, "--data", tmp_path / "data"))
    assert said in line
    assert Store(tmp_path / "data").latest() is None


def test_an_unknown_model_costs_itself_alone(data_dir, tmp_path):
    catalog = tmp_path / "some.txt"
    catalog.write_text("points: 3\ntimm:resnet10t\ntimm:resnet10x\n")
    built = build_dataset.fn(catalog=str(catalog), workers=2, data=str(data_dir))
    assert built["traced"] == 1
    (failed,) = (r for r in Store(data_dir).latest().table("models").to_pylist() if r["status"] == "failed")
    assert failed["error_category"] == "not_found"
    assert "resnet10t" in failed["message"], "close names are suggested"
    (cause,) = built["causes"]
    assert (cause["category"], cause["models"], cause["examples"]) == ("not_found", 1, ["timm:resnet10x"])
    assert cause["mend"] in (Store(data_dir).latest().path / "README.md").read_text()


def test_a_data_directory_that_cannot_be_written_is_one_clear_line(tmp_path):
    (tmp_path / "file").write_text("")
    line = error_line(passnet_here("build", "--data", tmp_path / "file" / "data", "--limit", 1))
    assert "--data" in line


def test_a_corrupt_shard_of_traces_is_named(data_dir, built):
    (shard, *_) = data_dir.glob("traces/*/*.parquet")
    shard.write_bytes(shard.read_bytes()[:100])
    with pytest.raises(PassNetError, match=shard.name):
        build_dataset.fn(catalog=str(built.parent / "catalog.txt"), workers=2, data=str(data_dir))

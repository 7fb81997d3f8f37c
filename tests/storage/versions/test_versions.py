"""Local versions: what is published, what is shared, what reads it."""

import errno
import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.errors import PassNetError
from storage.schema import CONFIGS, MODELS, SUBGRAPHS
from storage.versions.provenance import git_state, library_versions
from storage.versions.shards import ShardLimits, _as_map, write_split
from storage.versions.staging import locked, make_read_only
from storage.versions.store import Store
from tests.support.stores import NOTHING, build, names, on_disk, python, shard, subgraphs


def values(type_: pa.DataType) -> st.SearchStrategy[Any]:
    """Any value of an Arrow type, null included."""
    if pa.types.is_struct(type_):
        some = st.fixed_dictionaries({field.name: values(field.type) for field in type_})
    elif pa.types.is_list(type_):
        some = st.lists(values(type_.value_type), max_size=3)
    elif pa.types.is_map(type_):
        some = st.lists(st.tuples(st.text(max_size=5), values(type_.item_type)), max_size=3)
    elif pa.types.is_string(type_):
        some = st.text(max_size=20)
    elif pa.types.is_boolean(type_):
        some = st.booleans()
    elif pa.types.is_floating(type_):
        some = st.floats(allow_nan=False)
    else:
        some = st.integers(-(2 ** (type_.bit_width - 1)), 2 ** (type_.bit_width - 1) - 1)
    return st.none() | some


def rows_of(config: str) -> st.SearchStrategy[list[dict[str, Any]]]:
    columns = {field.name: values(field.type) for field in CONFIGS[config]}
    return st.lists(st.fixed_dictionaries(columns), max_size=6)


def test_a_version_has_the_hubs_layout_and_says_where_it_came_from(tmp_path: Path) -> None:
    store = Store(tmp_path / "new" / "data")
    assert store.versions() == [] and store.latest() is None
    version, created = store.publish(
        {("fusible", "train"): subgraphs("a", "b"), ("models", "all"): MODELS.empty_table()},
        kind="build",
        parent=None,
        parameters={"catalog": Path("list.txt"), "limit": 3},
        summary={"failed": 0, "mean": float("nan")},
        flow_run="run-1",
    )
    assert created and version.path == store.root / "versions" / "v1"
    files = sorted(str(path.relative_to(version.path)) for path in version.path.rglob("*") if path.is_file())
    assert files == [
        "README.md",
        "data/fusible/train-00000-of-00001.parquet",
        "data/models/all-00000-of-00001.parquet",
        "manifest.json",
    ]
    manifest = Store(store.root).open("v1").manifest
    assert (manifest.name, manifest.parent, manifest.kind, manifest.flow_run) == ("v1", None, "build", "run-1")
    assert manifest.parameters == {"catalog": "list.txt", "limit": 3}
    assert manifest.summary == {"failed": 0, "mean": None}
    assert manifest.libraries["pyarrow"] == pa.__version__
    assert (manifest.rows("fusible"), manifest.rows("fusible", "train"), manifest.rows("scores")) == (2, 2, 0)
    assert version.configs() == ["models", "fusible"]
    assert version.splits("fusible") == ["train"] and version.splits("scores") == []
    assert shard(version).stat().st_mode & 0o222 == 0
    version.verify()


def test_reading_selects_columns_splits_and_rows(tmp_path: Path) -> None:
    version = build(Store(tmp_path), "a", "b", "c")
    assert version.table("fusible").schema == SUBGRAPHS
    assert version.table("fusible", columns=["kernels", "variant_hash"]).to_pylist()[1] == {
        "kernels": 1,
        "variant_hash": "b",
    }
    found = list(version.batches("fusible", columns=["kernels"], filter=pc.field("variant_hash") > "a"))
    assert pa.Table.from_batches(found).to_pylist() == [{"kernels": 1}, {"kernels": 1}]
    for absent in (version.table("fusible", "eval"), version.table("fusible", "other"), version.table("typical")):
        assert absent.schema == SUBGRAPHS and len(absent) == 0
    with pytest.raises(PassNetError, match=r"no column 'colour'.*variant_hash"):
        version.table("fusible", columns=["colour"])
    with pytest.raises(pa.ArrowInvalid, match="colour"):
        version.batches("fusible", filter=pc.field("colour") == 1)
    with pytest.raises(PassNetError, match=r"no config 'fussible'.*fusible"):
        version.table("fussible")


@settings(max_examples=10)
@given(rows_of("fusible"), rows_of("results"))
def test_rows_come_back_as_they_went_in(
    tmp_path_factory: pytest.TempPathFactory, subgraph_rows: list[Any], result_rows: list[Any]
) -> None:
    store = Store(tmp_path_factory.mktemp("data"))
    tables = {
        ("fusible", "train"): pa.Table.from_pylist(subgraph_rows, SUBGRAPHS),
        ("results", "all"): pa.Table.from_pylist(result_rows, CONFIGS["results"]),
    }
    version, _ = store.publish(tables, kind="build", parent=None, **NOTHING)
    for (config, split), table in tables.items():
        back = version.table(config, split)
        back.validate(full=True)
        assert back.schema == table.schema and back.to_pylist() == table.to_pylist()


@settings(max_examples=20)
@given(st.lists(st.text(max_size=30), min_size=1, max_size=300), st.integers(1, 40), st.integers(1, 100))
def test_bytes_depend_on_the_rows_and_not_on_their_batches(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], batch: int, limit: int
) -> None:
    table = subgraphs(*texts)
    here = tmp_path_factory.mktemp("shards")
    whole = write_split(table, "fusible", "train", here / "a", ShardLimits(rows=limit))
    pieces = write_split(iter(table.to_batches(batch)), "fusible", "train", here / "b", ShardLimits(rows=limit))
    assert whole == pieces
    assert sum(shard.rows for shard in whole) == len(texts)


def test_large_splits_are_streamed_into_bounded_shards(tmp_path: Path) -> None:
    before, seen = pa.total_allocated_bytes(), []

    def rows() -> Iterator[pa.RecordBatch]:
        for index in range(60):
            codes = [os.urandom(1 << 15).hex() for _ in range(32)]  # 2 MiB
            yield pa.RecordBatch.from_pylist([{"variant_hash": f"{index}", "code": code} for code in codes], SUBGRAPHS)
            seen.append(pa.total_allocated_bytes() - before)

    store = Store(tmp_path, ShardLimits(bytes=20 << 20))
    version, _ = store.publish({("fusible", "train"): rows()}, kind="build", parent=None, **NOTHING)
    shards = version.manifest.shards
    numbered = [f"train-{i:05d}-of-{len(shards):05d}.parquet" for i in range(len(shards))]
    assert [Path(shard.path).name for shard in shards] == numbered
    assert len(shards) > 1 and all(shard.bytes < 40 << 20 for shard in shards)
    assert len(seen) == 60 and max(seen) < 80 << 20
    before = pa.total_allocated_bytes()
    read = 0
    for batch in version.batches("fusible"):
        assert pa.total_allocated_bytes() - before < 80 << 20
        assert set(batch.column("variant_hash").to_pylist()) <= {f"{i // 32}" for i in range(read, read + len(batch))}
        read += len(batch)
    assert read == 60 * 32


def test_what_is_kept_is_linked_and_what_is_the_same_is_not_written_twice(tmp_path: Path) -> None:
    store = Store(tmp_path)
    first = build(store, "a", "b")
    scores = pa.Table.from_pylist([{"run": "r", "author": "x", "clock": "e2e", "t": -5}], CONFIGS["scores"])
    second, created = store.publish(
        {("scores", "all"): scores}, kind="evaluate", parent=first, keep=["fusible", "results"], **NOTHING
    )
    assert created and second.manifest.parent == "v1" and second.configs() == ["fusible", "scores"]
    assert os.path.samefile(shard(first), shard(second))
    rewritten = {("fusible", "train"): subgraphs("a", "b"), ("typical", "train"): subgraphs("z")}
    third, created = store.publish(rewritten, kind="build", parent=second, **NOTHING)
    assert created and os.path.samefile(shard(first), shard(third))
    shutil.rmtree(first.path)
    second.verify()
    assert names(third) == ["a", "b"]


def test_the_same_contents_are_not_published_again(tmp_path: Path) -> None:
    store = Store(tmp_path)
    first = build(store, "a")
    same = {("fusible", "train"): subgraphs("a"), ("fusible", "eval"): subgraphs()}
    for parent in (first, None):
        version, created = store.publish(same, kind="build", parent=parent, **NOTHING)
        assert (version.name, created) == ("v1", False)
    fewer, created = store.publish({("fusible", "train"): subgraphs("a")}, kind="build", parent=first, **NOTHING)
    assert created and fewer.splits("fusible") == ["train"]
    assert on_disk(store) == ["v1", "v2"]


def test_a_rollback_is_a_new_version_with_the_old_contents(tmp_path: Path) -> None:
    store = Store(tmp_path)
    first, second = build(store, "a", "b"), build(store, "c")
    now, created = store.rollback("v1")
    assert created and now.name == "v3" and names(now) == ["a", "b"] and store.latest() == now
    assert (now.manifest.kind, now.manifest.parent, now.manifest.parameters) == ("rollback", "v1", {"to": "v1"})
    assert now.manifest.digest == first.manifest.digest and os.path.samefile(shard(first), shard(now))
    assert store.rollback("v1") == store.rollback("v3") == (now, False)
    assert store.rollback("v2")[0].name == "v4" and names(store.open()) == names(second)
    with pytest.raises(PassNetError, match="no version 'v9'"):
        store.rollback("v9")
    assert on_disk(store) == ["v1", "v2", "v3", "v4"]


def test_asking_for_what_is_not_there_says_what_is(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with pytest.raises(PassNetError, match="no dataset version yet: run `passnet build"):
        store.open()
    build(store, "a")
    build(store, "b")
    with pytest.raises(PassNetError, match="no version 'v9': it has v1, v2"):
        store.open("v9")
    with pytest.raises(PassNetError, match=r"no version '../v1'"):
        store.open("../v1")
    shutil.copytree(store.open("v1").path, tmp_path / "versions" / "v10")
    with pytest.raises(PassNetError, match="is a copy of v1"):
        store.open()
    assert build(store, "c").name == "v11"


@pytest.mark.parametrize("rows", [slice(0, 4), slice(1, 4), slice(2, 3), slice(0, 0)])
def test_maps_are_made_of_lists_under_which_there_are_nulls(rows: slice) -> None:
    """As a filtered read of Parquet can leave them; some versions of Arrow end the process over them."""
    kept = [[("a", 1)], None, [], [("b", None), ("c", 3)]]
    pairs = [dict(zip(("key", "value"), pair, strict=True)) for pair in [("a", 1), ("b", None), ("c", 3)]]
    entries = pa.array([pairs[0], None, *pairs[1:]], pa.struct({"key": pa.string(), "value": pa.int64()}))
    lists = pa.ListArray.from_arrays([0, 1, 2, 2, 4], entries, mask=pa.array([False, True, False, False]))
    maps = _as_map(lists[rows], pa.map_(pa.string(), pa.int64()))
    maps.validate(full=True)
    assert maps.to_pylist() == kept[rows]


def _entries(type_: pa.MapType) -> list[tuple]:
    return [("torch", "2" if pa.types.is_string(type_.item_type) else 2)]


def test_every_config_loads_with_datasets_offline(tmp_path: Path) -> None:
    tables: dict[tuple[str, str], pa.Table] = {}
    for config, schema in CONFIGS.items():
        row = {f.name: _entries(f.type) if pa.types.is_map(f.type) else None for f in schema}
        table = pa.Table.from_pylist([row, row], schema)
        if config in ("models", "results", "scores", "trajectories", "model_results"):
            tables[config, "all"] = table
        else:
            tables |= {(config, "train"): table, (config, "eval"): table.slice(0, 1)}
    tables["typical", "eval"] = SUBGRAPHS.empty_table()
    tables["sole_op", "train"] = tables["sole_op", "eval"] = SUBGRAPHS.empty_table()
    version, _ = Store(tmp_path / "data").publish(tables, kind="build", parent=None, **NOTHING)
    tables["fusible", "train"] = pa.concat_tables([tables["fusible", "train"]] * 2)
    other, _ = Store(tmp_path / "other").publish(tables, kind="build", parent=None, **NOTHING)
    done = python(
        """
        import json, sys
        from datasets import get_dataset_config_names, load_dataset
        path, found = sys.argv[1], {}
        for config in get_dataset_config_names(path):
            whole = load_dataset(path, config)
            streams = load_dataset(path, config, streaming=True)
            found[config] = {split: [len(rows), len(list(streams[split]))] for split, rows in whole.items()}
        found["one split"] = len(load_dataset(path, "fusible", split="train"))
        found["no config"] = {split: len(rows) for split, rows in load_dataset(path).items()}
        found["no config, streaming"] = len(list(load_dataset(path, split="train", streaming=True)))
        found["other directory, same name"] = len(load_dataset(sys.argv[2], "fusible", split="train"))
        found["libraries"] = load_dataset(path, "models", split="train")[0]["libraries"]
        print(json.dumps(found))
        """,
        version.path,
        other.path,
        env={"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "home"), "HF_DATASETS_DISABLE_PROGRESS_BARS": "1"},
    )
    assert done.returncode == 0, done.stderr
    both, one = {"train": [2, 2], "eval": [1, 1]}, {"train": [2, 2]}
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "models": one,
        "fusible": both,
        "typical": one,
        "samples": both,
        "results": one,
        "scores": one,
        "trajectories": one,
        "model_results": one,
        "one split": 2,
        "no config": {"train": 2, "eval": 1},
        "no config, streaming": 2,
        "other directory, same name": 4,
        "libraries": [{"key": "torch", "value": "2"}],
    }


def test_the_card_says_what_is_in_it(tmp_path: Path) -> None:
    score = {"run": "r|1\n# x", "author": "distill", "clock": "e2e", "n": 7, "aggregate": 1.25}
    scores = [score | {"t": t, "es_t": 1 + t / 100} for t in range(-10, 5)]
    version, _ = Store(tmp_path).publish(
        {
            ("fusible", "train"): subgraphs("a", "b"),
            ("fusible", "eval"): subgraphs(),
            ("scores", "all"): pa.Table.from_pylist(scores, CONFIGS["scores"]),
        },
        kind="evaluate",
        parent=None,
        parameters={"author": "distill"},
        summary={"variants": 7},
    )
    card = (version.path / "README.md").read_text()
    head = yaml.safe_load(card.split("---\n")[1])
    assert head["license"] == "apache-2.0" and head["size_categories"] == ["n<1K"]
    description = f"PassNet v1, contents {version.manifest.digest[:16]}"
    assert head["configs"] == [
        {
            "config_name": "fusible",
            "default": True,
            "description": description,
            "data_files": [{"split": "train", "path": "data/fusible/train-*.parquet"}],
        },
        {
            "config_name": "scores",
            "description": description,
            "data_files": [{"split": "train", "path": "data/scores/all-*.parquet"}],
        },
    ]
    assert (
        "| `fusible` | train | 2 | 1 |" in card and "| `fusible` | eval | 0 (not offered to `datasets`) | 1 |" in card
    )
    assert "| r\\|1 # x | distill | e2e | 7 | 1.250 | 0.950 | 0.970 | 0.990 | 1.010 |" in card
    assert '"author": "distill"' in card and '"variants": 7' in card
    assert "| `op_sequence` | list of string | names of the ops in order" in card


def test_the_card_of_results_says_how_the_dataset_was_built_and_marks_what_no_gpu_timed(tmp_path: Path) -> None:
    store = Store(tmp_path)
    row = {"variant_hash": "a" * 64, "category": "fusible", "code": "class GraphModule:\n    pass\n"}
    tables = {
        ("fusible", "train"): pa.Table.from_pylist([row], SUBGRAPHS),
        ("samples", "train"): pa.Table.from_pylist(
            [{"sample": "fusible-0a", "category": "fusible", "split": "train", "variants": [row["variant_hash"]]}],
            CONFIGS["samples"],
        ),
    }
    built, _ = store.publish(tables, kind="build", parent=None, parameters={"catalog": "mine.txt"}, summary={})
    kept = ["fusible", "samples"]
    parent, last = built, built
    for number in (1, 2):
        runs = [
            {"run": f"r{number}", "author": author, "clock": "e2e", "t": -5, "es_t": 0.5, "n": 1, "aggregate": 0.25}
            | {"times_meaningful": author == "gpu"}
            for author in ("gpu", "interpreter")
        ]
        scores = {("scores", "all"): pa.Table.from_pylist(runs, CONFIGS["scores"])}
        last, _ = store.publish(scores, kind="evaluate", parent=parent, keep=kept, parameters={}, summary={})
        parent = last
    assert last.manifest.built["name"] == "v1" and last.manifest.built["parameters"] == {"catalog": "mine.txt"}
    card = (last.path / "README.md").read_text()
    assert "how the dataset was built, as v1" in card.lower() and '"catalog": "mine.txt"' in card
    assert "| r2 | gpu | e2e | 1 | 0.250 |" in card and "| r2 | interpreter | e2e | 1 | no GPU | no GPU |" in card
    assert "class GraphModule" in card and 'passnet.bench("fusible-0a"' in card
    assert built.manifest.built is None and "how the dataset was built" not in (built.path / "README.md").read_text()


def test_the_commit_is_that_of_the_checkout_that_has_the_file(tmp_path: Path) -> None:
    source = tmp_path / "code.py"
    source.write_text("x = 1\n")
    assert git_state(source) == (None, None)
    git = ["git", "-C", str(tmp_path), "-c", "user.name=n", "-c", "user.email=e@x"]
    subprocess.run([*git, "init", "-q"], check=True)
    assert git_state(source) == (None, None)  # in a checkout, but not of it
    subprocess.run([*git, "add", "code.py"], check=True)
    subprocess.run([*git, "commit", "-qm", "one"], check=True)
    commit = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    assert git_state(source) == (commit, False)
    source.write_text("x = 2\n")
    assert git_state(source) == (commit, True)


def test_the_commit_is_not_that_of_the_repository_whose_hook_runs_this(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, _ = git_state()
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    monkeypatch.setenv("GIT_DIR", str(tmp_path / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "index"))
    assert here is not None and git_state()[0] == here


def test_a_file_that_is_read_only_is_left_alone(tmp_path: Path) -> None:
    """Only its owner may change its mode, and another user's version may share it."""
    (tmp_path / "shard").touch(0o640)
    make_read_only(tmp_path / "shard")
    changed = (tmp_path / "shard").stat()
    assert changed.st_mode & 0o777 == 0o440
    make_read_only(tmp_path / "shard")
    assert (tmp_path / "shard").stat().st_ctime_ns == changed.st_ctime_ns


def test_a_file_system_without_locks_is_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", none)
    with pytest.raises(PassNetError, match=r"cannot be locked .*choose a --data"), locked(tmp_path):
        pass


def test_library_versions_are_those_installed() -> None:
    assert library_versions(("pyarrow", "no-such-library")) == {
        "python": ".".join(map(str, sys.version_info[:3])),
        "pyarrow": pa.__version__,
    }

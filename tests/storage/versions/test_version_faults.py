"""Local versions when something fails: bad rows, kills, rivals, damage, hostile copies, full disks."""

import contextlib
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from storage.errors import PassNetError
from storage.schema import ADDED, CONFIGS, FILE
from storage.versions.store import Store, Version
from tests.support.stores import NOTHING, ROOT, build, damage, names, on_disk, shard, subgraphs
from tests.support.warm_forks import WarmForks


def failing() -> Iterator[pa.RecordBatch]:
    yield from subgraphs("a", "b").to_batches()
    raise RuntimeError("the tracer broke")


@pytest.mark.parametrize(
    ("config", "split", "rows", "message"),
    [
        ("fusible", "train", failing, "rows of fusible/train failed with RuntimeError: the tracer broke"),
        ("fusible", "train", lambda: subgraphs("a").drop_columns("code"), r"lack \['code'\]"),
        ("fusible", "train", lambda: subgraphs().append_column("red", pa.nulls(0)), r"unknown or repeated \['red'\]"),
        ("fusible", "train", lambda: _kernels("x"), "column kernels"),
        ("results", "all", lambda: _results_without("content"), "column pass_files is list<.*not list<"),
        ("fusibel", "train", subgraphs, "no config 'fusibel'"),
        ("fusible", "../train", subgraphs, "cannot be a split's name"),
    ],
    ids=["generator", "missing", "extra", "type", "nested", "config", "split"],
)  # fmt: skip
def test_rows_at_fault_leave_nothing_behind(tmp_path: Path, config: str, split: str, rows: Any, message: str) -> None:
    store = Store(tmp_path)
    build(store, "good")
    with pytest.raises(PassNetError, match=message) as caught:
        store.publish(
            {("typical", "train"): subgraphs("x"), (config, split): rows()}, kind="build", parent=None, **NOTHING
        )
    assert "\n" not in str(caught.value)
    assert on_disk(store) == ["v1"] and names(store.open()) == ["good"]


def _kernels(value: str) -> pa.Table:
    table = subgraphs("a")
    return table.set_column(table.schema.get_field_index("kernels"), "kernels", pa.array([value]))


def _results_without(field: str) -> pa.Table:
    table = CONFIGS["results"].empty_table()
    files = pa.list_(pa.struct([f for f in FILE if f.name != field]))
    return table.set_column(table.schema.get_field_index("pass_files"), "pass_files", pa.array([], files))


def test_a_killed_publisher_leaves_the_last_good_version_and_the_next_one_cleans_up(
    tmp_path: Path, warm_forks: WarmForks
) -> None:
    store = Store(tmp_path)
    build(store, "good")
    done = warm_forks.run(
        """
        import os, signal, sys
        from tests.support.stores import Store, subgraphs
        def rows():
            yield from subgraphs("half").to_batches()
            os.kill(os.getpid(), signal.SIGKILL)
        store = Store(sys.argv[1])
        tables = {("typical", "train"): subgraphs("x"), ("fusible", "train"): rows()}
        store.publish(tables, kind="build", parent=store.latest(), parameters={}, summary={})
        """,
        [str(tmp_path)],
        directory=ROOT,
    )
    assert done.returncode == -9, done.stderr
    assert len(on_disk(store)) == 2  # v1 and what the publisher was making
    assert [version.name for version in store.versions()] == ["v1"] and names(store.open()) == ["good"]
    assert build(store, "next").name == "v2"
    assert on_disk(store) == ["v1", "v2"]


def test_a_publisher_does_not_clean_up_after_a_living_one(tmp_path: Path) -> None:
    store = Store(tmp_path)

    def rows() -> Iterator[pa.RecordBatch]:
        yield from subgraphs("slow").to_batches()
        assert build(store, "quick").name == "v1"
        yield from subgraphs("slower").to_batches()

    slow, _ = store.publish({("fusible", "train"): rows()}, kind="build", parent=None, **NOTHING)
    assert slow.name == "v2" and names(slow) == ["slow", "slower"] and names(store.open("v1")) == ["quick"]


def test_concurrent_publishers_all_get_a_version(tmp_path: Path, warm_forks: WarmForks) -> None:
    code = """
        import sys
        from tests.support.stores import Store, build
        print(*[build(Store(sys.argv[1]), f"{sys.argv[2]}-{i}").name for i in range(4)])
    """
    with ThreadPoolExecutor(2) as two:
        done = two.map(lambda who: warm_forks.run(code, [str(tmp_path), who], directory=ROOT), "ab")
    answers = {who: each.stdout.split() for who, each in zip("ab", done, strict=True)}
    assert sorted(chain.from_iterable(answers.values())) == [f"v{i}" for i in range(1, 9)]
    store = Store(tmp_path)
    for who, published in answers.items():
        assert [names(store.open(name)) for name in published] == [[f"{who}-{i}"] for i in range(4)]
    assert on_disk(store) == [f"v{i}" for i in range(1, 9)]


def test_updating_lets_no_addition_be_lost(tmp_path: Path) -> None:
    store = Store(tmp_path)
    build(store, "first")

    def add(name: str) -> None:
        with store.updating() as newest:
            build(store, *names(newest), name, parent=newest)

    threads = [threading.Thread(target=add, args=(f"t{i}",)) for i in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(names(store.open())) == ["first", "t0", "t1", "t2", "t3", "t4"]


@pytest.mark.parametrize("how", ["missing", "truncated", "changed"])
def test_a_damaged_shard_is_named(tmp_path: Path, how: str) -> None:
    version = build(Store(tmp_path), *(f"{i}" * 50 for i in range(200)))
    path = shard(version)
    damage(path, how)
    expected = f"{path} is {'missing' if how == 'missing' else 'corrupt'}"
    with pytest.raises(PassNetError, match=expected):
        version.verify()
    with pytest.raises(PassNetError, match=expected):
        version.table("fusible")


def test_reading_with_verification_finds_what_page_checksums_do_not(tmp_path: Path) -> None:
    version = build(Store(tmp_path), "a", "b")
    other = build(Store(tmp_path / "other"), "x", "y")
    damage(shard(version), "missing")
    shutil.copy(shard(other), version.path / "data/fusible/train-00000-of-00001.parquet")
    assert names(version) == ["x", "y"], "a whole file with other rows"
    with pytest.raises(PassNetError, match=r"train-00000-of-00001.parquet is corrupt"):
        version.table("fusible", verify=True)
    with pytest.raises(PassNetError, match="is corrupt"):
        next(version.batches("fusible", verify=True))
    assert other.table("fusible", verify=True).equals(other.table("fusible"))


def test_rolling_back_needs_a_whole_version_but_not_a_whole_newest_one(tmp_path: Path) -> None:
    store = Store(tmp_path)
    first, second = build(store, "a"), build(store, "b")
    (second.path / "manifest.json").write_text("{")
    now, created = store.rollback("v1")
    assert created and now.name == "v3" and names(now) == ["a"]
    damage(shard(first), "changed")
    build(store, "c")
    with pytest.raises(PassNetError, match=r"v1/data/fusible/train-.* is corrupt"):
        store.rollback("v1")
    assert on_disk(store) == ["v1", "v2", "v3", "v4"]


def test_publishers_killed_at_random_instants_lose_nothing() -> None:
    command = [sys.executable, "-m", "benchmarks.storage.publish_kills", "--publishes", "6", "--publishers", "3"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    record = json.loads(done.stdout)
    assert record["problems"] == [] and record["killed"] > 0 and record["versions"] >= record["acknowledged"] >= 6


def test_a_version_without_its_manifest_says_what_to_do(tmp_path: Path) -> None:
    store = Store(tmp_path)
    (build(store, "a").path / "manifest.json").unlink()
    with pytest.raises(PassNetError, match=r"v1 has lost its manifest.json: restore it, or delete v1"):
        store.open()


def test_a_rebuild_mends_what_was_damaged(tmp_path: Path) -> None:
    store = Store(tmp_path)
    first = build(store, "a", "b")
    damage(shard(first), "changed")
    with pytest.raises(PassNetError, match=r"v1/data/fusible/train-.* is corrupt: restore it, or delete"):
        store.publish({("typical", "train"): subgraphs("z")}, kind="build", parent=first, keep=["fusible"], **NOTHING)
    second = build(store, "a", "b", parent=first)
    assert second.name == "v2"
    second.verify()
    assert names(second) == ["a", "b"]


def test_a_shard_with_other_columns_is_refused(tmp_path: Path) -> None:
    version = build(Store(tmp_path), "a")
    damage(shard(version), "missing")
    path = version.path / "data/fusible/train-00000-of-00001.parquet"
    whole = pq.read_table(shard(build(Store(tmp_path / "other"), "a")))
    for other in (whole.select(["variant_hash"]), whole.append_column("more", [["a"]]), whole.drop_columns("kernels")):
        pq.write_table(other, path)
        with pytest.raises(PassNetError, match="other columns than config 'fusible'"):
            version.table("fusible")


def test_a_shard_of_an_earlier_version_lacks_what_was_added_since(tmp_path: Path) -> None:
    version = build(Store(tmp_path), "a")
    whole = pq.read_table(shard(version))
    inputs = whole.column("inputs").to_pylist()
    fields = [field for field in whole.schema.field("inputs").type.value_type if field.name not in ADDED]
    rows = [[{field.name: each[field.name] for field in fields} for each in row] for row in inputs]
    place = whole.schema.get_field_index("inputs")
    older = whole.set_column(place, "inputs", pa.array(rows, pa.list_(pa.struct(fields))))
    older = older.drop_columns(["direction", "symbols"])
    damage(shard(version), "missing")
    pq.write_table(older, version.path / "data/fusible/train-00000-of-00001.parquet")
    assert version.table("fusible").drop_columns(["direction", "symbols"]).to_pylist() == [
        {k: v for k, v in row.items() if k not in ADDED} for row in whole.to_pylist()
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m["shards"][1].update(path="../../secret.parquet"), "shard path"),
        (lambda m: m["shards"][1].update(path="/etc/passwd"), "shard path"),
        (lambda m: m["shards"][1].update(path="data/fusible/../../../train-00000-of-00001.parquet"), "shard path"),
        (lambda m: m["shards"][1].update(config="../up"), "config '../up' is malformed"),
        (lambda m: m["shards"][1].update(rows="2"), "rows is str"),
        (lambda m: m["shards"][1].update(rows=True), "rows is bool"),
        (lambda m: m["shards"][1].update(rows=-1), "negative"),
        (lambda m: m["shards"].append(m["shards"][1]), "listed twice"),
        (lambda m: m["shards"].pop(), "digest"),
        (lambda m: m.update(name="../v1"), "name '../v1' is malformed"),
        (lambda m: m.update(kind="magic"), "kind 'magic'"),
        (lambda m: m.update(colour="red"), "unknown colour"),
        (lambda m: m.pop("libraries"), "lacks libraries"),
        (lambda m: m.update(shards={}), "shards is dict"),
    ],
)
def test_a_manifest_is_not_believed(tmp_path: Path, change: Any, message: str) -> None:
    version = build(Store(tmp_path), "a")
    file = version.path / "manifest.json"
    manifest = json.loads(file.read_text())
    change(manifest)
    file.write_text(json.dumps(manifest))
    with pytest.raises(PassNetError, match=f"{file} is not a manifest.*{message}") as caught:
        Store(tmp_path).open("v1")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b"\xff\xfe", b"[" * 100_000, b"null"])
def test_garbage_is_no_manifest(tmp_path: Path, text: bytes) -> None:
    version = build(Store(tmp_path), "a")
    (version.path / "manifest.json").write_bytes(text)
    with pytest.raises(PassNetError, match="manifest"):
        Version.open(version.path)


def test_a_link_out_of_the_version_is_not_followed(tmp_path: Path) -> None:
    version = build(Store(tmp_path / "data"), "a")
    path = shard(version)
    path.rename(tmp_path / "secret.parquet")
    path.symlink_to(tmp_path / "secret.parquet")
    for read in (version.verify, lambda: version.table("fusible")):
        with pytest.raises(PassNetError, match="leads outside the version"):
            read()


def test_nobody_waits_for_a_pipe(tmp_path: Path) -> None:
    version = build(Store(tmp_path), "a")
    for path, read in (
        (shard(version), version.verify),
        (shard(version), lambda: version.table("fusible")),
        (version.path / "manifest.json", lambda: Version.open(version.path)),
    ):
        path.unlink()
        os.mkfifo(path)
        with pytest.raises(PassNetError, match="not a regular file"):
            read()


@pytest.mark.parametrize("place", [".staging", ".staging/a", ".lock"])
def test_a_link_in_a_data_directory_leads_nobody_to_what_is_elsewhere(tmp_path: Path, place: str) -> None:
    store = Store(tmp_path / "data")
    build(store, "a")
    victim = tmp_path / "victim"
    (victim / "kept").mkdir(parents=True)
    (victim / "kept" / "file").touch()
    link = tmp_path / "data" / "versions" / place
    shutil.rmtree(link, ignore_errors=True)
    link.unlink(missing_ok=True)
    link.symlink_to(victim / "new" if place == ".lock" else victim)
    with contextlib.suppress(PassNetError):
        build(store, "b")
    assert [path.name for path in sorted(victim.rglob("*"))] == ["kept", "file"]


def test_a_directory_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = Store(tmp_path / "file" / "data")
    with pytest.raises(PassNetError, match=r"cannot write to .*file/data.*choose another --data"):
        build(store, "a")
    with pytest.raises(PassNetError, match="cannot read"):
        store.versions()


FILL = """
    import os, resource, sys
    import pyarrow as pa
    from storage.errors import PassNetError
    from tests.support.stores import SUBGRAPHS, Store, build
    store = Store(sys.argv[1])
    build(store, "good")
    if sys.argv[2] == "limit":
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
    rows = [{"variant_hash": str(i), "code": os.urandom(1 << 15).hex()} for i in range(200)]
    table = pa.Table.from_pylist(rows, SUBGRAPHS)
    try:
        store.publish({("fusible", "train"): table}, kind="build", parent=None, parameters={}, summary={})
    except PassNetError as error:
        print(error)
    print(*sorted(os.listdir(store.root / "versions")), *os.listdir(store.root / "versions" / ".staging"))
"""
FULL = r"no room in .*: the new version needs more than [\d.]+ MB, [\d.]+ MB are free: free some.*nothing was published"


def test_a_file_that_cannot_grow_is_reported_and_undone(tmp_path: Path, warm_forks: WarmForks) -> None:
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
    done = warm_forks.run(FILL, [str(tmp_path), "limit"], directory=ROOT)
    message, left = done.stdout.splitlines()
    assert re.fullmatch(FULL, message), message
    assert left == ".lock .staging v1"


def test_a_full_disk_is_reported_and_undone(tmp_path: Path) -> None:
    script = 'mount -t tmpfs -o size=2m tmpfs "$1" && shift && exec "$@"'
    isolated = ["unshare", "-Urm", "sh", "-c", script, "sh", str(tmp_path)]
    if shutil.which("unshare") is None or subprocess.run([*isolated, "true"], capture_output=True).returncode != 0:
        pytest.skip("mounting a small tmpfs in a user namespace is not allowed here")
    command = [*isolated, sys.executable, "-c", textwrap.dedent(FILL), str(tmp_path), "disk"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    message, left = done.stdout.splitlines()
    assert re.fullmatch(FULL, message), message
    assert left == ".lock .staging v1"

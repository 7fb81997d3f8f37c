"""Garbage collection: what goes, what stays, and what it frees."""

import shutil
from pathlib import Path

import pytest

from storage.errors import PassNetError
from storage.versions.garbage import Collected, collect
from storage.versions.store import Store
from tests.support.stores import ROOT, build, names, on_disk, shard
from tests.support.warm_forks import WarmForks


def test_an_empty_store_has_no_garbage(tmp_path: Path) -> None:
    assert collect(Store(tmp_path / "nothing"), keep=1) == Collected((), (), 0)
    assert not (tmp_path / "nothing").exists()


def test_old_versions_go_and_shared_shards_stay(tmp_path: Path) -> None:
    store = Store(tmp_path)
    build(store, "a"), build(store, "b")
    again, _ = store.rollback("v1")
    would = collect(store, keep=1, dry_run=True)
    assert would.versions == ("v1", "v2") and would.files == () and on_disk(store) == ["v1", "v2", "v3"]
    done = collect(store, keep=1)
    assert done == would and on_disk(store) == ["v3"]
    assert shard(again).stat().st_nlink == 1
    store.open().verify()
    assert names(store.open()) == ["a"]
    assert build(store, "c").name == "v4", "numbers are not used again"
    assert collect(store, keep=2) == Collected((), (), 0)


def test_freed_bytes_count_each_file_once(tmp_path: Path) -> None:
    store = Store(tmp_path)
    build(store, "a"), build(store, "b"), store.rollback("v1"), build(store, "z")
    before = _used(tmp_path)
    freed = collect(store, keep=1).bytes
    assert before - _used(tmp_path) == freed > 0


def test_what_no_manifest_lists_goes_and_what_is_no_shard_stays(tmp_path: Path) -> None:
    store = Store(tmp_path)
    version = build(store, "a")
    stray = version.path / "data/fusible/train-00001-of-00002.parquet"
    shutil.copy(shard(version), stray)
    (version.path / "data/fusible/mine.parquet").touch()
    (version.path / "notes.txt").touch()
    others = tmp_path / "others" / stray.name
    others.parent.mkdir()
    shutil.copy(stray, others)
    (version.path / "data/typical_of_others").symlink_to(others.parent)
    done = collect(store)
    assert others.exists(), "a link in a data directory leads to no removal elsewhere"
    assert done.files == ("v1/data/fusible/train-00001-of-00002.parquet",) and not stray.exists()
    assert (version.path / "notes.txt").exists() and (version.path / "data/fusible/mine.parquet").exists()
    version.verify()


def test_a_killed_collection_is_completed_by_the_next(tmp_path: Path, warm_forks: WarmForks) -> None:
    store = Store(tmp_path)
    build(store, "a"), build(store, "b")
    killed = warm_forks.run(
        """
        import os, shutil, signal, sys
        from storage.versions import staging
        staging.shutil.rmtree = lambda *a, **k: os.kill(os.getpid(), signal.SIGKILL)
        from storage.versions.garbage import collect
        from storage.versions.store import Store
        collect(Store(sys.argv[1]), keep=1)
        """,
        [str(tmp_path)],
        directory=ROOT,
    )
    assert killed.returncode == -9, killed.stderr
    assert store.names() == ["v2"] and len(on_disk(store)) == 2
    collect(store)
    assert on_disk(store) == ["v2"] and names(store.open()) == ["b"]


@pytest.mark.parametrize("keep", [0, -1])
def test_the_newest_version_is_never_removed(tmp_path: Path, keep: int) -> None:
    store = Store(tmp_path)
    build(store, "a")
    with pytest.raises(PassNetError, match="newest one stays"):
        collect(store, keep=keep)
    assert on_disk(store) == ["v1"]


def test_an_unreadable_manifest_stops_a_collection(tmp_path: Path) -> None:
    store = Store(tmp_path)
    build(store, "a"), build(store, "b")
    (tmp_path / "versions/v1/manifest.json").write_text("{")
    with pytest.raises(PassNetError, match=r"v1/manifest\.json"):
        collect(store)
    assert collect(store, keep=1).versions == ("v1",), "whether or not what goes can be read"


def _used(root: Path) -> int:
    files = {path.stat().st_ino: path.stat().st_size for path in root.rglob("*") if path.is_file()}
    return sum(files.values())

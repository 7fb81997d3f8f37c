"""Versions behind fsspec URLs: there and back, twice, interrupted, rivalled, damaged; memory and disk alike."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from storage.errors import PassNetError
from storage.versions.remote import Copied, Remote
from storage.versions.store import Store
from tests.support.stores import build, damage, names, on_disk, shard

_NUMBERS = itertools.count()


@pytest.fixture(params=["memory", "file"])
def url(request, tmp_path: Path) -> Iterator[str]:
    place = f"memory://bucket{next(_NUMBERS)}" if request.param == "memory" else f"file://{tmp_path}/remote"
    yield place
    if request.param == "memory":
        fsspec.filesystem("memory").rm(place, recursive=True) if fsspec.filesystem("memory").exists(place) else None


def test_there_and_back(url: str, tmp_path: Path) -> None:
    store, remote = Store(tmp_path / "a"), Remote(url)
    assert remote.names() == []
    first, second = build(store, "a", "b"), build(store, "c")
    assert remote.upload(first) == Copied("v1", url, 4, 0)
    assert remote.upload(second).copied == 4 and remote.names() == ["v1", "v2"]
    assert remote.upload(first) == Copied("v1", url, 0, 4), "nothing is sent twice"
    assert remote.manifest("v2") == second.manifest
    other = Store(tmp_path / "b")
    newest, done = remote.download(other)
    assert (newest.manifest, names(newest), done.copied) == (second.manifest, ["c"], 4)
    assert shard(newest).stat().st_mode & 0o222 == 0
    assert remote.download(other, "v1")[0].manifest == first.manifest
    assert remote.download(other, "v1")[1] == Copied("v1", url, 0, 4)
    assert on_disk(other) == ["v1", "v2"]


def test_an_interrupted_upload_shows_nothing_and_is_completed(url: str, tmp_path: Path) -> None:
    version, remote = build(Store(tmp_path / "a"), "a"), Remote(url)

    class Cut(Remote):
        """Copies so many files, then loses its connection."""

        left = 0

        def _put(self, source: Path, target: str) -> bool:
            if self.left == 0:
                raise ConnectionError("cut")
            self.left -= 1
            return super()._put(source, target)

    for files in range(4):
        cut = Cut(url)
        cut.left = files
        with pytest.raises(PassNetError, match="ConnectionError: cut"):
            cut.upload(version)
        assert remote.names() == []
    assert remote.upload(version) == Copied("v1", url, 1, 3)
    assert names(remote.download(Store(tmp_path / "b"))[0]) == ["a"]


def test_another_version_of_the_same_name_is_refused(url: str, tmp_path: Path) -> None:
    mine, rival, remote = build(Store(tmp_path / "a"), "a"), build(Store(tmp_path / "b"), "b"), Remote(url)
    remote._claim("v1", rival.manifest.digest)
    with pytest.raises(PassNetError, match="another v1 is being copied"):
        remote.upload(mine)
    remote.upload(rival)
    with pytest.raises(PassNetError, match="has another v1"):
        remote.upload(mine)
    with pytest.raises(PassNetError, match="has another v1 than"):
        remote.download(Store(tmp_path / "a"))
    assert names(Store(tmp_path / "a").open()) == ["a"] and on_disk(Store(tmp_path / "a")) == ["v1"]


def test_damage_is_found_on_either_side(url: str, tmp_path: Path) -> None:
    version, remote = build(Store(tmp_path / "a"), "a"), Remote(url)
    remote.upload(version)
    path = remote._at("v1", version.manifest.shards[0].path)
    data = bytearray(remote.fs.cat_file(path))
    data[20] ^= 0xFF
    remote.fs.pipe_file(path, bytes(data))
    with pytest.raises(PassNetError, match="is corrupt"):
        remote.download(Store(tmp_path / "b"))
    assert on_disk(Store(tmp_path / "b")) == []
    damage(shard(version), "changed")
    with pytest.raises(PassNetError, match="is corrupt"):
        Remote(f"{url}2").upload(version)
    remote.fs.pipe_file(remote._at("v1", "manifest.json"), b"\xff{")
    with pytest.raises(PassNetError, match="manifest"):
        remote.download(Store(tmp_path / "b"))


@pytest.mark.parametrize("name", ["v9", "../v1"])
def test_what_is_not_there_is_said(url: str, tmp_path: Path, name: str) -> None:
    remote = Remote(url)
    with pytest.raises(PassNetError, match="no version"):
        remote.download(Store(tmp_path / "b"))
    remote.upload(build(Store(tmp_path / "a"), "a"))
    with pytest.raises(PassNetError, match=f"no version '{name}': it has v1"):
        remote.download(Store(tmp_path / "b"), name)


def test_a_url_that_cannot_be_opened_is_said() -> None:
    with pytest.raises(PassNetError, match="cannot open nosuch://x"):
        Remote("nosuch://x")

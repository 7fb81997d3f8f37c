"""Versions in an S3-compatible store on loopback, through the real client: there and back, interrupted, rivalled."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.errors import PassNetError
from storage.versions.remote import Copied, Remote
from storage.versions.store import Store
from tests.support.s3_server import s3_server
from tests.support.stores import build, names, on_disk


@pytest.fixture
def url() -> Iterator[str]:
    with s3_server() as bucket:
        yield f"{bucket}/data sets"


def test_there_and_back_and_nothing_is_sent_twice(url: str, tmp_path: Path) -> None:
    store, remote = Store(tmp_path / "a"), Remote(url)
    assert remote.names() == []
    first, second = build(store, "a", "b"), build(store, "c")
    assert remote.upload(first) == Copied("v1", url, 4, 0)
    assert remote.upload(first) == Copied("v1", url, 0, 4)
    assert remote.upload(second).copied == 4 and remote.names() == ["v1", "v2"]
    other = Store(tmp_path / "b")
    newest, done = remote.download(other)
    assert (newest.manifest, names(newest), done.copied) == (second.manifest, ["c"], 4)
    assert remote.download(other, "v1")[0].manifest == first.manifest and on_disk(other) == ["v1", "v2"]


def test_an_interrupted_upload_shows_nothing_and_is_completed(url: str, tmp_path: Path) -> None:
    version, remote = build(Store(tmp_path / "a"), "a"), Remote(url)
    left = 2
    put = remote.fs.put_file

    def cut(source: str, target: str) -> None:
        nonlocal left
        if not left:
            raise ConnectionError("cut")
        left -= 1
        put(source, target)

    remote.fs.put_file = cut
    with pytest.raises(PassNetError, match="ConnectionError: cut"):
        remote.upload(version)
    del remote.fs.put_file
    assert remote.names() == []
    assert Remote(url).upload(version) == Copied("v1", url, 2, 2)
    assert names(remote.download(Store(tmp_path / "b"))[0]) == ["a"]


def test_of_two_versions_of_one_name_the_second_is_refused(url: str, tmp_path: Path) -> None:
    mine, rival = build(Store(tmp_path / "a"), "a"), build(Store(tmp_path / "b"), "b")
    remote = Remote(url)
    remote._claim("v1", rival.manifest.digest)
    with pytest.raises(PassNetError, match="another v1 is being copied"):
        remote.upload(mine)
    assert remote.upload(rival).copied == 4
    with pytest.raises(PassNetError, match="has another v1"):
        remote.upload(mine)


def test_a_bucket_that_is_not_there_is_said_and_not_made(url: str, tmp_path: Path) -> None:
    version, remote = build(Store(tmp_path / "a"), "a"), Remote("s3://passnett/x")
    with pytest.raises(PassNetError, match="s3://passnett/x: FileNotFoundError"):
        remote.upload(version)
    assert [bucket.strip("/") for bucket in remote.fs.ls("", detail=False)] == ["passnet"]
    with pytest.raises(PassNetError, match="has no versions"):
        Remote(url).download(Store(tmp_path / "b"))


def test_missing_credentials_are_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(tmp_path))
    s3fs = pytest.importorskip("s3fs", reason="needs an S3 client: pip install 'passnet[s3]'")
    s3fs.S3FileSystem.clear_instance_cache()
    with pytest.raises(PassNetError, match="s3://passnett/x: NoCredentialsError: Unable to locate credentials"):
        Remote("s3://passnett/x").names()
    s3fs.S3FileSystem.clear_instance_cache()

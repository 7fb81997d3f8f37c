"""Files behind a URL and here: there and back, once, whole or not at all."""

from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem

from storage.errors import PassNetError
from storage.mirror import Mirror, is_url, put
from tests.support.s3_server import s3_server


@pytest.fixture(params=["memory", "file", "s3"])
def url(request, tmp_path: Path) -> Iterator[str]:
    if request.param == "s3":
        with s3_server() as bucket:
            yield f"{bucket}/data"
    elif request.param == "file":
        yield f"file://{tmp_path}/there"
    else:
        yield "memory://mirrored/data"
        fsspec.filesystem("memory").rm("/mirrored", recursive=True)


def put_here(root: Path, name: str, text: str) -> Path:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)
    return root / name


def test_files_go_there_once_and_come_back(url: str, tmp_path: Path) -> None:
    here, other = Mirror(url, tmp_path / "here"), Mirror(url, tmp_path / "other")
    first, second = put_here(here.root, "traces/t1/a.parquet", "a"), put_here(here.root, "traces/t1/b.parquet", "bb")
    put_here(here.root, "traces/t1/.b.parquet.9.partial", "half")
    here.push(first)
    other.fetch(other.root / "traces/t1/a.parquet")
    assert (other.root / "traces/t1/a.parquet").read_text() == "a"
    again = Mirror(url, here.root)
    sent = []
    again._push = lambda name, push=again._push: (sent.append(name), push(name))
    again.push_all("traces", "*/[!.]*.parquet")
    assert sent == ["traces/t1/b.parquet"], "what is there in its size is not sent again"
    assert other.fetch_all("traces") == 1 and other.fetch_all("traces") == 0
    assert (other.root / second.relative_to(here.root)).read_text() == "bb"
    other.remove("traces")
    assert Mirror(url, tmp_path / "third").fetch_all("traces") == 0


def test_a_file_that_is_not_there_is_one_clear_line_and_leaves_nothing(url: str, tmp_path: Path) -> None:
    mirror = Mirror(url, tmp_path / "here")
    mirror.push(put_here(mirror.root, "one", "1"))
    with pytest.raises(PassNetError, match=f"{url}: FileNotFoundError"):
        mirror.fetch(mirror.root / "two")
    assert [path.name for path in mirror.root.iterdir()] == ["one"]


def test_urls_are_told_from_paths() -> None:
    assert is_url("s3://bucket/path") and is_url("file:///data")
    assert not is_url("data") and not is_url("/data/s3:x")


def test_a_file_is_there_whole_or_not_at_all_on_another_disk(tmp_path: Path) -> None:
    class Dying(LocalFileSystem):
        """Copies half of a file, and dies."""

        def put_file(self, source, target, **options):
            Path(target).write_bytes(Path(source).read_bytes()[:3])
            raise OSError("killed")

    source, there = put_here(tmp_path, "here/one", "whole"), tmp_path / "there"
    with pytest.raises(OSError, match="killed"):
        put(Dying(), source, f"{there}/one")
    assert not list(there.iterdir())
    mirror = Mirror(f"file://{tmp_path}/there", tmp_path / "here")
    mirror.push(source)
    assert (there / "one").read_text() == "whole"
    (there / "two.partial").write_text("ha")
    assert Mirror(f"file://{tmp_path}", tmp_path / "other").fetch_all("there") == 1


def test_two_that_copy_a_file_at_a_time_leave_it_whole(tmp_path: Path) -> None:
    class Slow(LocalFileSystem):
        """Another process copies the same file meanwhile."""

        def put_file(self, source, target, **options):
            super().put_file(source, target, **options)
            put(LocalFileSystem(), Path(source), f"{tmp_path}/there/one")

    put(Slow(), put_here(tmp_path, "here/one", "whole"), f"{tmp_path}/there/one")
    assert [path.read_text() for path in (tmp_path / "there").iterdir()] == ["whole"]


def test_a_name_that_leads_out_of_the_directory_is_refused(tmp_path: Path) -> None:
    memory = fsspec.filesystem("memory")
    memory.pipe_file("/hostile/traces/../../evil", b"x")
    try:
        with pytest.raises(PassNetError, match="leads out of it"):
            Mirror("memory://hostile", tmp_path / "a" / "here").fetch_all("traces")
    finally:
        memory.rm("/hostile", recursive=True)
    assert not list(tmp_path.rglob("evil"))

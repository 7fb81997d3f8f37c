"""The one writer of Parquet files: whole files or none, the same bytes for the same rows, advice that fits."""

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from storage.disk import disk_error, filling
from storage.errors import PassNetError
from storage.parquet import parquet_summary, read_rows, write_parquet, write_rows
from tests.support.small_files import files_of_at_most

SCHEMA = pa.schema([("name", pa.string()), ("count", pa.int64())])
ROWS = [{"name": "a", "count": 1}, {"name": "b", "count": None}]


def table(*names: str) -> pa.Table:
    return pa.Table.from_pylist([{"name": name, "count": len(name)} for name in names], SCHEMA)


def test_rows_come_back_and_equal_rows_give_equal_bytes(tmp_path: Path) -> None:
    write_rows(tmp_path / "new" / "x.parquet", ROWS, SCHEMA)
    write_rows(tmp_path / "y.parquet", ROWS, SCHEMA)
    assert read_rows(tmp_path / "y.parquet", SCHEMA) == ROWS
    assert (tmp_path / "new" / "x.parquet").read_bytes() == (tmp_path / "y.parquet").read_bytes()


def test_groups_and_a_summary_that_is_filled_on_the_way_are_kept(tmp_path: Path) -> None:
    counts: dict[str, int] = {}

    def groups():
        for number, group in enumerate((table("a", "bb"), table(), table("ccc"))):
            counts[f"group {number}"] = len(group)
            yield group

    path = tmp_path / "x.parquet"
    assert write_parquet(path, groups(), SCHEMA, counts) == 3
    assert parquet_summary(path) == {"group 0": 2, "group 1": 0, "group 2": 1}
    assert pq.read_table(path).column("name").to_pylist() == ["a", "bb", "ccc"]


@pytest.mark.parametrize("before", [False, True])
def test_what_fails_half_way_leaves_what_was_there(tmp_path: Path, before: bool) -> None:
    path = tmp_path / "x.parquet"
    if before:
        write_rows(path, ROWS, SCHEMA)

    def failing():
        yield table("a")
        raise RuntimeError("half way")

    with pytest.raises(RuntimeError, match="half way"):
        write_parquet(path, failing(), SCHEMA)
    assert list(tmp_path.iterdir()) == [path] * before
    assert not before or read_rows(path, SCHEMA) == ROWS


def test_a_full_disk_is_told_with_its_advice_and_leaves_nothing(tmp_path: Path) -> None:
    large = table(*(os.urandom(5000).hex() for _ in range(20)))
    with files_of_at_most(1 << 14), pytest.raises(PassNetError) as error:
        write_parquet(tmp_path / "x.parquet", [large], SCHEMA, elsewhere="another --out")
    assert str(error.value).startswith(f"no room for {tmp_path}/x.parquet (File too large): ")
    assert str(error.value).endswith("are free: free some, or choose another --out")
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_gets_other_advice(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(PassNetError, match=r"cannot write to .*x.parquet .*: choose another --data or fix its perm"):
        write_rows(tmp_path / "file" / "x.parquet", ROWS, SCHEMA)
    assert "check the disk" in str(disk_error(OSError(5, "Input/output error"), tmp_path, "another --out"))


def test_a_directory_is_filled_with_all_files_or_none(tmp_path: Path) -> None:
    with filling(tmp_path / "out") as place:
        (place / "inner").mkdir()
        (place / "inner" / "a.txt").write_text("1")
        (place / "b.txt").write_text("1")
    with pytest.raises(RuntimeError), filling(tmp_path / "out") as place:
        (place / "b.txt").write_text("2")
        raise RuntimeError
    with filling(tmp_path / "out") as place:
        (place / "c.txt").write_text("3")
    found = {str(p.relative_to(tmp_path)): p.read_text() for p in tmp_path.rglob("*") if p.is_file()}
    assert found == {"out/inner/a.txt": "1", "out/b.txt": "1", "out/c.txt": "3"}


def test_only_this_writer_writes_parquet() -> None:
    root = Path(__file__).resolve().parents[2]
    rooms = ("agent", "dedup", "extraction", "flows", "passbench", "passnet", "storage")
    writers = ("ParquetWriter(", ".write_table(", "to_parquet(", "write_dataset(")
    found = {
        str(path.relative_to(root))
        for room in rooms
        for path in (root / room).rglob("*.py")
        if "pq" in (text := path.read_text(encoding="utf-8")) and any(w in text for w in writers)
    }
    assert found == {"storage/parquet.py"}

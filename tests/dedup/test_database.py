"""The engine: a path means the file of that name, whatever characters are in it."""

from pathlib import Path

import pyarrow as pa
import pytest

from dedup.database import Engine, parquet
from storage.parquet import write_rows

SCHEMA = pa.schema([("model", pa.string())])


@pytest.mark.parametrize("odd", ["model=3", "a[1]", "a*", "a?", "a[!x]", "it's", "{a1,b}"])
def test_a_directory_of_any_name_has_its_own_rows(tmp_path: Path, odd: str) -> None:
    for name in (odd, "a1", "ab"):
        write_rows(tmp_path / name / "rows.parquet", [{"model": name}], SCHEMA)
    path = tmp_path / odd / "rows.parquet"
    with Engine() as engine:
        found = engine.run(f"SELECT model, filename, file_row_number FROM {parquet([path])}")
    assert found == [(odd, str(path), 0)]

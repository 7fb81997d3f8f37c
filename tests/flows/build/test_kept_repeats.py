"""What repeats, from one build to the next."""

from pathlib import Path

import pytest

from extraction.cutting.typical import Repeat, Repeats
from flows.build.kept_repeats import read_repeats, repeats_built, write_repeats
from flows.build.subgraphs import repeats_of, shards_of
from storage.errors import PassNetError
from storage.versions.store import Store

FOUND = Repeats(("a", "b"), ((0, 1), (2, 2)), {"one": [Repeat(0, 4), Repeat(6, 10)], "two": []})


def test_a_file_says_what_was_written_and_is_named_by_it(tmp_path: Path) -> None:
    name = write_repeats(tmp_path, FOUND)
    assert read_repeats(tmp_path, name) == FOUND
    assert write_repeats(tmp_path, Repeats(FOUND.names, FOUND.rules, dict(reversed(FOUND.found.items())))) == name
    assert write_repeats(tmp_path, Repeats(FOUND.names, FOUND.rules, {"one": [Repeat(0, 4)]})) != name
    (tmp_path / f"{name}.parquet").write_bytes(b"half")
    with pytest.raises(PassNetError, match="corrupt"):
        read_repeats(tmp_path, name)


def test_a_version_names_what_its_build_found(built: Path, tmp_path: Path) -> None:
    directory, version = repeats_of(shards_of(built)), Store(built).latest()
    name = repeats_built(version, directory)
    assert name and read_repeats(directory, name).found
    assert repeats_built(version, tmp_path) == "", "not there: all is found anew"
    assert repeats_built(None, directory) == ""

"""The demonstrations that come along: readable, allowed, apart from what is held out, a graph once."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from agent.learning.answers import files_of
from benchmarks.learning.checking.verdicts import BY_INTERPRETER, BY_OWN_PROCESS, BY_PASSBENCH
from benchmarks.learning.make_demonstrations import SCHEMA
from passbench.contract import NAMES_FILE, PassFiles
from passbench.policy.check import check_files
from storage.schema import CATEGORIES
from storage.versions.version import Version

ROOT = Path(__file__).resolve().parents[3] / "benchmarks"


@pytest.fixture(scope="module")
def rows():
    table = pq.read_table(ROOT / "learning" / "demonstrations.parquet")
    assert table.schema.equals(SCHEMA)
    return table.to_pylist()


def test_nothing_of_the_held_out_samples_is_in_it(rows):
    for place in ("dedup/held_out_1", "extraction/corpus_350", "extraction/corpus_328", "extraction/corpus_578"):
        version = Version.open(ROOT / place / "version")
        columns = ["family_hash", "op_sequence"]
        held = [row for c in CATEGORIES for b in version.batches(c, "eval", columns) for row in b.to_pylist()]
        assert held and not {row["family_hash"] for row in held} & {row["family_hash"] for row in rows}
        assert not {tuple(row["op_sequence"]) for row in held} & {tuple(row["op_sequence"]) for row in rows}


def test_each_graph_once_and_each_family_in_one_split(rows):
    assert len({row["graph_hash"] for row in rows}) == len(rows) > 500
    assert {row["checked"] for row in rows} <= {BY_INTERPRETER, BY_OWN_PROCESS, BY_PASSBENCH}
    assert all(row["level"] <= -5 for row in rows)
    by_split = {split: {r["family_hash"] for r in rows if r["split"] == split} for split in ("train", "validation")}
    assert by_split["train"] and by_split["validation"] and not by_split["train"] & by_split["validation"]


def test_answers_are_passes_that_the_policy_allows(rows):
    for row in rows[::50]:
        files = files_of(row["answer"])
        names = tuple(name.removesuffix(".py") for name in files if name != NAMES_FILE)
        assert "fuse" in names
        assert check_files(PassFiles(names, files, ())) == [], row["sample"]

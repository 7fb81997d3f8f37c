"""Traces on disk: what is missing, what a retry replaces. Outcomes here are rows without graphs."""

from itertools import permutations
from pathlib import Path

import pytest

from extraction.sources.catalog import Entry, parse_entry
from extraction.sources.spec import spec_of, specified
from extraction.tracing.trace_files import TraceOutcome
from extraction.tracing.trace_store import TraceStore
from extraction.tracing.trace_workers import failed_row
from storage.errors import PassNetError

NAMES = ("timm:resnet18", "timm:resnet34", "timm:vit_tiny_patch16_224")
ENTRIES = [parse_entry(name) for name in NAMES]
FIRST, SECOND, THIRD = ENTRIES


def failed(entry: Entry, category: str, message: str = "") -> TraceOutcome:
    return TraceOutcome(entry, failed_row(entry, spec_of(entry), category, message, 1.0))


def traced(entry: Entry, message: str = "") -> TraceOutcome:
    row = failed_row(entry, spec_of(entry), "", message, 1.0)
    return TraceOutcome(entry, {**row, "status": "traced", "graphs": 1, "ops": 7})


def said(store: TraceStore, entry: Entry) -> tuple[str, str]:
    """Category and message of the record that counts."""
    key = spec_of(entry).trace_key
    row = store.find([key])[key].row
    return row["error_category"], row["message"]


def test_what_is_there_is_not_missing_whatever_came_of_it(tmp_path: Path) -> None:
    store = TraceStore(tmp_path)
    assert [*store.missing(specified(ENTRIES))] == ENTRIES
    store.add([traced(FIRST), failed(SECOND, "timeout")])
    assert [*store.missing(specified(ENTRIES))] == [THIRD]
    assert [*TraceStore(tmp_path).missing(specified([*ENTRIES, parse_entry("timm:resnet18.a1_in1k")]))] == [THIRD]


def test_failures_are_missing_for_a_retry_of_their_category(tmp_path: Path) -> None:
    store = TraceStore(tmp_path)
    store.add([traced(FIRST), failed(SECOND, "timeout"), failed(THIRD, "config")])
    assert [*store.missing(specified(ENTRIES), retry=["timeout"])] == [SECOND]
    assert [*store.missing(specified(ENTRIES), retry=["config", "timeout"])] == [SECOND, THIRD]
    assert [*store.missing(specified(ENTRIES), retry=["crashed"])] == []


def test_a_retry_replaces_the_failure_and_nothing_else(tmp_path: Path) -> None:
    store = TraceStore(tmp_path)
    store.add([traced(FIRST), failed(SECOND, "timeout"), failed(THIRD, "config")])
    store.add([traced(SECOND), failed(THIRD, "internal", "other now")])
    for reader in (store, TraceStore(tmp_path)):
        assert said(reader, SECOND) == ("", "")
        assert said(reader, THIRD) == ("internal", "other now")
        assert [*reader.missing(specified(ENTRIES), retry=["timeout", "config"])] == []
    keys = [spec_of(entry).trace_key for entry in ENTRIES]
    found = store.find(keys)
    assert found.keys() == set(keys)
    assert len({record.path for record in found.values()}) == 2


def test_the_same_shard_again_leaves_the_earlier_file_and_counts(tmp_path: Path) -> None:
    store = TraceStore(tmp_path)
    for number in range(12):  # past nine, where names no longer sort as numbers do
        store.add([failed(FIRST, "timeout", str(number))])
    assert said(TraceStore(tmp_path), FIRST) == ("timeout", "11")
    assert len(list(tmp_path.rglob("*.parquet"))) == 12


def test_a_failure_never_hides_a_trace(tmp_path: Path) -> None:
    """Two builds side by side: one traces what the other then gives up."""
    store = TraceStore(tmp_path)
    store.add([traced(FIRST)])
    store.add([failed(FIRST, "timeout"), failed(SECOND, "timeout")])
    assert said(store, FIRST) == ("", "")
    assert [*store.missing(specified(ENTRIES), retry=["timeout"])] == [SECOND, THIRD]


def test_which_record_counts_does_not_depend_on_when_files_came(tmp_path: Path) -> None:
    shards = [[failed(FIRST, "config", "a")], [failed(FIRST, "config", "b"), traced(SECOND)],
              [failed(FIRST, "config", "c"), traced(THIRD)]]  # fmt: skip
    answers = set()
    for number, order in enumerate(permutations(shards)):
        root = tmp_path / str(number)
        for shard in order:  # each in a directory of its own: none sees the others, as in builds side by side
            alone = TraceStore(root / "alone" / shard[0].row["message"])
            alone.add(shard)
            for file in alone.directory.iterdir():
                target = TraceStore(root).directory
                target.mkdir(parents=True, exist_ok=True)
                file.rename(target / file.name)
        answers.add(said(TraceStore(root), FIRST))
    assert len(answers) == 1


def test_a_corrupt_file_is_named(tmp_path: Path) -> None:
    store = TraceStore(tmp_path)
    store.add([traced(FIRST)])
    file = next(tmp_path.rglob("*.parquet"))
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(PassNetError, match=f"{file.name} is corrupt .*delete it"):
        TraceStore(tmp_path).missing(specified(ENTRIES))
    file.unlink()
    assert [*store.missing(specified([FIRST]))] == [FIRST]

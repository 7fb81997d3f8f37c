import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dedup.database import Engine
from dedup.hashes import identify
from dedup.rows import ROWS, batches, place_of, stream, write
from dedup.unique import MAX_SOURCES, unique_files
from storage.errors import PassNetError
from storage.graph.record import Graph, Op, Ref
from storage.parquet import parquet_summary
from storage.records import Input, Source, Variant
from storage.schema import CATEGORIES
from tests.support.in_memory import unique


def _variant(size: int, source: Source, category: str = "sole_op", std: float = 1.0, symbols: int = 0) -> Variant:
    graph = Graph(1, (Op("function", "torch.relu", (Ref(0),), {}),), (Ref(1),))
    inputs = (Input("x", "input", "float32", (size,), (1,), mean=0.0, std=std),)
    named = {f"s{n}": size for n in range(symbols)}
    return identify(Variant(category, graph, inputs, (), (source,), symbols=named))


places = st.builds(Source, st.sampled_from(["a", "b", "ö'"]), st.integers(0, 40), st.just(50))
variants = st.builds(
    _variant,
    st.integers(1, 3),
    places,
    st.sampled_from(["sole_op", "typical"]),
    st.sampled_from([1.0, 0.5]),
    st.integers(0, 2),
)


def _reference(given_: Iterable[Variant]) -> list[Variant]:
    """What the engine must do, in a few lines that hold everything in memory."""
    groups: dict[tuple[int, str], list[Variant]] = {}
    for variant in given_:
        groups.setdefault((CATEGORIES.index(variant.category), variant.variant_hash), []).append(variant)
    merged = []
    for _, group in sorted(groups.items()):
        first = min(group, key=lambda v: tuple(place_of(v).values()))
        sources = sorted({(s.model, s.start, s.end) for v in group for s in v.sources})[:MAX_SOURCES]
        occurrences = sum(v.occurrences for v in group)
        merged.append(replace(first, sources=tuple(Source(*s) for s in sources), occurrences=occurrences))
    return merged


@settings(max_examples=10)
@given(st.lists(variants, max_size=40), st.randoms(use_true_random=False))
def test_each_once_whatever_the_order(given_: list[Variant], shuffler: random.Random) -> None:
    result = unique(given_)
    assert list(result.variants) == _reference(given_)
    assert result.dropped.total() == len(given_) - len(result.variants)
    shuffled = list(given_)
    shuffler.shuffle(shuffled)
    assert unique(shuffled) == result
    assert unique(result.variants).variants == result.variants


@settings(max_examples=8)
@given(st.lists(st.lists(variants, max_size=20), max_size=4), st.integers(1, 7), st.sampled_from([2, 50_000]))
def test_files_are_merged_whatever_their_number_and_in_whatever_parts(
    tmp_path_factory: pytest.TempPathFactory, parts: list, size: int, at_once: int
) -> None:
    directory = tmp_path_factory.mktemp("unique")
    paths = [directory / f"it's {number}.parquet" for number in range(len(parts))]
    for path, part in zip(paths, parts, strict=True):
        assert write(path, batches(part), ROWS, {}, size) == len(part)
    with Engine(directory / "engine") as engine:
        files = unique_files(engine, paths, directory / "unique", size, at_once=at_once)
    rows = [row for c in CATEGORIES for batch in stream(files[c]) for row in batch.to_pylist()]
    given_ = [variant for part in parts for variant in part]
    assert [Variant.from_row(row) for row in rows] == _reference(given_)
    duplicates = Counter({c: parquet_summary(files[c])["duplicates"] for c in CATEGORIES})
    assert duplicates.total() == len(given_) - len(rows)


def test_sources_are_bounded_and_the_first_decides() -> None:
    many = [_variant(1, Source("m", start, start + 1), std=start) for start in reversed(range(40))]
    (merged,) = unique(many).variants
    assert merged.occurrences == 40
    assert [s.start for s in merged.sources] == list(range(MAX_SOURCES))
    assert merged.inputs[0].std == 0


def test_a_variant_without_hash_is_refused() -> None:
    with pytest.raises(ValueError, match="identify"):
        unique([_variant(1, Source("m", 0, 1)).with_changes(variant_hash="")])


def test_a_file_is_complete_or_not_there(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"

    def failing() -> Iterable[Variant]:
        yield _variant(1, Source("m", 0, 1))
        raise RuntimeError("half way")

    with pytest.raises(RuntimeError, match="half way"):
        write(path, batches(failing()), ROWS, {})
    assert list(tmp_path.iterdir()) == []
    write(path, batches([_variant(1, Source("m", 0, 1))]), ROWS, {"dropped": {"cause": 2}})
    assert parquet_summary(path) == {"dropped": {"cause": 2}}
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(PassNetError, match=r"rows\.parquet is corrupt"):
        parquet_summary(path)
    with pytest.raises(PassNetError, match=r"rows\.parquet is corrupt"):
        list(stream(path))

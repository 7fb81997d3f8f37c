"""Stages of a build on a few variants in memory, through the product's own functions; results as Python objects."""

import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pyarrow as pa

from dedup.database import Engine
from dedup.hashes import identify
from dedup.rows import ROWS, batches, stream, write
from dedup.samples import choose_samples, sample_batches
from dedup.unique import unique_files
from extraction.analysis.prepared import tokens
from extraction.cutting.cut import cut_graph, cut_typical
from extraction.cutting.typical import Texts
from extraction.varying.vary import vary
from storage.parquet import parquet_summary
from storage.records import Sample, TracedGraph, Variant
from storage.schema import CATEGORIES, SPLITS, SUBGRAPHS


@dataclass(frozen=True)
class Made:
    """Variants, and by cause what was left out (by category, for `unique`)."""

    variants: tuple[Variant, ...]
    dropped: Counter[str]


@cache
def _engine() -> Engine:
    """One for all calls, since to start and to end one takes as long as to ask it. Each call makes its tables anew."""
    return Engine()


def cut_corpus(traced: Sequence[TracedGraph]) -> Made:
    """All subgraphs of a small corpus: sole_op and fusible ones graph by graph, then the typical ones."""
    texts, dropped, found, digests = Texts(), Counter(), [], []
    for graph in traced:
        found += cut_graph(graph, dropped)
        digests.append(texts.add(tokens(graph)))
    repeats = texts.repeats().found
    for graph, digest in zip(traced, digests, strict=True):
        found += cut_typical(graph, repeats[digest], dropped)
    return Made(tuple(found), dropped)


def vary_all(variants: Iterable[Variant], **options: object) -> Made:
    """Every valid variant of each subgraph; options are those of `vary`."""
    dropped: Counter[str] = Counter()
    return Made(tuple(v for variant in variants for v in vary(variant, dropped, **options)), dropped)


def unique(variants: Iterable[Variant]) -> Made:
    """Each variant once, by category and hash. Identified variants are given."""
    with tempfile.TemporaryDirectory() as place:
        given = Path(place, "given.parquet")
        write(given, batches(variants), ROWS, {})
        files = unique_files(_engine(), [given], Path(place, "unique"))
        rows = [row for category in CATEGORIES for batch in stream(files[category]) for row in batch.to_pylist()]
        counts = {category: parquet_summary(files[category])["duplicates"] for category in CATEGORIES}
    return Made(tuple(Variant.from_row(row) for row in rows), +Counter(counts))


def unique_corpus(traced: Sequence[TracedGraph]) -> tuple[Variant, ...]:
    """The unique subgraphs of a small corpus, identified."""
    return unique(map(identify, cut_corpus(traced).variants)).variants


def make_samples(variants: Iterable[Variant], **options: object) -> list[Sample]:
    """The samples of unique variants, by category and family hash; options are those of `choose_samples`."""
    given = {(v.category, v.variant_hash): v for v in variants}
    columns = ("category", "variant_hash", "family_hash", "occurrences", "op_sequence")
    rows = [{name: v.to_row()[name] for name in columns} for v in given.values()]
    engine = _engine()
    engine.table("given", pa.Table.from_pylist(rows, pa.schema([SUBGRAPHS.field(name) for name in columns])))
    choose_samples(engine, "given", **options)
    found = [row for split in SPLITS for batch in sample_batches(engine, split) for row in batch.to_pylist()]
    found.sort(key=lambda row: (CATEGORIES.index(row["category"]), row["family_hash"]))
    return [
        Sample(
            **{k: row[k] for k in ("sample", "family_hash", "category", "split", "rarity", "reason")},
            variants=tuple(given[row["category"], name] for name in row["variants"]),
        )
        for row in found
    ]

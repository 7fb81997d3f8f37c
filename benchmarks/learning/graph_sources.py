"""Where graphs to learn from come from: versions, windows of traced models, and graphs put together at random."""

import math
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.learning.composed import composed, few_rows
from dedup.hashes import identify
from extraction.analysis.prepared import Prepared, prepare
from extraction.cutting.cut import cut_range
from extraction.tracing.trace_files import read_traces
from extraction.varying.vary import vary
from storage.graph.record import op_name
from storage.records import Sample, TracedGraph, Variant
from storage.schema import CATEGORIES
from storage.versions.samples import load_samples
from storage.versions.version import Version

SHOWN = 3
"""Variants of a graph that a task shows."""

_LIBRARY = frozenset(
    """conv1d conv2d conv3d conv_transpose1d conv_transpose2d linear matmul bmm mm addmm baddbmm einsum lstm
    scaled_dot_product_attention embedding convolution convolution_backward multi_head_attention_forward""".split()
)
_LONGEST_WINDOW = 12
"""Ops of a window, at most."""
_SHORT = 16
"""Graphs of fewer ops come before those of fewer than twice as many, and so on."""


def version_samples(
    version: Version, part: tuple[int, int] = (0, 1), wanted: Callable[[str], bool] | None = None
) -> Iterator[Sample]:
    """The training samples of a version, a sample for each graph; forward and backward. Short ones come first, since
    they take the least time, and those by hash.

    `part`: the I-th of N parts of the families; `wanted`: those by hash, or all. Only their rows are read into memory.
    """
    number, count = part
    found = []
    for category in CATEGORIES:
        hashes = {h for b in version.batches(category, "train", ["family_hash"]) for h in b["family_hash"].to_pylist()}
        mine = sorted(h for h in hashes if int(h[:8], 16) % count == number and (wanted is None or wanted(h)))
        chosen = pc.field("family_hash").isin(pa.array(mine, pa.string()))
        rows = (row for b in version.batches(category, "train", filter=chosen) for row in b.to_pylist())
        found += _by_graph(map(Variant.from_row, rows))
    yield from sorted(found, key=lambda s: (len(s.variants[0].graph.ops) // _SHORT, s.variants[0].graph_hash))


def window_samples(traces: Path, part: tuple[int, int], windows: int, seed: int) -> Iterator[Sample]:
    """Windows of traced graphs, up to `windows` of each graph, drawn at random; none is of convolutions, matrix
    products and the like alone. `part`: the I-th of N parts of the graphs."""
    graphs = (traced for path in sorted(traces.rglob("*.parquet")) for traced in read_traces(path)[1])
    for traced in islice(graphs, part[0], None, part[1]):
        yield from _windows(traced, windows, random.Random(f"{seed} {traced.model} {traced.index}"))


def _windows(traced: TracedGraph, windows: int, rng: random.Random) -> Iterator[Sample]:
    ready = prepare(traced)
    if not isinstance(ready, Prepared):
        return
    library = [op_name(op).split(".")[-1 if "aten" not in op_name(op) else 3] in _LIBRARY for op in traced.graph.ops]
    ranges = [
        (start, end)
        for start in range(len(library))
        for end in range(start + 1, min(start + _LONGEST_WINDOW, len(library)) + 1)
        if not all(library[start:end])
    ]
    for start, end in rng.sample(ranges, min(windows, len(ranges))):
        variant = cut_range(ready, "typical" if end - start >= 4 else "sole_op", start, end)
        if isinstance(variant, Variant):
            yield from _by_graph(identify(one) for one in vary(variant, Counter()))


def composed_samples(seed: int, count: int) -> Iterator[Sample]:
    """Graphs that are put together at random."""
    return islice(composed(seed), count)


def _by_graph(variants: Iterable[Variant]) -> list[Sample]:
    graphs = defaultdict(dict)
    for one in variants:
        graphs[one.graph_hash].setdefault(one.variant_hash, one)
    found = []
    for hash_, kept in graphs.items():
        first = next(iter(kept.values()))
        name = f"{first.category}-{first.family_hash[:12]}-{hash_[:6]}"
        found.append(Sample(name, first.family_hash, first.category, "train", tuple(kept.values())))
    return found


def held_out_samples(places: list[Path]) -> list[Sample]:
    """The evaluation samples of these versions: none of them may be learned from."""
    return [sample for place in places for sample in load_samples(Version.open(place), "eval")]


def shown(sample: Sample) -> Sample:
    """The sample as a task shows it: its first variants, which are the dtypes at one size."""
    return replace(sample, variants=sample.variants[:SHOWN])


def small(sample: Sample, limit: int = 300_000) -> Sample | None:
    """The smallest variant of each dtype, in at most `limit` elements; None if there is none. A composed sample has
    another with few rows."""
    if sample.sample.startswith("composed"):
        return few_rows(sample)
    kept = {}
    for one in sorted(sample.variants, key=elements):
        if elements(one) <= limit:
            kept.setdefault(tuple(i.dtype for i in one.inputs), one)
    return replace(sample, variants=tuple(kept.values())) if kept else None


def line_of(sample: Sample) -> dict[str, Any]:
    """A sample as plain data, for `kept_sample`; the variants are those that it has here."""
    variants = [variant.to_row() for variant in sample.variants]
    return {"sample": sample.sample, "family_hash": sample.family_hash, "variants_shown": variants}


def kept_sample(line: Mapping[str, Any]) -> Sample:
    """The sample of such a line, whatever else the line holds: a training sample."""
    variants = tuple(map(Variant.from_row, line["variants_shown"]))
    return Sample(line["sample"], line["family_hash"], variants[0].category, "train", variants)


def elements(variant: Variant) -> int:
    """How many elements a variant's inputs and outputs have."""
    return sum(math.prod(i.shape) for i in (*variant.inputs, *variant.outputs))

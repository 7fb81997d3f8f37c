"""Build a dataset version: catalogue → traced graphs → subgraphs → unique variants → samples and splits → version."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from itertools import islice, product
from pathlib import Path

import pyarrow as pa
from prefect import flow

from dedup.hashes import identify_all
from dedup.samples import make_samples
from dedup.unique import unique
from extraction.catalog import read_catalog
from extraction.cut import cuts
from extraction.trace_store import TraceStore
from extraction.traces import Outcome
from extraction.vary import vary_all
from extraction.workers import MEMORY_MB, TIMEOUT_S, trace_all
from flows import DEFAULT_DATA
from flows.engine import each, flow_run_id, say
from storage.errors import PassNetError
from storage.records import Sample, Variant
from storage.schema import CATEGORIES, CONFIGS, SPLITS
from storage.versions import Store, Version

SHARD_MODELS = 100
"""Models in a shard of tracing at most; a build that is killed loses at most the shard in progress."""


@flow(name="build-dataset")
def build_dataset(
    catalog: str = "quickstart",
    limit: int | None = None,
    workers: int | None = None,
    data: str = DEFAULT_DATA,
    timeout_s: float = TIMEOUT_S,
    memory_mb: int = MEMORY_MB,
    eval_fusible: int = 200,
    eval_typical: int = 200,
) -> dict:
    """Build a dataset version of a catalogue in the data directory, tracing only what is not traced there yet.

    `limit` takes the first entries only; `workers` models are traced at a time (default: one a core), each within
    `timeout_s` seconds and `memory_mb` MiB; `eval_fusible` and `eval_typical` bound the evaluation samples.
    Returns a summary of what was built. Raises PassNetError for a bad catalogue, a directory that cannot be written,
    or a catalogue of which no model can be traced; nothing is published then, and finished traces are kept.
    """
    entries = read_catalog(catalog, limit)
    store = Store(data)
    traces = TraceStore(Path(data) / "traces")
    missing = traces.missing(entries)
    workers = workers or os.cpu_count() or 1
    say(f"{len(entries)} models in {catalog}, {len(missing)} to trace with {workers} workers")

    # The workers outlive a shard: one stream of outcomes, of which each step takes and keeps its share.
    with closing(trace_all(missing, workers=workers, timeout_s=timeout_s, memory_mb=memory_mb)) as outcomes:
        step = partial(trace_shard, traces, enumerate(outcomes, 1), len(missing))
        for _ in each(step, shard_sizes(len(missing)), "trace-shard"):
            pass
    models, traced = traces.load(entries)
    if not traced:
        first = next((f"{m['model']}: {m['error_category']}: {m['message']}" for m in models), "it is empty")
        raise PassNetError(f"no model of {catalog} could be traced; {first}")

    say(f"cutting {len(traced)} graphs")
    dropped: Counter[str] = Counter()
    subgraphs = unique(identify_all(cuts(traced, dropped)))
    varied = vary_all(subgraphs.variants)
    variants = unique(identify_all(varied.variants))
    say(f"{len(variants.variants)} unique variants of {len(subgraphs.variants)} subgraphs")
    earlier = store.latest()
    samples = make_samples(
        variants.variants, eval_fusible=eval_fusible, eval_typical=eval_typical, earlier_eval=eval_families(earlier)
    )

    duplicates = subgraphs.duplicates + variants.duplicates
    summary = {
        "models": len(models),
        "traced": sum(m["status"] == "traced" for m in models),
        "graphs": len(traced),
        "subgraphs": dict(Counter(v.category for v in variants.variants)),
        "duplicates": sum(duplicates.values()),
        "dropped": dict((dropped + varied.dropped).most_common()),
        "samples": dict(Counter(s.split for s in samples)),
        "failures": {m["model"]: f"{m['error_category']}: {m['message']}" for m in models if m["status"] == "failed"},
    }
    version, created = store.publish(
        {**dataset_tables(models, variants.variants, samples), **results_that_hold(earlier, variants.variants)},
        kind="build",
        parent=earlier,
        parameters={"catalog": catalog, "limit": limit},
        summary=summary,
        flow_run=flow_run_id(),
    )
    say(f"published {version.name}" if created else f"nothing new: {version.name} holds this dataset")
    return {**summary, "version": version.name, "path": str(version.path), "created": created}


def shard_sizes(models: int) -> list[int]:
    """Models in each shard: few in a small catalogue, so that an interrupted build keeps most of its work."""
    size = min(SHARD_MODELS, 2 + models // 20)
    return [min(size, models - start) for start in range(0, models, size)]


def trace_shard(traces: TraceStore, outcomes: Iterator[tuple[int, Outcome]], total: int, size: int) -> None:
    """Take the next `size` models as they are traced, and keep what came of them."""
    shard = []
    for number, outcome in islice(outcomes, size):
        row = outcome.row
        result = f"{row['ops']} ops" if outcome.traced else f"{row['error_category']}: {row['message']}"
        say(f"[{number}/{total}] {row['model']}: {result}, {row['seconds']:.1f} s")
        shard.append(outcome)
    traces.add(shard)


def eval_families(version: Version | None) -> dict[str, str]:
    """Families of a version's evaluation samples, with the reasons: once in eval, always in eval."""
    rows = version.table("samples", "eval", columns=["family_hash", "reason"]).to_pylist() if version else []
    return {row["family_hash"]: row["reason"] for row in rows}


def dataset_tables(
    models: Sequence[dict], variants: Sequence[Variant], samples: Sequence[Sample]
) -> dict[tuple[str, str], Iterable[pa.RecordBatch]]:
    """The tables of a dataset version; variants are in the split of their family's sample."""
    split_of = {(s.category, s.family_hash): s.split for s in samples}
    tables = {("models", "all"): record_batches("models", models)}
    for category, split in product(CATEGORIES, SPLITS):
        chosen = [v for v in variants if v.category == category and split_of[category, v.family_hash] == split]
        tables[category, split] = record_batches(category, (v.to_row() for v in chosen))
    for split in SPLITS:
        tables["samples", split] = record_batches("samples", [s.to_row() for s in samples if s.split == split])
    return tables


def results_that_hold(
    version: Version | None, variants: Sequence[Variant]
) -> dict[tuple[str, str], Iterable[pa.RecordBatch]]:
    """Earlier runs all of whose variants are still in the dataset: their results and scores go with it."""
    rows = version.table("results").to_pylist() if version else []
    present = {v.variant_hash for v in variants}
    stale = {row["run"] for row in rows if row["variant_hash"] not in present}
    tables = {}
    for config in ("results", "scores") if rows else ():
        kept = [row for row in version.table(config).to_pylist() if row["run"] not in stale]
        tables[config, "all"] = record_batches(config, kept)
    return tables


def record_batches(config: str, rows: Iterable[dict], size: int = 1000) -> Iterator[pa.RecordBatch]:
    """Rows as Arrow batches of a config's schema."""
    rest = iter(rows)
    while chunk := list(islice(rest, size)):
        yield pa.RecordBatch.from_pylist(chunk, CONFIGS[config])


if __name__ == "__main__":
    build_dataset()

"""A version of fusible samples whose families occur in none of the models that the offline author was developed on.

    python3 -m benchmarks.extraction.trace_corpus --catalog benchmarks/extraction/held_out.txt --data DIR
    python3 -m benchmarks.extraction.trace_corpus --catalog benchmarks/extraction/corpus.txt --data DIR
    python3 -m benchmarks.dedup.held_out --catalog benchmarks/extraction/held_out.txt \
        --known benchmarks/extraction/corpus.txt --data DIR

Cuts the traces of both catalogues, keeps the fusible subgraphs of the first of which no part of the second has the
family, draws families at random and varies those. All samples are for evaluation. Models that DIR holds no trace of are
left out, and counted. Killed and run again, it goes on with the shards that are done.
"""

import argparse
import json
import logging
import random
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from dedup.database import Engine, parquet
from dedup.hashes import family_hash
from dedup.rows import stream, write
from dedup.samples import choose_samples
from dedup.unique import unique_counts
from extraction.pool.client import Pool, TaskPool
from extraction.sources.catalog import read_catalog
from extraction.sources.spec import specified
from extraction.tracing.trace_store import TraceStore
from extraction.varying.shape_points import MAX_POINTS
from flows.build.dataset_rows import dataset_tables
from flows.build.subgraphs import VARY_SUBGRAPHS, Subgraphs, alone, cut, digest_of, vary, working
from flows.build.traced import Traced, find_traces
from flows.build_dataset import summary_of_build
from storage.errors import PassNetError
from storage.records import Variant
from storage.schema import SUBGRAPHS
from storage.versions.store import Store, Version


def main() -> None:
    arguments = parse_arguments()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    limits = {"workers": arguments.workers, "timeout_s": arguments.timeout, "memory_mb": arguments.memory}
    try:
        with alone(arguments.data), Pool(**limits) as pool:
            version = held_out(arguments.catalog, arguments.known, arguments.data, arguments.families, pool)
    except PassNetError as error:
        raise SystemExit(str(error)) from None
    print(json.dumps({"version": str(version.path), **version.manifest.summary}, indent=1))


def held_out(catalog: str, known: str, data: Path, most: int, pool: TaskPool) -> Version:
    """A new version in a data directory: of at most so many fusible families that only the first catalogue has.

    Raises PassNetError where a catalogue has no traces, or every family of the first is one of the second.
    """
    traces = TraceStore(data / "traces")
    new, old = held(traces, catalog), held(traces, known)
    with working(data, digest_of(new, MAX_POINTS)) as work, Engine(work.of_build / "engine") as engine:
        seen = families(cut(old, replace(work, of_build=work.of_build / "known", used={}), pool, engine).paths)
        file = cut(new, work, pool, engine).files["fusible"]
        unseen = sorted(families([file]) - seen)
        drawn = set(random.Random(0).sample(unseen, min(most, len(unseen))))
        print(f"{len(unseen)} fusible families that the other catalogue has not, {len(drawn)} drawn", flush=True)
        if not drawn:
            raise PassNetError(f"every fusible family of {catalog} is one of {known}, too")
        chosen = work.of_build / "drawn.parquet"
        write(chosen, of_families(file, drawn), SUBGRAPHS, {}, VARY_SUBGRAPHS)
        subgraphs = Subgraphs({"fusible": chosen}, 0, Counter())
        variants = vary(subgraphs, MAX_POINTS, work, pool, engine)
        quotas = {"eval_fusible": 10**6, "eval_typical": 10**6, "eval_sole_op": 10**6, "max_share": 1.0}
        choice = choose_samples(engine, parquet(variants.paths), **quotas)
        version, _ = Store(data).publish(
            dataset_tables(new.models, variants.files, choice, engine),
            kind="build",
            parent=None,
            parameters={"catalog": catalog, "known": known, "families": len(drawn)},
            summary=summary_of_build(new, subgraphs, variants, unique_counts(engine, variants.paths), choice),
            flow_run=None,
        )
    return version


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--catalog", required=True, help="models to take samples of")
    parser.add_argument("--known", required=True, help="models whose families are left out")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--families", type=int, default=150, help="families that are varied at most")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=1800.0, help="seconds a shard")
    parser.add_argument("--memory", type=int, default=8_192, help="MiB a shard")
    return parser.parse_args()


def held(traces: TraceStore, catalog: str) -> Traced:
    """The traces of a catalogue's models, of those that are traced. Raises PassNetError where there are none."""
    entries = read_catalog(catalog, None)
    missing = {entry.text for entry in traces.missing(specified(entries))}
    print(f"{catalog}: {len(entries)} models, {len(missing)} of them without a trace", flush=True)
    if len(missing) == len(entries):
        raise PassNetError(f"no model of {catalog} is traced in {traces.directory}: run trace_corpus first")
    return find_traces(traces, specified([entry for entry in entries if entry.text not in missing]))


def families(files: Iterable[Path]) -> set[str]:
    """The families in files of subgraphs that are not varied yet."""
    return {name for file in files for batch in stream(file) for name in families_of(batch)}


def families_of(batch: pa.RecordBatch) -> list[str]:
    """The family of each row: it has none before it is varied."""
    return [family_hash(Variant.from_row(row).graph) for row in batch.to_pylist()]


def of_families(file: Path, names: Collection[str]) -> Iterator[pa.RecordBatch]:
    """The rows of these families, in the order of the file."""
    for batch in stream(file):
        yield batch.filter(pa.array([name in names for name in families_of(batch)], pa.bool_()))


if __name__ == "__main__":
    main()

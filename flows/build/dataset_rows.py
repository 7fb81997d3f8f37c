"""The tables of a dataset version as streams of Arrow batches, from the files that a build leaves."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice, product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dedup.database import Engine, parquet
from dedup.rows import stream
from dedup.samples import SplitChoice, sample_batches
from storage.schema import CATEGORIES, CONFIGS, SPLITS
from storage.versions.store import Version

Tables = dict[tuple[str, str], Iterable[pa.RecordBatch]]
OF_RUNS = ("results", "scores", "trajectories")


def dataset_tables(models: Sequence[dict], files: Mapping[str, Path], choice: SplitChoice, engine: Engine) -> Tables:
    """Models, subgraphs and samples; variants are in the split of their family."""
    tables: Tables = {("models", "all"): record_batches("models", models)}
    for category, split in product(CATEGORIES, SPLITS):
        tables[category, split] = _of_split(files[category], choice, split)
    for split in SPLITS:
        tables["samples", split] = sample_batches(engine, split)
    return tables


def _of_split(file: Path, choice: SplitChoice, split: str) -> Iterator[pa.RecordBatch]:
    chosen = pa.array(sorted(choice.eval_families), pa.string())
    for batch in stream(file):
        in_eval = pc.is_in(batch.column("family_hash"), chosen)
        yield batch.filter(in_eval if split == "eval" else pc.invert(in_eval))


def earlier_splits(version: Version | None) -> dict[str, Any]:
    """What `choose_samples` takes of an earlier version, so that all families stay in their splits: those of its
    evaluation samples with the reasons, and those of its training samples."""
    if version is None:
        return {}
    held = version.table("samples", "eval", columns=["family_hash", "reason"]).to_pylist()
    learned = version.table("samples", "train", columns=["family_hash"])["family_hash"].to_pylist()
    return {
        "earlier_eval": {row["family_hash"]: row["reason"] for row in held},
        "earlier_train": frozenset(learned),
    }


def results_that_hold(version: Version | None, paths: Sequence[Path], engine: Engine) -> Tables:
    """Earlier runs all of whose variants are still in the dataset: what they left goes with it. Results of whole models
    depend on no variant and always go with it."""
    models = version is not None and any(shard.config == "model_results" for shard in version.manifest.shards)
    whole: Tables = {("model_results", "all"): version.batches("model_results")} if models else {}
    schema = pa.schema([CONFIGS["results"].field(name) for name in ("run", "variant_hash")])
    held = version.batches("results", columns=schema.names) if version else iter(())
    engine.table("held", pa.RecordBatchReader.from_batches(schema, held))
    if not engine.run("SELECT count(*) FROM held")[0][0]:
        return whole
    missing = f"SELECT DISTINCT run FROM held ANTI JOIN {parquet(paths)} USING (variant_hash) ORDER BY run"
    kept = ~pc.field("run").isin(pa.array([run for (run,) in engine.run(missing)], pa.string()))
    return whole | {(config, "all"): version.batches(config, filter=kept) for config in OF_RUNS}


def record_batches(config: str, rows: Iterable[dict], size: int = 1000) -> Iterator[pa.RecordBatch]:
    """Rows as Arrow batches of a config's schema."""
    rest = iter(rows)
    while chunk := list(islice(rest, size)):
        yield pa.RecordBatch.from_pylist(chunk, CONFIGS[config])

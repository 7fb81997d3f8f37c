"""Build a dataset version: catalogue → traced graphs → subgraphs → unique variants → samples and splits → version."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from prefect import flow

from dedup.database import Engine, parquet
from dedup.samples import SplitChoice, choose_samples
from dedup.unique import unique_counts
from extraction.failures import CATEGORIES, ModelError
from extraction.pool.client import DISK_MB, PROCESSES, TaskPool
from extraction.sources.catalog import Entry, points_of, read_catalog
from extraction.sources.spec import Spec, specified
from extraction.tracing.limits import MEMORY_MB, PREPARE, TIMEOUT_S
from extraction.tracing.trace_files import TraceOutcome
from extraction.tracing.trace_store import TraceStore
from extraction.tracing.trace_workers import trace_all
from extraction.varying.shape_points import MAX_POINTS
from flows import DEFAULT_DATA
from flows.artifacts import keep_build
from flows.build.causes import causes
from flows.build.data_home import DataHome, data_home
from flows.build.dataset_rows import dataset_tables, earlier_splits, results_that_hold
from flows.build.kept_repeats import repeats_built
from flows.build.pools import pool_on
from flows.build.redone import redone
from flows.build.stages import build_stage
from flows.build.subgraphs import Subgraphs, alone, cut, digest_of, repeats_of, shards_of, vary, working
from flows.build.traced import Traced, find_traces
from flows.expected_failures import one_line
from flows.plurals import counted
from flows.progress import RunStage
from flows.steps import HOURS, each, flow_run_id, say
from storage.errors import PassNetError
from storage.versions.store import Store, Version

SHARD_MODELS = 100
"""Models in a shard of tracing at most; a build that is killed loses at most the shard in progress."""
CONFIGS = 1000
"""Entries in a shard of reading configs."""
LISTED = 50
"""Models that failed which a summary names; the table `models` has them all."""


@flow(name="build-dataset", retries=1, retry_delay_seconds=10, timeout_seconds=3 * 24 * HOURS)
@one_line()
def build_dataset(
    catalog: str = "quickstart",
    limit: int | None = None,
    workers: int | None = None,
    data: str = DEFAULT_DATA,
    timeout_s: float = TIMEOUT_S,
    memory_mb: int = MEMORY_MB,
    points: int | None = None,
    eval_fusible: int = 200,
    eval_typical: int = 200,
    retry_failed: bool = False,
    runner: Literal["local", "ray"] = "local",
    processes: int = PROCESSES,
    disk_mb: int = DISK_MB,
    full: bool = False,
) -> dict:
    """Build a dataset version of a catalogue in the data directory, tracing only what is not traced there yet.

    `data` is a path, or a URL of a store that fsspec opens, of which this machine has a copy below PASSNET_DATA.

    `limit` takes the first entries only; `workers` models or shards are worked on at a time (default: one a core). Each
    has `timeout_s` seconds, `memory_mb` MiB of memory, so many `processes` at a time, and may write `disk_mb` MiB.
    Subgraphs whose sizes may change are varied at up to `points` shape points (default: as many as the catalogue says,
    else 10); `eval_fusible` and `eval_typical` bound the evaluation samples; `retry_failed` traces again what failed
    before. A catalogue that has grown, but not to the double, keeps the repeated sequences of the latest version, and
    with them the typical subgraphs of its models; `full` finds all anew, as a build from nothing does. With the
    `runner` "ray" models and shards are worked on by all nodes of the Ray cluster at RAY_ADDRESS, which see the data
    directory under one path, or have the same access to its URL.

    Returns a summary of what was built. Raises PassNetError for a bad catalogue, a directory that cannot be written,
    or a catalogue of which no model can be traced; nothing is published then, and finished shards are kept. As a
    deployment it is tried once more where it fails of anything else, and goes on with what is finished.
    """
    entries = read_catalog(catalog, limit)
    limits = {"timeout_s": timeout_s, "memory_mb": memory_mb, "processes": processes, "disk_mb": disk_mb}
    with (
        data_home(data, Path(DEFAULT_DATA) / "mirrors") as home,
        alone(home.root),  # else two builds would trace the same models, and publish the same version twice
        pool_on(runner, home.mirror, workers=workers, **limits) as pool,
    ):
        store, traces = Store(home.root), TraceStore(home.root / "traces")
        traces.make()
        if traces.is_empty:
            pool.warm_up(PREPARE)  # the workers import their libraries while the configs are read
        specs = read_specs(entries)
        missing = traces.missing(specs, CATEGORIES if retry_failed else ())
        say(f"{counted(len(entries), 'model')} in {catalog}, {len(missing)} to trace with {pool.size}")
        for line in redone(home.root / "traces", missing):
            say(line)
        trace_missing(home, traces, missing, pool)
        traced = find_traces(traces, specs)
        if not traced.files:
            first = next((f"{m['model']}: {m['error_category']}: {m['message']}" for m in traced.models), "it is empty")
            raise PassNetError(f"no model of {catalog} could be traced; {first}")

        points = points or points_of(catalog) or MAX_POINTS
        earlier, quotas = store.latest(), {"eval_fusible": eval_fusible, "eval_typical": eval_typical}
        identity = identity_of(digest_of(traced, points), traced.models, quotas)
        if (same := built_as(store, earlier, identity, full)) is not None:
            home.keep_version(earlier)
            say(f"nothing new: {earlier.name} holds what is built of these traces")
            found = {"unique": {}, "causes": [], **same.manifest.summary}  # older versions have neither
            return {**found, "version": earlier.name, "path": str(earlier.path), "created": False}

        # From here on rows go from file to file, and one process never holds more than a shard of them.
        kept = "" if full else repeats_built(earlier, repeats_of(shards_of(home.root)))
        with (
            working(home.root, digest_of(traced, points, kept)) as work,
            Engine(work.of_build / "engine") as engine,
        ):
            subgraphs = cut(traced, work, pool, engine, kept)
            variants = vary(subgraphs, points, work, pool, engine)
            if not variants.counts:
                causes = subgraphs.dropped + variants.dropped
                raise PassNetError(f"no subgraph of {catalog} is left; most often: {causes.most_common(1)[0][0]}")
            stage = build_stage("publish", 1)
            parameters = {
                "catalog": catalog,
                "limit": limit,
                "points": points,
                "identity": identity,
                "repeats": subgraphs.repeats,
                "kept_repeats": subgraphs.kept_repeats,
            }
            version, created, summary = publish_build(store, traced, subgraphs, variants, engine, quotas, parameters)
            home.keep_version(version)
        home.keep_shards()
    stage.advance(f"published {version.name}" if created else f"nothing new: {version.name} holds this dataset")
    built = {**summary, "version": version.name, "path": str(version.path), "created": created}
    keep_build(built)
    return built


def built_as(store: Store, version: Version | None, identity: str, full: bool = False) -> Version | None:
    """The version that the build of this identity made: this one, or the one that this one only adds results to or has
    brought back.

    None if another build made it, or with `full` one that kept what repeats of an earlier one.
    """
    while version is not None and version.manifest.kind in ("evaluate", "rollback") and version.manifest.parent:
        version = store.open(version.manifest.parent)
    told = version.manifest.parameters if version is not None and version.manifest.kind == "build" else {}
    return version if told.get("identity") == identity and not (full and told.get("kept_repeats")) else None


def identity_of(digest: str, models: Sequence[dict], quotas: dict[str, int]) -> str:
    """Identity of a build's result: the sha256 of the JSON text of all three, hex."""
    text = hashlib.sha256(f"[{json.dumps(digest)}, [".encode())
    for number, model in enumerate(models):  # one at a time: the whole text of a large catalogue would be half a GB
        text.update((", " if number else "").encode() + json.dumps(model).encode())
    text.update(f"], {json.dumps(quotas)}]".encode())
    return text.hexdigest()


def read_specs(entries: Sequence[Entry]) -> dict[Entry, Spec | ModelError]:
    """The specs of entries, or why they have none, shard by shard; configs that lie elsewhere are fetched."""
    shards = [entries[start : start + CONFIGS] for start in range(0, len(entries), CONFIGS)]
    stage = build_stage("configs", len(shards))
    specs: dict[Entry, Spec | ModelError] = {}
    for found in each(specified, shards, "configs-shard"):
        specs |= found
        made = [spec for spec in specs.values() if isinstance(spec, Spec)]
        stage.advance(f"{len(set(made))} specs of {len(made)} models, {len(specs) - len(made)} without a usable config")
    return specs


def shard_sizes(models: int) -> list[int]:
    """Models in each shard: few in a small catalogue, so that an interrupted build keeps most of its work."""
    size = min(SHARD_MODELS, 2 + models // 20)
    return [min(size, models - start) for start in range(0, models, size)]


def trace_missing(home: DataHome, traces: TraceStore, missing: Mapping[Entry, Spec], pool: TaskPool) -> None:
    """Trace models and keep what came of them, shard by shard.

    Workers are not started anew for a shard: all outcomes are one stream, and each step takes and keeps its share.
    """
    stage = build_stage("trace", len(missing))
    home.keep_traces()  # those that a killed build left here
    with closing(trace_all(missing, pool)) as outcomes:
        step = partial(trace_shard, traces, outcomes, stage)
        for _ in each(step, shard_sizes(len(missing)), "trace-shard"):
            home.keep_traces()


def trace_shard(traces: TraceStore, outcomes: Iterator[TraceOutcome], stage: RunStage, size: int) -> None:
    """Take the next `size` models as they are traced, and keep what came of them."""
    shard = []
    for outcome in islice(outcomes, size):
        row = outcome.row
        result = f"{row['ops']} ops" if outcome.traced else f"{row['error_category']}: {row['message']}"
        stage.advance(f"{row['model']}: {result}, {row['seconds']:.1f} s")
        shard.append(outcome)
    traces.add(shard)


def publish_build(
    store: Store,
    traced: Traced,
    subgraphs: Subgraphs,
    variants: Subgraphs,
    engine: Engine,
    quotas: Mapping[str, int],
    parameters: dict[str, Any],
) -> tuple[Version, bool, dict]:
    """Choose samples and splits, and publish a version of them: the version, whether it is new, and what was built.

    Results of the newest version whose variants are here stay.
    """
    unique = unique_counts(engine, variants.paths)
    with store.updating() as newest:  # evaluations may have published results while this build worked
        choice = choose_samples(engine, parquet(variants.paths), **earlier_splits(newest), **quotas)
        summary = summary_of_build(traced, subgraphs, variants, unique, choice)
        say(f"{sum(summary['subgraphs'].values())} unique variants in {sum(choice.samples.values())} samples")
        tables = dataset_tables(traced.models, variants.files, choice, engine)
        version, created = store.publish(
            {**tables, **results_that_hold(newest, variants.paths, engine)},
            kind="build",
            parent=newest,
            parameters=parameters,
            summary=summary,
            flow_run=flow_run_id(),
        )
    return version, created, summary


def summary_of_build(
    traced: Traced, subgraphs: Subgraphs, variants: Subgraphs, unique: dict, choice: SplitChoice
) -> dict:
    """The counts of a build, and what failed: by cause, and the first `LISTED` models."""
    failed = [m for m in traced.models if m["status"] == "failed"]
    return {
        "models": len(traced.models),
        "traced": len(traced.models) - len(failed),
        "graphs": traced.graphs,
        "subgraphs": variants.counts,
        "duplicates": subgraphs.duplicates + variants.duplicates,
        "dropped": dict(sorted((subgraphs.dropped + variants.dropped).items(), key=lambda item: (-item[1], item[0]))),
        "unique": unique,
        "samples": choice.samples,
        "failures": {m["model"]: f"{m['error_category']}: {m['message']}" for m in failed[:LISTED]},
        "causes": causes(failed),
    }


if __name__ == "__main__":
    build_dataset()

"""What a report is made of: scores of runs, their results with what the version knows of variants, and the models."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from flows.report.results import Results, load_results, variant_facts
from flows.report.score_run import score_run
from passbench.scoring.groups import UNKNOWN, VariantFacts
from storage.graph.record import Graph
from storage.records import Input, Variant
from storage.schema import CATEGORIES
from storage.versions.store import Version


@dataclass(frozen=True)
class Drawn:
    """A sample's first measured variant, to draw: its graph and the graph's inputs."""

    graph: Graph
    inputs: tuple[Input, ...]


@dataclass(frozen=True)
class Material:
    """Everything a report shows, gathered.

    `scored` is the document of `flows.report.score_run.score_run`; `rows` are rows of the results table, each with
    `label` (`labels`), `dtype`, `size`, `elements` and `ops` (the sample's op names; empty where no version holds it)
    beside its own columns; `models` are the version's rows of the models table, without their specs; `whole_models` its
    rows of model_results. `version` is None where no version at hand holds any of the variants.
    """

    scored: dict
    rows: list[dict]
    models: list[dict]
    version: Version | None
    whole_models: list[dict] = field(default_factory=list)


def gather(
    names: Sequence[str],
    data: Path,
    version: str | None = None,
    *,
    kernels_only: bool = False,
    without_capture: bool = False,
) -> Material:
    """Results and scores of runs, by id, author or path (see `results.load_results`), and their surroundings.

    Raises PassNetError as `load_results` and `score_run` do.
    """
    left_out = {"kernels_only": kernels_only, "without_capture": without_capture}
    results = load_results(names, data, version, **left_out)
    scored = score_run(names, data, version, **left_out)
    named = labels(results.rows)
    known = variant_facts(results.version, (row["variant_hash"] for row in results.rows))
    if not known:  # a file's results, of other samples than those of the version at hand
        results = replace(results, version=None)
    facts = _facts(results, known)
    rows = [row | {"label": named[row["run"]], **about} for row, about in zip(results.rows, facts, strict=True)]
    rows.sort(key=lambda r: (r["label"], r["sample"], r["variant_hash"], r["attempt"]))
    columns = ["model", "source", "status", "error_category", "message", "seconds"]
    models = results.version.table("models", columns=columns).to_pylist() if results.version else []
    whole = results.version.table("model_results").to_pylist() if results.version else []
    return Material(scored, rows, models, results.version, whole)


def labels(rows: Iterable[Mapping]) -> dict[str, str]:
    """A short name for each run: its author and model, and the start of the run's id where several share those."""
    runs = {row["run"]: " ".join(filter(None, (row["author"], row["model"]))) for row in rows}
    shared = {name for name in runs.values() if list(runs.values()).count(name) > 1}
    return {run: f"{name} ({_start(run, runs)})" if name in shared else name for run, name in runs.items()}


def drawn(version: Version | None, rows: Sequence[Mapping], samples: Iterable[str]) -> dict[str, Drawn]:
    """Graphs of samples, as far as the version holds them. Raises GraphError on a malformed graph."""
    wanted = set(samples)
    hashes = {row["variant_hash"]: row["sample"] for row in reversed(rows) if row["sample"] in wanted}
    first = {sample: hash_ for hash_, sample in hashes.items()}
    found: dict[str, Drawn] = {}
    chosen = pc.field("variant_hash").isin(pa.array(sorted(first.values()), pa.string()))
    for category in CATEGORIES if version else ():
        for batch in version.batches(category, filter=chosen):
            for row in batch.to_pylist():
                variant = Variant.from_row(row)
                found[hashes[row["variant_hash"]]] = Drawn(variant.graph, variant.inputs)
    return found


def _start(run: str, runs: Iterable[str]) -> str:
    """The shortest start of a run's id, of 8 characters or more, that no other run's id has."""
    others = [other for other in runs if other != run]
    length = next((n for n in range(8, len(run)) if not any(o.startswith(run[:n]) for o in others)), len(run))
    return run[:length]


def _facts(results: Results, known: Mapping[str, VariantFacts]) -> list[dict]:
    """Of each row: dtype, size band, elements and op names."""
    ops = {}
    if results.version:
        samples = results.version.table("samples", columns=["sample", "op_sequence"]).to_pylist()
        ops = {row["sample"]: row["op_sequence"] for row in samples}
    return [
        {
            "dtype": fact.dtype if fact else UNKNOWN,
            "size": fact.size if fact else UNKNOWN,
            "elements": fact.elements if fact else None,
            "ops": tuple(ops.get(row["sample"], ())),
        }
        for row, fact in ((row, known.get(row["variant_hash"])) for row in results.rows)
    ]

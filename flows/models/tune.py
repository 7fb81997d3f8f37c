"""Tune a model: measure what a library has for its regions, let an author write what it lacks, measure ways of running
the whole, keep the fastest.

Everything that is finished is a file in the library or beside it, so a run that was killed goes on where it stopped.
"""

import inspect
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from agent.registry import author as author_named
from agent.run.evaluation_run import evaluate_lot, lots
from agent.run.opening import alone, opened_run
from dedup.hashes import identify
from extraction.cutting.cut import cut_graph
from extraction.failures import ModelError
from extraction.tracing.capture import CaptureSizes, capture
from extraction.tracing.trace import with_kernels
from flows.models.named_model import NamedModel
from passbench.bench import Bench
from passbench.library.pass_library import LibraryEntry, PassLibrary
from passbench.models.optimize import optimize_model
from passbench.models.optimized_model import OptimizedModel, OptimizeSettings
from passbench.settings import Settings
from storage.disk import check_writable
from storage.errors import PassNetError, in_one_line
from storage.graph.record import GraphError
from storage.graph.targets import TargetError
from storage.records import Sample, TracedGraph

Say = Callable[[str], None]


def tune(
    named: NamedModel,
    library: Path,
    settings: OptimizeSettings,
    *,
    author: str | None = None,
    limit: int | None = None,
    say: Say = lambda line: None,
) -> tuple[dict[str, Any], OptimizedModel]:
    """Make a model faster and keep how; returns a document and the model's callable.

    A pass that the library has for a region, without a passport of this kind of machine and of the region's sizes,
    is measured first. `author` writes passes for fusible regions that have none then; None writes nothing. `limit`:
    regions that it writes for at most, those that stand most often in the model first. The document has what was
    chosen, every way with its time or reason, and the regions. Raises PassNetError.
    """
    begin = time.monotonic()
    device = named.device
    use = "passes" not in settings.without and PassLibrary(library).entries()
    regions = serve_regions(named, library, author, limit, device, say) if author or use else {}
    settings = OptimizeSettings(**{**vars(settings), "library": str(library)})
    with torch.no_grad():
        fast = optimize_model(named.model, named.args, named.kwargs, settings, progress=lambda way: say(f"way {way}"))
        if fast.report.why_not:
            _check_that_it_runs(named)
    return {"model": named.name, **tuned_document(fast), "regions": regions, "seconds": time.monotonic() - begin}, fast


def _check_that_it_runs(named: NamedModel) -> None:
    """Raises PassNetError where the model itself fails on its example call, which no compiler can mend."""
    try:
        named.model(*named.args, **named.kwargs)
    except Exception as error:  # a model may raise anything
        raise PassNetError(f"{named.name} fails on its example call: {in_one_line(error)}") from error


def tuned_document(fast: OptimizedModel) -> dict[str, Any]:
    """What was chosen for a model and why, as plain data."""
    report = fast.report
    base = next((trial.us for trial in report.trials if trial.recipe.name == "eager"), None)
    ways = [
        {
            "way": trial.recipe.name,
            "us": trial.us,
            "over_eager": base / trial.us if base and trial.us else None,
            "error": trial.errors.error if trial.errors else None,
            "error_eager": trial.errors.error_eager if trial.errors else None,
            "eagers_bits": trial.errors.equal if trial.errors else None,
            "served": trial.served,
            "reason": trial.reason,
        }
        for trial in report.trials
    ]
    return {
        "chosen": report.name,
        "remembered": report.remembered,
        "why_not": report.why_not,
        "notes": list(report.notes),
        "ops": report.ops,
        "covered": report.covered,
        "computed_once": list(report.taken),
        "refused": dict(report.refused),
        "ways": ways,
    }


def serve_regions(
    named: NamedModel, library: Path, author: str | None, limit: int | None, device: torch.device, say: Say
) -> dict[str, Any]:
    """Measure the library's passes for regions of a model where that was not done here, and let an author write those
    that are missing.

    A pass that has no passport here at all is measured on what it was measured on elsewhere, since it may match within
    a region. Returns counts: `regions` (different ones), `known` (measured here before), `measured` (now, variants),
    `written` (new entries), and `left` by why.
    """
    samples, places = regions_of(named)
    passes = PassLibrary(library)
    entries = {entry.name: entry for entry in passes.entries()}
    here = {name: {row["variant_hash"] for row in entry.here(device)} for name, entry in entries.items()}
    known = [s for s in samples if s.variants[0].variant_hash in here.get(s.variants[0].graph_hash, ())]
    unmeasured = [(entries[h], s) for s in samples if s not in known and (h := s.variants[0].graph_hash) in entries]
    unmeasured += [(entries[name], as_sample(entries[name])) for name, rows in here.items() if not rows]
    missing = [s for s in samples if s.variants[0].graph_hash not in entries][:limit]
    counts: dict[str, Any] = {"regions": len(samples), "known": len(known), "measured": 0, "written": 0}
    if not unmeasured and not (author and missing):
        return counts
    for part in ("passes", "runs") if author and missing else ("passes",):
        check_writable(library / part, "another --library")
    with Bench(device, Settings()) as bench:
        for entry, sample in unmeasured:
            say(f"measuring the library's pass {entry.name[:12]} here")
            counts["measured"] += len(measure_entry(passes, entry, sample, bench))
        if author and missing:
            say(f"{len(missing)} of {len(samples)} regions have no pass: {author} writes them")
            counts |= _written(author, missing, library, device, bench, say)
    return counts | {"places": sum(places.values())}


def as_sample(entry: LibraryEntry) -> Sample:
    """What an entry's pass was measured on."""
    return Sample(entry.problem["sample"], "", entry.problem["category"], "train", tuple(entry.variants.values()))


def measure_entry(library: PassLibrary, entry: LibraryEntry, sample: Sample, bench: Bench) -> list[dict[str, Any]]:
    """Run PassBench on a pass of the library, in its isolation, and keep the rows that are right as its passports."""
    files = [{"path": path, "content": text} for path, text in entry.files().files.items()]
    results = list(bench.run(sample, "pass", entry.pass_directory))
    rows = [{**result.to_row(run="library", author="library"), "pass_files": files} for result in results]
    library.add(rows, {variant.variant_hash: variant for variant in sample.variants})
    return rows


def _written(
    author: str, missing: Sequence[Sample], library: Path, device: torch.device, bench: Bench, say: Say
) -> dict[str, Any]:
    """Let an author write passes for these regions; what is right is added."""
    writer, benchmark = author_named(author, None, None), Settings()
    with alone(writer, missing, 1, device.type, benchmark, library, say=say):
        run = opened_run(writer, missing, 1, device.type, benchmark, library)
        run.begin()
        for lot in lots(run.unfinished(missing), run.lot_size, 1, len(missing)):
            evaluate_lot(run, bench, lot)
            say(f"region {lot.samples[-1][0]} of {len(missing)}")
        rows = run.rows(missing)
    variants = {variant.variant_hash: variant for sample in missing for variant in sample.variants}
    added = PassLibrary(library).add(rows, variants)
    left = Counter(row["status"] if row["compiler"] == "pass" else "left to eager" for row in rows)
    return {"written": len(added), "left": dict(left)}


def regions_of(named: NamedModel) -> tuple[list[Sample], Counter[str]]:
    """The fusible regions of a model at the sizes of its call, each a sample of one variant, most frequent first; and
    how often each stands in the model, by graph hash."""
    inputs = dict(named.kwargs) if not named.args else _by_name(named)
    captured, _ = capture(named.model, inputs, CaptureSizes.FIXED)
    found: dict[str, Any] = {}
    places: Counter[str] = Counter()
    for number, one in enumerate(captured):
        try:
            record = one.record()
        except (GraphError, TargetError):
            continue  # a graph that no record holds has no regions
        traced = with_kernels(
            TracedGraph(named.name, number, record.graph, record.inputs, None, "", record.symbols, record.symbolic)
        )
        for variant in cut_graph(traced, Counter()):
            if variant.category == "fusible":
                own = identify(variant)
                found.setdefault(own.variant_hash, own)
                places[own.graph_hash] += 1
    ordered = sorted(found.values(), key=lambda v: (-places[v.graph_hash], v.variant_hash))
    samples = [
        Sample(f"fusible-{v.variant_hash[:12]}", v.family_hash, "fusible", "train", (v,), reason=f"of {named.name}")
        for v in ordered
    ]
    return samples, places


def _by_name(named: NamedModel) -> dict[str, Any]:
    bound = inspect.signature(named.model.forward).bind(*named.args, **named.kwargs)
    if any(
        p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) and p.name in bound.arguments
        for p in inspect.signature(named.model.forward).parameters.values()
    ):
        raise ModelError("unsupported_input", f"{named.name} takes arguments without names: give them by name")
    return dict(bound.arguments)

"""Benchmark one sample, of a version or in a directory, for `passnet bench`; publishes nothing."""

from pathlib import Path

from dedup.hashes import identify
from extraction.sources.graph_directories import read_variant
from flows.evaluate.devices import resolve_device
from flows.steps import say
from passbench.bench import Bench
from passbench.contract import NAMES_FILE
from passbench.score import aggregate_score
from passbench.settings import Settings
from storage.errors import PassNetError
from storage.layout.read import GRAPH_LIST, GRAPHS, PASS_DIR, graph_directory, graph_paths, is_sample
from storage.records import Sample
from storage.versions.samples import load_samples
from storage.versions.store import Store


def bench_sample(
    sample: str,
    passes: Path | None,
    compiler: str | None,
    data: Path,
    version: str | None,
    device: str,
    protocol: str,
    flush_l2: bool = False,
) -> dict:
    """Results of one sample under a compiler, as a JSON-ready document.

    `sample` is an id, a prefix that fits only it, or a directory in PassNet's layout, whose pass_dir is the pass unless
    another is given. Raises PassNetError for an unknown sample, compiler or device, for a directory that is not in the
    layout, and for a pass directory that is missing.
    """
    if Path(sample).is_dir():
        found, name = sample_in(Path(sample)), sample
        own = Path(sample) / PASS_DIR
        passes = passes or (own if compiler in (None, "pass") and (own / NAMES_FILE).exists() else None)
    else:
        opened = Store(data).open(version)
        (found,) = load_samples(opened, names=[sample])
        name = opened.name
    compiler = compiler or ("pass" if passes else "eager")
    where = resolve_device(device)
    say(f"{found.sample}: {len(found.variants)} variants of {name}, {compiler} on {where}")
    with Bench(where, Settings(protocol=protocol, flush_l2=flush_l2)) as bench:
        results = list(bench.run(found, compiler, passes, progress=say))
    rows = [r.to_row(run="", author="", model="", attempt=1) for r in results]
    return {
        "sample": found.sample,
        "version": name,
        "compiler": compiler,
        "device": rows[0]["device"],
        "times_meaningful": all(row["times_meaningful"] for row in rows),
        "layers": rows[0]["layers"],
        "layers_missing": rows[0]["layers_missing"],
        "variants": [
            {
                "id": row["variant_hash"],
                "inputs": " ".join(f"{i.dtype}{list(i.shape)}" for i in variant.inputs if i.role == "input")[:60],
                "status": row["status"],
                "error_code": row["error_code"],
                "reason": row["reason"],
                "t_min": row["t_min"],
                "max_abs_error": row["max_abs_error"],
                "error_eager": row["error_eager"],
                "error_candidate": row["error_candidate"],
                "speedup_e2e": row["speedup_e2e"],
                "speedup_device": row["speedup_device"],
                "eager_us": next((t["eager_us"] for t in row["timings"] if t["clock"] == "e2e"), None),
                "timings": row["timings"],
                "findings": row["findings"],
            }
            for variant, row in zip(found.variants, rows, strict=True)
        ],
        "AS": {clock: aggregate_score(rows, clock) for clock in ("e2e", "device")},
    }


def sample_in(directory: Path) -> Sample:
    """The sample in a directory in PassNet's layout, its variants in the order of graph_list.txt.

    Raises LayoutError if one of its graphs cannot be read: a benchmark of the others would say something else.
    """
    if not is_sample(directory):
        raise PassNetError(f"{directory} is no sample directory: it has neither {GRAPH_LIST} nor {GRAPHS}/")
    variants = tuple(
        identify(read_variant(graph_directory(directory, path), directory, f"dir:{directory.name}/{path}"))
        for path in graph_paths(directory)
    )
    if not variants:
        raise PassNetError(f"{directory} has no graphs")
    category, family = variants[0].category, variants[0].family_hash
    return Sample(directory.resolve().name, family, category, "eval", variants, reason="eval: a directory")

"""Benchmark one sample, of a version or in a directory, for `passnet bench`; publishes nothing."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from flows.evaluate.devices import resolve_device
from flows.find_sample import find_sample
from flows.plurals import counted
from flows.steps import say
from passbench.bench import Bench
from passbench.contract import read_pass_dir
from passbench.names import CLOCKS
from passbench.score import aggregate_score
from passbench.scoring.groups import VariantFacts
from passbench.settings import Settings
from storage.errors import PassNetError
from storage.records import Sample, Variant
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
    limit: int | None = None,
    dtype: str | None = None,
) -> dict:
    """Results of one sample under a compiler, as a JSON-ready document.

    `sample` is an id, a prefix that fits only it, or a directory in PassNet's layout, whose pass_dir is the pass unless
    another is given. `dtype` takes its variants in that dtype alone, `limit` the first so many of those. `matched` says
    whether the pass fits any of them. Without a GPU there is no AS (None), since times mean nothing. Raises
    PassNetError for an unknown sample, compiler or device, for a directory that is not in the layout, for a pass
    directory that is missing or holds no pass, and where no variant is left.
    """
    found, name, own = find_sample(sample, None if Path(sample).is_dir() else Store(data).open(version))
    found = some_variants(found, dtype, limit)
    passes = passes or (own if compiler in (None, "pass") else None)
    compiler = compiler or ("pass" if passes else "eager")
    if compiler == "pass":
        if passes is None:
            raise PassNetError("--compiler pass runs a pass, and there is none: give its directory with --passes")
        read_pass_dir(passes)  # what is no pass at all has no results
    where = resolve_device(device)
    say(f"{found.sample}: {counted(len(found.variants), 'variant')} of {name}, {compiler} on {where}")
    with Bench(where, Settings(protocol=protocol, flush_l2=flush_l2)) as bench:
        results = list(bench.run(found, compiler, passes, progress=say))
    rows = [r.to_row(run="", author="", model="", attempt=1) for r in results]
    timed = all(row["times_meaningful"] for row in rows)
    return {
        "sample": found.sample,
        "version": name,
        "compiler": compiler,
        "device": rows[0]["device"],
        "matched": any(row["status"] != "no_match" for row in rows),
        "times_meaningful": timed,
        "layers": rows[0]["layers"],
        "layers_missing": rows[0]["layers_missing"],
        "variants": [variant_line(variant, row) for variant, row in zip(found.variants, rows, strict=True)],
        "AS": {clock: aggregate_score(rows, clock) if timed else None for clock in CLOCKS},
    }


def variant_line(variant: Variant, row: Mapping[str, Any]) -> dict[str, Any]:
    """What the document says of a variant, of its row of results."""
    outcome = (
        "status error_code reason t_min max_abs_error error_eager error_candidate speedup_e2e speedup_device "
        "library_ops kernels_only capture_used"
    ).split()
    return {
        "id": row["variant_hash"],
        "inputs": inputs_of(variant),
        **{column: row[column] for column in outcome},
        "eager_us": next((t["eager_us"] for t in row["timings"] if t["clock"] == "e2e"), None),
        "timings": row["timings"],
        "findings": row["findings"],
    }


def some_variants(sample: Sample, dtype: str | None, limit: int | None) -> Sample:
    """The sample with its variants of one dtype alone, the first `limit` of them. Raises PassNetError where none is
    left; it lists the dtypes that there are."""
    dtypes = [dtype_of_variant(variant) for variant in sample.variants]
    kept = tuple(v for v, have in zip(sample.variants, dtypes, strict=True) if dtype in (None, have))[:limit]
    if not kept:
        raise PassNetError(f"{sample.sample} has no variant in {dtype}: it has {', '.join(sorted(set(dtypes)))}")
    return replace(sample, variants=kept)


def dtype_of_variant(variant: Variant) -> str:
    """The dtype that stands for a variant, as `passnet score --by dtype` takes it."""
    row = variant.to_row()
    return VariantFacts.of(row["inputs"], row["outputs"]).dtype


def inputs_of(variant: Variant) -> str:
    """Dtypes and shapes of what a user passes in, without parameters and buffers."""
    return " ".join(f"{i.dtype}{list(i.shape)}" for i in variant.inputs if i.role == "input")

"""Benchmark one sample of a version, for `passnet bench`; publishes nothing."""

from pathlib import Path

from flows.device import resolve_device
from flows.engine import say
from passbench.bench import Bench
from passbench.score import aggregate_score
from passbench.settings import Settings
from storage.dataset import load_samples
from storage.errors import PassNetError
from storage.versions import Store


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
    """Results of one sample (an id, or a prefix that fits only it) under a compiler, as a JSON-ready document.

    Raises PassNetError for an unknown sample, compiler or device, and for a pass directory that is missing.
    """
    if Path(sample).is_dir():
        raise PassNetError("sample directories in PassNet's layout are not there yet; give the id of a sample")
    compiler = compiler or ("pass" if passes else "eager")
    opened = Store(data).open(version)
    (found,) = load_samples(opened, names=[sample])
    where = resolve_device(device)
    say(f"{found.sample}: {len(found.variants)} variants of {opened.name}, {compiler} on {where}")
    with Bench(where, Settings(protocol=protocol, flush_l2=flush_l2)) as bench:
        results = list(bench.run(found, compiler, passes, progress=say))
    rows = [r.to_row(run="", author="", model="", attempt=1) for r in results]
    return {
        "sample": found.sample,
        "version": opened.name,
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

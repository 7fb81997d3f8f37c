"""The samples of a version, and all that a version says of one: for `passnet samples` and `passnet show`."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, astuple
from math import exp, fsum, log
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from passbench.score import outcome_of
from storage.errors import PassNetError
from storage.versions.version import Version

if TYPE_CHECKING:  # the list of samples needs no torch, which takes seconds to import
    from storage.records import Sample

T = -5
"""The level at which results count as correct here, as in `passnet score`."""
_RESULTS = """run author model attempt variant_hash compiler status error_code reason t_min speedup_e2e speedup_device
    times_meaningful device""".split()


def list_samples(
    version: Version, op: str | None = None, category: str | None = None, split: str | None = None
) -> list[dict[str, Any]]:
    """A row for each sample of the version that fits, in the order of its table.

    `op` is a part of an op's name: "relu" fits `torch.relu` and `torch.nn.functional.relu`. Raises PassNetError where
    nothing fits; it names the ops that there are most of.
    """
    columns = ["sample", "category", "split", "variants", "op_sequence", "rarity", "reason"]
    rows = version.table("samples", columns=columns).to_pylist()
    of_kind = [r for r in rows if category in (None, r["category"]) and split in (None, r["split"])]
    found = [r for r in of_kind if op is None or any(op in name for name in r["op_sequence"])]
    if not found:
        wanted = [what for what in (category and f"category {category}", split and f"split {split}") if what]
        among = f" in {' and '.join(wanted)}" if wanted else ""
        if op is None or not of_kind:
            raise PassNetError(f"{version.name} has no samples{among}: see `passnet samples` without options")
        counts = Counter(name for row in of_kind for name in set(row["op_sequence"]))
        most = ", ".join(name for name, _ in counts.most_common(8))
        raise PassNetError(f"no sample of {version.name}{among} has an op {op!r}; the most frequent are {most}")
    return [
        {
            "sample": row["sample"],
            "category": row["category"],
            "split": row["split"],
            "variants": len(row["variants"]),
            "ops": row["op_sequence"],
            "rarity": row["rarity"],
        }
        for row in found
    ]


def describe_sample(version: Version, name: str) -> dict[str, Any]:
    """All that the version says of one sample (an id, or a prefix that fits only it), as a JSON-ready document.

    `code` is its first variant as Python source; `results` has a row for each run of an author. Raises PassNetError for
    an unknown sample.
    """
    from storage.versions.samples import load_samples

    (sample,) = load_samples(version, names=[name])
    first = sample.variants[0]
    return {
        "sample": sample.sample,
        "version": version.name,
        "category": sample.category,
        "split": sample.split,
        "reason": sample.reason,
        "family_hash": sample.family_hash,
        "direction": first.direction,
        "code": _code(version, sample),
        "inputs": [each.to_row() for each in first.inputs],
        "variants": [
            {
                "id": variant.variant_hash,
                "inputs": [f"{i.dtype}{list(i.shape)}" for i in variant.inputs],
                "kernels": variant.kernels,
                "symbols": dict(variant.symbols),
            }
            for variant in sample.variants
        ],
        "sources": [asdict(source) for source in sorted({s for v in sample.variants for s in v.sources}, key=astuple)],
        "results": results_of(version, sample.sample),
    }


def results_of(version: Version, sample: str) -> list[dict[str, Any]]:
    """How each run did on a sample, in order of authors: variants, how many are correct at t = -5, their speedups.

    Speedups are geometric means over the correct variants, null where no GPU timed them.
    """
    of_sample = pc.field("sample") == sample
    batches = version.batches("results", columns=["sample", *_RESULTS], filter=of_sample)
    runs: dict[tuple[str, str, str], list[dict]] = {}
    for row in (row for batch in batches for row in batch.to_pylist()):
        runs.setdefault((row["author"], row["model"], row["run"]), []).append(row)
    return [_run(*key, rows) for key, rows in sorted(runs.items())]


def _run(author: str, model: str, run: str, rows: Sequence[dict]) -> dict[str, Any]:
    correct = [row for row in rows if outcome_of(row).correct(T)]
    timed = [row for row in correct if row["times_meaningful"]]
    failed = Counter(_failure(row) for row in rows if row["status"] != "ok")
    return {
        "run": run,
        "author": author,
        "model": model,
        "device": rows[0]["device"],
        "variants": len(rows),
        "statuses": dict(Counter(row["status"] for row in rows).most_common()),
        "correct": len(correct),
        "t_min": max((row["t_min"] for row in correct), default=None),
        "speedup_e2e": _mean(row["speedup_e2e"] for row in timed),
        "speedup_device": _mean(row["speedup_device"] for row in timed),
        "failures": [{"what": what, "variants": count} for what, count in failed.most_common()],
    }


def _failure(row: dict) -> str:
    first = (row["reason"] or "").partition("\n")[0]
    return f"{row['status']}: {first}" if first else row["status"]


def _mean(speedups: Iterable[float | None]) -> float | None:
    known = [log(s) for s in speedups if s]
    return exp(fsum(known) / len(known)) if known else None


def _code(version: Version, sample: "Sample") -> str:
    first = pc.field("variant_hash") == sample.variants[0].variant_hash
    for batch in version.batches(sample.category, columns=["variant_hash", "code"], filter=first):
        return batch.column("code")[0].as_py()
    raise PassNetError(f"{version.name} lacks the first variant of {sample.sample}: rebuild the version")

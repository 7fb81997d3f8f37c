"""What a library holds, as documents; and passes of a version's runs put into one."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from flows.evaluate.devices import resolve_device
from flows.report.results import find_runs
from passbench.library.pass_library import PassLibrary
from storage.errors import PassNetError
from storage.records import Variant
from storage.schema import CATEGORIES
from storage.versions.store import Store

Document = dict[str, Any]


def list_library(directory: Path, device: str) -> Document:
    """A line for each entry: hash, operators, speedups here, and why it may not serve on this device.

    Raises PassNetError where there is no such directory.
    """
    where = torch.device(resolve_device(device))
    if not directory.is_dir():
        raise PassNetError(f"{directory}: there is no such library; `passnet tune` makes one")
    lines = [
        {
            "hash": entry.name,
            "ops": entry.graph.op_sequence,
            "variants": len(entry.problem["variants"]),
            "speedup_e2e": entry.speedup(where),
            "speedup_device": entry.speedup(where, "device"),
            "why_not": entry.why_not(where),
        }
        for entry in PassLibrary(directory).entries()
    ]
    return {"library": str(directory), "entries": lines}


def show_entry(directory: Path, name: str, device: str) -> Document:
    """One entry: its problem, the source of its pass, its passports. Raises PassNetError where there is none."""
    entry = PassLibrary(directory).entry(name)
    return {
        "hash": entry.name,
        "code": entry.problem["code"],
        "files": entry.files().files,
        "why_not": entry.why_not(torch.device(resolve_device(device))),
        "passports": entry.passports,
    }


def add_runs(directory: Path, data: Path, version: str | None, runs: Sequence[str], *, replace: bool) -> Document:
    """Add the passes of a version's runs to a library. Raises PassNetError for runs that are not there."""
    opened = Store(data).open(version)
    wanted = {run for name in runs for run in find_runs(opened, name)}
    rows = [row for row in opened.table("results").to_pylist() if row["run"] in wanted]
    hashes = {row["variant_hash"] for row in rows}
    variants = {
        row["variant_hash"]: Variant.from_row(row)
        for category in CATEGORIES
        for batch in opened.batches(category)
        for row in batch.to_pylist()
        if row["variant_hash"] in hashes
    }
    added = PassLibrary(directory).add(rows, variants, replace=replace)
    return {"library": str(directory), "added": len(added), "rows": len(rows), "hashes": added}

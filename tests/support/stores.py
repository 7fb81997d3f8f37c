"""Small versions to test with, and what can be done to them."""

import math
import os
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from storage.schema import CONFIGS, SUBGRAPHS
from storage.versions.store import Store, Version

if TYPE_CHECKING:  # records import torch, which processes that only publish need not wait for
    from storage.records import Sample, Variant

ROOT = Path(__file__).parents[2]
NOTHING = {"parameters": {}, "summary": {}}


def subgraphs(*names: str) -> pa.Table:
    rows = [{"variant_hash": name, "inputs": [{"name": "in_0", "shape": [1, 2]}], "kernels": 1} for name in names]
    return pa.Table.from_pylist(rows, SUBGRAPHS)


def build(store: Store, *names: str, parent: Version | None = None) -> Version:
    tables = {("fusible", "train"): subgraphs(*names), ("fusible", "eval"): subgraphs()}
    return store.publish(tables, kind="build", parent=parent, **NOTHING)[0]


def publish_samples(samples: "Sequence[Sample]", data: Path) -> Version:
    """A version of these samples alone, in their splits, in a new data directory."""
    tables: dict[tuple[str, str], list[dict]] = {}
    for sample in samples:
        rows = [variant.with_changes(family_hash=sample.family_hash).to_row() for variant in sample.variants]
        tables.setdefault((sample.category, sample.split), []).extend(rows)
        tables.setdefault(("samples", sample.split), []).append(sample.to_row())
    whole = {key: pa.Table.from_pylist(rows, CONFIGS[key[0]]) for key, rows in tables.items()}
    return Store(data).publish(whole, kind="build", parent=None, **NOTHING)[0]


def few(version: Version, data: Path, samples: int, variants: int) -> Version:
    """A version in a new data directory: the smallest fusible samples of another, with their smallest variants alone.
    All of them are for evaluation here, whatever split they were in.

    Kernels are interpreted here, slowly: a gradient of a batch norm with 180,000 elements took 50 seconds.
    """

    from storage.versions.samples import load_samples

    def size(variant: "Variant") -> int:
        return sum(math.prod(each.shape) for each in variant.inputs)

    found = [sample for split in ("eval", "train") for sample in load_samples(version, split, ["fusible"])]
    small = [
        replace(sample, split="eval", variants=tuple(sorted(sample.variants, key=size)[:variants])) for sample in found
    ]
    small.sort(key=lambda sample: sum(size(variant) for variant in sample.variants))
    return publish_samples(small[:samples], data)


def names(version: Version, split: str | None = "train") -> list[str]:
    return version.table("fusible", split).column("variant_hash").to_pylist()


def shard(version: Version, config: str = "fusible", split: str = "train") -> Path:
    (path,) = (version.path / "data" / config).glob(f"{split}-*.parquet")
    return path


def on_disk(store: Store) -> list[str]:
    """What a user of the data directory sees, and what publishers left behind."""
    versions = store.root / "versions"
    return sorted(path.name for path in [*versions.glob("*"), *versions.glob(".staging/*")] if path.name[0] != ".")


def damage(path: Path, how: str) -> None:
    path.chmod(0o644)
    data = bytearray(path.read_bytes())
    if how == "missing":
        path.unlink()
    elif how == "truncated":
        path.write_bytes(data[: len(data) // 2])
    else:
        data[200:300] = bytes(byte ^ 0xFF for byte in data[200:300])
        path.write_bytes(data)


def python(code: str, *arguments: object, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    return subprocess.run(
        command, cwd=ROOT, env={**os.environ, **(env or {})}, capture_output=True, text=True, timeout=120
    )

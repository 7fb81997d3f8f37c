"""Results to score: of a version's runs, or of Parquet files; and what a version says of their variants."""

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from passbench.result import STATUSES
from passbench.score import CODES
from passbench.scoring.groups import VariantFacts
from storage.disk import check_regular
from storage.errors import PassNetError
from storage.schema import ADDED, CATEGORIES, RESULTS
from storage.versions.store import Store, Version

COLUMNS = (
    "run sample category variant_hash author model attempt status error_code reason t_min speedup_e2e speedup_device "
    "times_meaningful device protocol kernels_only capture_used"
).split()
"""Columns that scoring reads; the passes themselves, most of the table's bytes, are not among them."""
CONDITIONS = ("libraries", "timings", "device_method", "device_note", "numerics")
"""Columns for `passbench.conditions`, and why there is no device time; files of earlier versions may lack them."""

_NAMES = ("run", "sample", "category", "variant_hash", "author")
_KEY = ("run", "sample", "variant_hash", "attempt")


@dataclass(frozen=True)
class Results:
    """Rows of the results table with `COLUMNS`, where they come from, and the version to look their variants up in.

    `left_out` says, in a sentence for each filter that was asked for, how many rows it has left out.
    """

    rows: list[dict]
    source: str
    version: Version | None
    left_out: tuple[str, ...] = ()


def find_runs(version: Version, run: str) -> list[str]:
    """Runs of a version: all for "latest"; else the run of that id, an author's runs, or those whose id starts so.

    Raises PassNetError that lists the runs if there is none.
    """
    pairs = version.table("results", columns=["run", "author"]).group_by(["run", "author"]).aggregate([]).to_pylist()
    runs = sorted({pair["run"] for pair in pairs})
    by_author = sorted({pair["run"] for pair in pairs if pair["author"] == run})
    if run == "latest":
        found = runs
    elif run in runs:
        found = [run]
    else:
        found = by_author or [r for r in runs if r.startswith(run)]
    if not found:
        have = ", ".join(runs) or "none; run `passnet evaluate`"
        raise PassNetError(f"{version.name} has no run {run!r}: it has {have}")
    return found


def load_results(
    names: Sequence[str],
    data: Path,
    version: str | None = None,
    *,
    kernels_only: bool = False,
    without_capture: bool = False,
) -> Results:
    """Results of runs by id (see `find_runs`) in a version of `data`, or by path.

    With `kernels_only`, variants are left out in which operators of the library ran inside replacements, or a
    replacement asked for a CUDA graph; those that nobody looked into, failures and baselines among them, stay. With
    `without_capture`, the latter alone are left out.

    A path is that of a Parquet file with the results table's columns, of a directory of such, or of a version. Variants
    of files are looked up in the version of `data`, if there is one.
    Raises PassNetError for runs that are not there, files that cannot be read or hold something else, and rows that
    appear twice.
    """
    paths = [name for name in names if _is_path(name)]
    if paths and len(paths) < len(names):
        raise PassNetError("give ids of runs or paths of results, not both at once")
    if paths:
        files = list(dict.fromkeys(file for path in paths for file in _files(Path(path))))
        rows = [row for file in files for row in _read(file)]
        own = [Path(path) for path in paths if _is_version(Path(path))]
        opened = Version.open(own[0]) if own else _version_beside(data, version)
        source = ", ".join(paths)
    else:
        opened = Store(data).open(version)
        runs = {run for name in names for run in find_runs(opened, name)}
        rows = [
            row for row in opened.table("results", columns=[*COLUMNS, *CONDITIONS]).to_pylist() if row["run"] in runs
        ]
        source = opened.name
    _check_once(rows)
    left_out = []
    if kernels_only:
        why = "the pass called operators of the library or used a CUDA graph"
        rows = _without(rows, lambda row: row["kernels_only"] is False, why, left_out)
    if without_capture:
        rows = _without(rows, lambda row: row["capture_used"], "the pass used a CUDA graph", left_out)
    return Results(rows, source, opened, tuple(left_out))


def _without(rows: Sequence[dict], unwanted: Callable[[dict], bool], why: str, said: list[str]) -> list[dict]:
    """The other rows. A sentence on how many are left out goes into `said`."""
    kept = [row for row in rows if not unwanted(row)]
    said.append(f"{len(rows) - len(kept)} of {len(rows)} rows are left out, as asked for: {why}")
    return kept


def variant_facts(version: Version | None, hashes: Iterable[str]) -> dict[str, VariantFacts]:
    """Dtype and size of those of the variants that the version holds, by variant hash."""
    wanted = pc.field("variant_hash").isin(pa.array(sorted(set(hashes)), pa.string()))
    columns = ["variant_hash", "inputs", "outputs"]
    return {
        row["variant_hash"]: VariantFacts.of(row["inputs"], row["outputs"])
        for category in (CATEGORIES if version else ())
        for batch in version.batches(category, columns=columns, filter=wanted)
        for row in batch.to_pylist()
    }


def _is_path(name: str) -> bool:
    return os.sep in name or name.endswith(".parquet") or Path(name).exists()


def _is_version(path: Path) -> bool:
    return (path / "manifest.json").exists()


def _version_beside(data: Path, version: str | None) -> Version | None:
    """The version to look variants up in. A file is scored without one too, unless a version was asked for."""
    try:
        return Store(data).open(version)
    except PassNetError:
        if version is None:
            return None
        raise


def _files(path: Path) -> list[Path]:
    if not path.exists():
        raise PassNetError(f"{path} does not exist: give a results Parquet file, a directory of them, or a run's id")
    if not path.is_dir():
        return [path]
    inside = path / "data" / "results" if _is_version(path) else path
    found = sorted(inside.glob("*.parquet"))
    if not found:
        raise PassNetError(f"{path} holds no results: there is no Parquet file in {inside}")
    return found


def _read(path: Path) -> list[dict]:
    try:
        check_regular(path)
        schema = pq.read_schema(path)
        names = schema.names
        if missing := [column for column in COLUMNS if column not in names and column not in ADDED]:
            raise PassNetError(f"{path} is not a results table: it has no column {missing[0]!r}")
        there = [column for column in COLUMNS if column in names]
        table = pq.read_table(path, columns=there).cast(pa.schema([RESULTS.field(column) for column in there]))
        beside = _conditions(path, [schema.field(column) for column in CONDITIONS if column in names])
    except (OSError, pa.ArrowException) as error:
        raise PassNetError(f"cannot read results from {path} ({str(error).splitlines()[0][:160]})") from error
    absent = dict.fromkeys(column for column in (*COLUMNS, *CONDITIONS) if column not in names)
    rows = [row | more | absent for row, more in zip(table.to_pylist(), beside, strict=True)]
    for row in rows:
        if column := _impossible(row):
            raise PassNetError(
                f"{path} is not a results table: variant {row['variant_hash']} has {column} {row[column]!r}"
            )
    return rows


def _conditions(path: Path, fields: Sequence[pa.Field]) -> list[dict]:
    """Rows of these columns of a file. A map is pairs, also where the file is a version's, which keeps it as a list."""
    maps = []
    for field in fields:
        found, expected = field.type, RESULTS.field(field.name).type
        if pa.types.is_map(expected) and pa.types.is_list(found) and pa.types.is_struct(found.value_type):
            maps.append(field.name)
        elif found.id != expected.id:
            raise PassNetError(
                f"{path} is not a results table of this PassNet: its column {field.name!r} holds {found}"
            )
    rows = pq.read_table(path, columns=[field.name for field in fields]).to_pylist()
    for row, name in product(rows, maps):
        row[name] = [(pair["key"], pair["value"]) for pair in row[name] or ()]
    return rows


def _impossible(row: Mapping[str, Any]) -> str | None:
    """The column that holds what PassBench never writes, if one does."""
    if unnamed := [column for column in _NAMES if row[column] is None]:
        return unnamed[0]
    if row["status"] not in STATUSES:
        return "status"
    if row["error_code"] not in (None, *CODES):
        return "error_code"
    speedups = ("speedup_e2e", "speedup_device")
    return next((c for c in speedups if row[c] is not None and not 0 < row[c] < math.inf), None)


def _check_once(rows: Sequence[dict]) -> None:
    seen = set()
    for row in rows:
        key = tuple(row[column] for column in _KEY)
        if key in seen:
            variant = f"variant {row['variant_hash'][:12]} of {row['sample']}, attempt {row['attempt']}"
            raise PassNetError(f"run {row['run']!r} has {variant} twice: score the files one at a time")
        seen.add(key)

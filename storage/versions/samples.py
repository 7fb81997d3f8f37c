"""Samples of a version, put together from its tables."""

import re
from collections.abc import Sequence

import pyarrow.compute as pc

from storage.errors import PassNetError
from storage.graph.as_json import from_json
from storage.graph.record import Graph
from storage.records import Sample, Variant
from storage.schema import CATEGORIES, SPLITS
from storage.versions.sample_names import row_named
from storage.versions.store import Version


def load_samples(
    version: Version,
    split: str | None = None,
    categories: Sequence[str] = CATEGORIES,
    names: Sequence[str] | None = None,
    limit: int | None = None,
) -> list[Sample]:
    """Samples with their variants, in the order of the table, categories taking turns so that a limit cuts fairly.

    `names` are whole sample ids, or prefixes that fit one sample each. Raises PassNetError for a name that fits no
    sample, several, or one of another split or category; for a sample whose variants the version lacks; and for a row
    that PassNet never writes: ids and hashes become names of files, and a version may come from anybody.
    """
    rows = [r for r in version.table("samples", split).to_pylist() if r["category"] in categories]
    for row in rows:
        _check(row, version)
    if names is not None:
        rows = [_row(name, rows, version) for name in names]
    rows = _interleaved(rows)[:limit]
    wanted = [hash_ for row in rows for hash_ in row["variants"]]
    graphs: dict[str, Graph] = {}  # a text is read once: ten variants share a graph
    variants: dict[tuple[str, str], Variant] = {}
    for category in {row["category"] for row in rows}:
        for batch in version.batches(category, filter=pc.field("variant_hash").isin(wanted)):
            for row in batch.to_pylist():
                variants[category, row["variant_hash"]] = _variant(row, graphs, version)
    return [_sample(row, variants, version) for row in rows]


def _variant(row: dict, graphs: dict[str, Graph], version: Version) -> Variant:
    """The variant of a row, with a graph of those that were read before."""
    text = row["graph"]
    try:
        graph = graphs.get(text) or graphs.setdefault(text, from_json(text))
        return Variant.from_row(row, graph)
    except TypeError as error:  # nothing where there is a graph, or inputs
        message = f"{version.path}: variant {row['variant_hash']} is none that PassNet has written ({error})"
        raise PassNetError(message) from error


def _row(name: str, rows: Sequence[dict], version: Version) -> dict:
    """The one of these rows that a name means. Of one of another split or category the error says where it is."""
    if any(row["sample"].startswith(name) for row in rows):
        return row_named(name, rows, version.name)
    row = row_named(name, version.table("samples").to_pylist(), version.name)
    _check(row, version)
    where = f"{row['sample']} of {version.name} is in split {row['split']}, category {row['category']}"
    raise PassNetError(f"{where}: ask for these, by --split and --category")


_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,199}")
_HASH = re.compile(r"[A-Za-z0-9_\-]{1,128}")


def _check(row: dict, version: Version) -> None:
    hashes = row["variants"]
    named = isinstance(row["sample"], str) and _ID.fullmatch(row["sample"])
    if not named or not isinstance(row["family_hash"], str) or row["split"] not in SPLITS:
        raise PassNetError(f"{version.path}: {ascii(row['sample'])[:80]} is no sample that PassNet has written")
    if not hashes or not all(isinstance(each, str) and _HASH.fullmatch(each) for each in hashes):
        raise PassNetError(f"{version.path}: {row['sample']} has variants without hashes, or none")


def _sample(row: dict, variants: dict[tuple[str, str], Variant], version: Version) -> Sample:
    keys = [(row["category"], hash_) for hash_ in row["variants"]]
    if missing := [key for key in keys if key not in variants]:
        raise PassNetError(f"{version.name} lacks variant {missing[0][1][:12]} of {row['sample']}: rebuild the version")
    plain = {k: row[k] for k in ("sample", "family_hash", "category", "split", "rarity", "reason")}
    return Sample(variants=tuple(variants[key] for key in keys), **plain)


def _interleaved(rows: list[dict]) -> list[dict]:
    turn: dict[str, int] = {}
    keyed = []
    for row in rows:
        turn[row["category"]] = turn.get(row["category"], -1) + 1
        keyed.append((turn[row["category"]], row))
    return [row for _, row in sorted(keyed, key=lambda pair: pair[0])]

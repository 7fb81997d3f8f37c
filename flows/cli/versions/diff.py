"""What changed between two versions: rows by their keys, and scores side by side."""

from collections import Counter
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

from storage.schema import CATEGORIES, CONFIGS
from storage.versions.version import Version

KEYS = {
    "models": ["model"],
    **{category: ["variant_hash"] for category in CATEGORIES},
    "samples": ["sample", "split"],
    "results": ["run", "sample", "variant_hash", "attempt"],
    "trajectories": ["run", "sample", "attempt"],
    "model_results": ["run", "model", "batch", "dtype"],
}
"""What identifies a row of each config."""

_DIGEST = 8  # bytes a column


def diff_versions(old: Version, new: Version) -> dict:
    """Counts of rows added, removed and changed by config, and each run's aggregate scores in both versions.

    A changed row has the same key and other values; `columns` counts rows by what changed in them. Shards that both
    versions have are not read. Of the others one digest for each row is held in memory. `times_meaningful` of a run is
    false where no GPU was timed.
    Raises PassNetError for a corrupt shard.
    """
    scores: dict[str, dict] = {}
    for name, version in (("old", old), ("new", new)):
        for row in version.table("scores", columns=["run", "clock", "aggregate", "times_meaningful"]).to_pylist():
            line = scores.setdefault(
                f"{row['run']} ({row['clock']})",
                {"old": None, "new": None, "times_meaningful": row["times_meaningful"]},
            )
            line[name] = row["aggregate"]
    configs = {config: _diff_config(old, new, config) for config in KEYS}
    return {"old": old.name, "new": new.name, "configs": configs, "scores": scores}


def _diff_config(old: Version, new: Version, config: str) -> dict:
    shared = _digests(old, config) & _digests(new, config)
    before = dict(_rows(old, config, shared))
    columns = [column for column in CONFIGS[config].names if column not in KEYS[config]]
    added = changed = 0
    what: Counter[str] = Counter()
    for key, values in _rows(new, config, shared):
        was = before.pop(key, None)
        if was is None:
            added += 1
        elif was != values:
            changed += 1
            starts = range(0, len(values), _DIGEST)
            what.update(
                c for c, i in zip(columns, starts, strict=True) if was[i : i + _DIGEST] != values[i : i + _DIGEST]
            )
    return {
        "added": added,
        "removed": len(before),
        "changed": changed,
        "columns": dict(what.most_common()),
        "rows": new.manifest.rows(config),
    }


def _digests(version: Version, config: str) -> set[str]:
    return {shard.sha256 for shard in version.manifest.shards if shard.config == config}


def _rows(version: Version, config: str, without: set[str]) -> Iterator[tuple[tuple, bytes]]:
    """Key and digests of the other columns of every row, but for those in shards of these SHA-256s."""
    key = KEYS[config]
    for shard in version.manifest.shards:
        if shard.config == config and shard.sha256 not in without:
            for batch in version.shard_batches(shard):
                for row in batch.to_pylist():
                    yield tuple(row.pop(column) for column in key), b"".join(map(_digest, row.values()))


def _digest(value: Any) -> bytes:
    return blake2b(repr(value).encode(errors="surrogatepass"), digest_size=_DIGEST).digest()

"""What changed between two versions: rows by their keys, and scores side by side."""

from storage.schema import CATEGORIES
from storage.versions import Version

KEYS = {
    "models": ["model"],
    **{category: ["variant_hash"] for category in CATEGORIES},
    "samples": ["sample", "split"],
    "results": ["run", "sample", "variant_hash", "attempt"],
    "trajectories": ["run", "sample", "attempt"],
}
"""What identifies a row of each config."""


def diff_versions(old: Version, new: Version) -> dict:
    """Counts of rows added and removed by config, and each author's aggregate e2e score in both versions."""
    configs = {}
    for config, key in KEYS.items():
        before, after = _keys(old, config, key), _keys(new, config, key)
        configs[config] = {"added": len(after - before), "removed": len(before - after), "rows": len(after)}
    scores = {}
    for name, version in (("old", old), ("new", new)):
        for row in version.table("scores", columns=["run", "clock", "aggregate"]).to_pylist():
            if row["clock"] == "e2e":
                scores.setdefault(row["run"], {"old": None, "new": None})[name] = row["aggregate"]
    return {"old": old.name, "new": new.name, "configs": configs, "scores": scores}


def _keys(version: Version, config: str, columns: list[str]) -> set[tuple]:
    return {tuple(row.values()) for batch in version.batches(config, columns=columns) for row in batch.to_pylist()}

"""The versions of a store in rows."""

from storage.errors import PassNetError
from storage.versions.store import Store


def list_versions(store: Store, verify: bool = False) -> list[dict]:
    """A row a version, oldest first: its lineage, row counts by config, and what is wrong with it.

    `problem` is empty, or says what is wrong: an unreadable manifest; with `verify` also a shard that is missing or
    whose SHA-256 differs. A version with a problem is listed, not raised.
    """
    rows = []
    for name in store.names():
        row = dict.fromkeys(("parent", "kind", "created", "path")) | {"version": name, "rows": {}, "problem": ""}
        rows.append(row)
        try:
            version = store.open(name)
            m = version.manifest
            counts: dict[str, int] = {}
            for shard in m.shards:
                counts[shard.config] = counts.get(shard.config, 0) + shard.rows
            row |= {"parent": m.parent, "kind": m.kind, "created": m.created, "path": str(version.path), "rows": counts}
            if verify:
                version.verify()
        except PassNetError as error:
            row["problem"] = str(error)
    return rows

"""Garbage collection of a store: what no version lists, what dead publishers left, and versions beyond a number."""

from dataclasses import dataclass
from pathlib import Path

from storage.errors import PassNetError
from storage.versions.manifest import SHARD_PATH
from storage.versions.staging import explained, locked, staging
from storage.versions.store import Store
from storage.versions.version import Version


@dataclass(frozen=True)
class Collected:
    """What was, or would be, removed: versions by name, files that no manifest lists, and the bytes that frees.

    `bytes` counts files whose last link is removed: a shard that another version shares frees nothing.
    """

    versions: tuple[str, ...]
    files: tuple[str, ...]
    bytes: int


def collect(store: Store, keep: int | None = None, dry_run: bool = False) -> Collected:
    """Remove shards that their version's manifest does not list, and all but the newest `keep` versions.

    Publishers and readers may go on meanwhile: a version disappears by one rename, and the newest is never removed. A
    reader of a removed version meets a missing shard. A collection that is killed is completed by the next one, or by
    the next publisher.
    Raises PassNetError for `keep` below 1, for a version whose manifest cannot be read, and from the disk.
    """
    if keep is not None and keep < 1:
        raise PassNetError(f"cannot keep {keep} versions: the newest one stays")
    root = store.root / "versions"
    names = store.names()
    if not names:
        return Collected((), (), 0)
    try:
        if dry_run:
            return _found(store, names, keep)
        with locked(root, ".updating"), staging(root) as place, locked(root):
            found = _found(store, store.names(), keep)
            for file in found.files:
                (root / file).unlink()
            for name in found.versions:
                (root / name).rename(place / name)  # removed with the staging directory
        return found
    except OSError as error:
        raise explained(error, root, 0) from error


def _found(store: Store, names: list[str], keep: int | None) -> Collected:
    root = store.root / "versions"
    dropped = names[: len(names) - keep] if keep is not None and len(names) > keep else []
    stray = [path for name in names if name not in dropped for path in _stray(store.open(name))]
    whole = [path for name in dropped for path in (root / name).rglob("*") if path.is_file()]
    links: dict[int, list[int]] = {}  # inode → links that go, links that there are, bytes
    for path in [*stray, *whole]:
        about = path.lstat()
        links.setdefault(about.st_ino, [0, about.st_nlink, about.st_size])[0] += 1
    freed = sum(size for going, there, size in links.values() if going == there)
    return Collected(tuple(dropped), tuple(str(path.relative_to(root)) for path in stray), freed)


def _stray(version: Version) -> list[Path]:
    """Shards in a version's directory that its manifest does not list; other files are the user's own business, and so
    is what a link there leads to."""
    listed = {shard.path for shard in version.manifest.shards}
    found = sorted(version.path.glob("data/*/*.parquet"))
    inside = [p for p in found if p.resolve().is_relative_to(version.path.resolve())]
    return [p for p in inside if (own := str(p.relative_to(version.path))) not in listed and SHARD_PATH.fullmatch(own)]

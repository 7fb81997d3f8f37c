"""Versions in a store behind an fsspec URL (S3, GCS, another disk): copied there and back, laid out as here.

URL/versions/v1/claim           the digest of whoever began to copy v1: made once, so that two never mix their files
URL/versions/v1/data/…          shards, README.md
URL/versions/v1/manifest.json   written last: without it there is no version

Such stores rename nothing and have no locks, so nothing is published there: versions are made in a data directory.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from storage.disk import flush, flush_tree
from storage.errors import PassNetError
from storage.mirror import make_directory, opened, put, told
from storage.versions.manifest import NAME, Manifest, Shard, parse
from storage.versions.staging import locked, make_read_only, staging
from storage.versions.store import Store
from storage.versions.version import Version

T = TypeVar("T")

_TEXTS = ("README.md", "manifest.json")
"""Files of a version beside its shards, the one that makes it visible last."""


@dataclass(frozen=True)
class Copied:
    """What a copy did; `copied` and `there` count files that were sent and files that were there already."""

    version: str
    url: str
    copied: int
    there: int


class Remote:
    """The versions below a URL."""

    def __init__(self, url: str) -> None:
        """Raises PassNetError for a URL that fsspec cannot open here."""
        self.url = url.rstrip("/")
        self.fs, root = opened(self.url)
        self._versions = f"{root}/versions"

    def names(self) -> list[str]:
        """Names of the versions that are complete, oldest first."""
        return self._do(self._names)

    def manifest(self, name: str) -> Manifest:
        """The manifest of a version. Raises PassNetError if there is none, or it is malformed."""
        names = self.names()
        if name not in names:
            raise PassNetError(f"{self.url} has no version {name!r}: it has {', '.join(names) or 'none'}")
        data = self._do(lambda: self.fs.cat_file(self._at(name, "manifest.json")))
        try:
            return parse(data.decode(), Path(self._at(name, "manifest.json")))
        except UnicodeDecodeError as error:
            raise PassNetError(f"{self.url}: the manifest of {name} is no text ({error})") from error

    def upload(self, version: Version) -> Copied:
        """Copy a version there; one that is there already is left alone, an interrupted copy is completed.

        Raises PassNetError for a damaged version, where that name is taken by another version, and from the store.
        """
        version.verify()
        name, digest = version.name, version.manifest.digest
        if name in self.names():
            if self.manifest(name).digest != digest:
                raise PassNetError(f"{self.url} has another {name}: upload to a URL of its own")
            return Copied(name, self.url, 0, len(version.manifest.shards) + len(_TEXTS))
        self._do(lambda: self._claim(name, digest))
        copied = 0
        for path in [*(shard.path for shard in version.manifest.shards), *_TEXTS]:
            copied += self._do(lambda path=path: self._put(version.path / path, self._at(name, path)))
        return Copied(name, self.url, copied, len(version.manifest.shards) + len(_TEXTS) - copied)

    def download(self, store: Store, name: str | None = None) -> tuple[Version, Copied]:
        """Copy a version (the newest by default) into a data directory under its own name, verified; whole or not.

        Raises PassNetError where the directory has another version of that name, and for damaged files.
        """
        names = self.names()
        if name is None and not names:
            raise PassNetError(f"{self.url} has no versions; `passnet upload` puts one there")
        manifest = self.manifest(name or names[-1])
        files = len(manifest.shards) + len(_TEXTS)
        root = store.root / "versions"
        with staging(root) as place:
            if manifest.name not in store.names():
                for path in [*(shard.path for shard in manifest.shards), *_TEXTS]:
                    self._do(lambda path=path: self._get(self._at(manifest.name, path), place / path))
                found = Version.open(place)
                if found.manifest != manifest:
                    raise PassNetError(f"{self.url} changed while {manifest.name} was read: run it again")
                found.verify()
                _seal(place, manifest.shards)
            with locked(root):
                if manifest.name not in store.names():
                    place.rename(root / manifest.name)
                    flush(root)
                    return store.open(manifest.name), Copied(manifest.name, self.url, files, 0)
        here = store.open(manifest.name)
        if here.manifest.digest != manifest.digest:
            raise PassNetError(f"{store.root} has another {manifest.name} than {self.url}: choose another --data")
        return here, Copied(manifest.name, self.url, 0, files)

    def _at(self, name: str, path: str) -> str:
        return f"{self._versions}/{name}/{path}"

    def _names(self) -> list[str]:
        self.fs.invalidate_cache()
        if not self.fs.exists(self._versions):
            return []
        found = [entry.rstrip("/").rpartition("/")[2] for entry in self.fs.ls(self._versions, detail=False)]
        whole = [n for n in found if NAME.fullmatch(n) and self.fs.exists(self._at(n, "manifest.json"))]
        return sorted(whole, key=lambda n: int(n[1:]))

    def _claim(self, name: str, digest: str) -> None:
        claim = self._at(name, "claim")
        make_directory(self.fs, self._at(name, "data"))
        try:
            self.fs.pipe_file(claim, digest.encode(), mode="create")
        except FileExistsError:
            if self.fs.cat_file(claim).decode(errors="replace") != digest:
                raise PassNetError(
                    f"another {name} is being copied to {self.url}: use a URL of its own, "
                    f"or delete {claim} if that copy was given up"
                ) from None

    def _put(self, source: Path, target: str) -> bool:
        """Copy a file there unless one of its size is; whether it was copied."""
        if self.fs.exists(target) and self.fs.size(target) == source.stat().st_size:
            return False
        put(self.fs, source, target)
        return True

    def _get(self, source: str, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        self.fs.get_file(source, str(target))

    def _do(self, step: Callable[[], T]) -> T:
        return told(self.url, step)


def _seal(place: Path, shards: tuple[Shard, ...]) -> None:
    for shard in shards:
        make_read_only(place / shard.path)
    flush_tree(place)

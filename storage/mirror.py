"""A directory and its copy behind an fsspec URL (S3, GCS, another disk), file by file, under the same names.

Files of a name do not change while a `Mirror` is in use. A file appears complete or not at all, here and there.
"""

import contextlib
import secrets
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from storage.disk import appearing
from storage.errors import PassNetError, installed_by

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

T = TypeVar("T")

_BUCKETS = frozenset("s3 s3a gs gcs abfs abfss az adl oci oss".split())
"""Protocols of stores that have no directories: to make one would make a bucket of whatever name was mistyped."""


def is_url(place: str) -> bool:
    """Whether a place is a URL, not a path."""
    return "://" in place


def opened(url: str) -> "tuple[AbstractFileSystem, str]":
    """The file system of a URL, and the path there. Raises PassNetError for one that fsspec cannot open here."""
    from fsspec.core import url_to_fs

    try:
        fs, root = url_to_fs(url.rstrip("/"))
    except ImportError as error:
        raise PassNetError(f"cannot open {url}: {error} (for S3: {installed_by('s3')})") from error
    except ValueError as error:
        raise PassNetError(f"cannot open {url}: {error}; a URL of S3 is s3://BUCKET/PATH") from error
    return fs, root.rstrip("/")


def make_directory(fs: "AbstractFileSystem", path: str) -> None:
    """Make a directory where the store has such."""
    if _has_directories(fs):
        fs.makedirs(path, exist_ok=True)


def _has_directories(fs: "AbstractFileSystem") -> bool:
    protocols = {fs.protocol} if isinstance(fs.protocol, str) else set(fs.protocol)
    return not protocols & _BUCKETS


_PARTIAL = ".partial"
"""How the name of a file ends that is not there whole yet."""


def put(fs: "AbstractFileSystem", source: Path, target: str) -> None:
    """Copy a file there, with the directories above it. It appears complete, or not at all: stores of objects see to
    that themselves, and elsewhere it gets its name at the end."""
    if _has_directories(fs):
        make_directory(fs, target.rpartition("/")[0])
        partial = f"{target}.{secrets.token_hex(4)}{_PARTIAL}"  # another process may be copying the same file
        try:
            fs.put_file(str(source), partial)
            fs.mv(partial, target)
        except BaseException:
            with contextlib.suppress(OSError):  # as where there is no such file, or no store any more
                fs.rm_file(partial)
            raise
    else:
        fs.put_file(str(source), target)


_OF_CLIENTS = {
    "botocore.exceptions": "BotoCoreError",
    "google.auth.exceptions": "GoogleAuthError",
    "azure.core.exceptions": "AzureError",
}
"""What the stores' clients raise that is no OSError, as where there are no credentials: module → base class."""


def told(url: str, step: Callable[[], T]) -> T:
    """What a step on a store returns. Raises PassNetError for what fsspec's file systems raise."""
    try:
        return step()
    except PassNetError:
        raise
    except (OSError, ValueError, *_client_errors()) as error:
        raise PassNetError(f"{url}: {type(error).__name__}: {error}: check it and run it again") from error


def _client_errors() -> list[type[Exception]]:
    """Those of the clients that are in use."""
    return [getattr(sys.modules[module], name) for module, name in _OF_CLIENTS.items() if module in sys.modules]


class Mirror:
    """The files of `root` that have a copy below `url`. All methods raise PassNetError as `told` says."""

    def __init__(self, url: str, root: Path) -> None:
        self.url, self.root = url.rstrip("/"), root
        self._fs, self._there = opened(url)
        self._known: set[str] = set()
        self._asked: set[str] = set()

    def push(self, path: Path) -> None:
        """Copy a file there, once."""
        name = self._name(path)
        if name not in self._known:
            told(self.url, lambda: self._push(name))
            self._known.add(name)

    def fetch(self, path: Path) -> None:
        """Copy a file here, unless it is here."""
        if not path.exists():
            told(self.url, lambda: self._fetch(self._name(path)))

    def push_all(self, below: str, pattern: str) -> None:
        """Copy there the files below a directory that match, but those that are there in their size."""
        if below not in self._asked:
            self._known |= {name for name, size in self._listed(below).items() if self._size_here(name) == size}
            self._asked.add(below)
        for path in sorted((self.root / below).glob(pattern)):
            self.push(path)

    def fetch_all(self, below: str) -> int:
        """Copy here the files below a directory that are not here; how many that were."""
        wanted = [name for name, size in self._listed(below).items() if self._size_here(name) != size]
        for name in wanted:
            told(self.url, lambda name=name: self._fetch(name))
        return len(wanted)

    def remove_others(self, below: str) -> None:
        """Remove the files there below a directory that are not here."""
        gone = [name for name in self._listed(below) if self._size_here(name) is None]
        for name in gone:
            told(self.url, lambda name=name: self._fs.rm_file(f"{self._there}/{name}"))
        self._known -= set(gone)

    def remove(self, below: str) -> None:
        """Remove a directory there."""

        def remove() -> None:
            self._fs.invalidate_cache()
            if self._fs.exists(f"{self._there}/{below}"):
                self._fs.rm(f"{self._there}/{below}", recursive=True)

        told(self.url, remove)
        self._known = {name for name in self._known if not name.startswith(f"{below}/")}

    def _listed(self, below: str) -> dict[str, int]:
        """Name → size of the files there."""

        def found() -> dict[str, int]:
            self._fs.invalidate_cache()
            place = f"{self._there}/{below}"
            files = self._fs.find(place, detail=True) if self._fs.exists(place) else {}
            whole = {path: entry["size"] for path, entry in sorted(files.items()) if not path.endswith(_PARTIAL)}
            names = {below + path.partition(place)[2]: size for path, size in whole.items()}
            if astray := next((name for name in names if ".." in name.split("/")), None):
                raise PassNetError(
                    f"{self.url} has a file {ascii(astray)[:200]}, which leads out of it: remove it there"
                )
            return names

        return told(self.url, found)

    def _size_here(self, name: str) -> int | None:
        path = self.root / name
        return path.stat().st_size if path.is_file() else None

    def _name(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()

    def _push(self, name: str) -> None:
        target = f"{self._there}/{name}"
        put(self._fs, self.root / name, target)

    def _fetch(self, name: str) -> None:
        with appearing(self.root / name) as partial:
            self._fs.get_file(f"{self._there}/{name}", str(partial))

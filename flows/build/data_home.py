"""The data directory of a build: a path, or an fsspec URL with a copy of it on this machine.

With a URL, what a build needs of it is fetched before: traces, unfinished shards, the newest version. What it makes is
kept there as it comes: traces, shards of Ray's nodes, the version.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from flows.steps import say
from storage.mirror import Mirror, is_url
from storage.versions.remote import Remote
from storage.versions.store import Store, Version


@dataclass(frozen=True)
class DataHome:
    """`root` is the directory here; `mirror` is its copy behind a URL, None where `root` is all there is."""

    root: Path
    mirror: Mirror | None = None

    def keep_traces(self) -> None:
        """Copy traces that are new to the URL."""
        if self.mirror:
            self.mirror.push_all("traces", "*/[!.]*.parquet")

    def keep_version(self, version: Version) -> None:
        """Copy a version to the URL."""
        if self.mirror:
            Remote(self.mirror.url).upload(version)

    def keep_shards(self) -> None:
        """Copy the shards that a later build can use to the URL, and remove others there."""
        if self.mirror:
            self.mirror.remove("work")
            self.mirror.push_all("shards", "**/[!.]*.parquet")
            self.mirror.remove_others("shards")


@contextmanager
def data_home(data: str, copies: Path) -> Iterator[DataHome]:
    """The home of a data directory, ready to build in. The copies of URLs are below `copies`.

    Raises PassNetError for a URL that cannot be read.
    """
    if not is_url(data):
        yield DataHome(Path(data))
        return
    name = hashlib.sha256(data.rstrip("/").encode()).hexdigest()[:12]
    root = (copies / name).resolve()
    root.mkdir(parents=True, exist_ok=True)
    mirror = Mirror(data, root)
    fetched = sum(mirror.fetch_all(each) for each in ("traces", "shards", "work"))
    remote, store = Remote(data), Store(root)
    newest = next(reversed(remote.names()), None)
    while newest is not None:
        version, _ = remote.download(store, newest)
        newest = version.manifest.parent if version.manifest.kind == "evaluate" else None  # see `built_as`
    say(f"{data}: {fetched} files of earlier builds fetched to {root}")
    yield DataHome(root, mirror)

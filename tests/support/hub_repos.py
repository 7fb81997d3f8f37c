"""Repositories of a Hub in memory: files, commits, tags."""

import hashlib
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any


@dataclass(frozen=True)
class Blob:
    data: bytes
    lfs: bool

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()

    @property
    def git_oid(self) -> str:
        return hashlib.sha1(b"blob %d\0" % len(self.data) + self.data).hexdigest()

    @property
    def etag(self) -> str:
        return self.sha256 if self.lfs else self.git_oid

    def listed(self, path: str) -> dict[str, Any]:
        entry: dict[str, Any] = {"type": "file", "path": path, "size": len(self.data), "oid": self.git_oid}
        if self.lfs:
            entry["lfs"] = {"oid": self.sha256, "size": len(self.data), "pointerSize": 134}
        return entry


@dataclass(frozen=True)
class Commit:
    oid: str
    title: str
    date: str
    files: dict[str, Blob]
    parent: "Commit | None"


@dataclass
class Repo:
    kind: str
    name: str
    private: bool
    head: Commit
    tags: dict[str, Commit] = field(default_factory=dict)
    downloads: int = 0
    labels: tuple[str, ...] = ()  # what a listing filters by: the library and others
    task: str = ""
    gated: bool = False

    def history(self) -> list[Commit]:
        commits, commit = [], self.head
        while commit is not None:
            commits.append(commit)
            commit = commit.parent
        return commits

    def at(self, revision: str) -> Commit | None:
        if revision == "main":
            return self.head
        return self.tags.get(revision) or next((c for c in self.history() if c.oid == revision), None)

    def commit(self, title: str, files: dict[str, Blob]) -> Commit:
        listing = json.dumps([title, self.head.oid, sorted((p, b.sha256) for p, b in files.items())])
        oid = hashlib.sha1(listing.encode()).hexdigest()
        self.head = Commit(oid, title, now(), files, self.head)
        return self.head


def now() -> str:
    """The time as the Hub writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")

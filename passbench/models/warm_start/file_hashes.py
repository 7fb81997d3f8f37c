"""Hashes of many files, taken from an earlier process of this machine where none of the files has changed since.

DIRECTORY/KEY.json has the hashes and, of each file and folder, what the file system says of it. A file is the same if
its inode, its size and the times of its last change are. One of these times, `st_ctime`, no program can set.
"""

import contextlib
import hashlib
import inspect
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from storage.disk import write_json
from storage.errors import PassNetError

QUIET_SECONDS = 10
"""A file that changed less than so long ago may change again within one tick of the file system's clock, unseen."""


class FileHashes:
    """What follows from the modules in these folders and from these files alone.

    Whoever can write to `directory` says what the hashes are.
    """

    def __init__(self, directory: Path, folders: Sequence[Path], files: Sequence[Path] = ()) -> None:
        self._folders, self._files = sorted(map(str, folders)), sorted(map(str, files))
        name = hashlib.sha256(json.dumps([self._folders, self._files]).encode()).hexdigest()
        self._kept = directory / f"{name[:32]}.json"

    def get(self) -> dict[str, str] | None:
        """What `put` kept, if no file has changed, come or gone since."""
        try:
            known = json.loads(self._kept.read_text("utf-8"))
            same = [_facts(path) for path in known["paths"]] == known["facts"]
            return {str(name): str(text) for name, text in known["hashes"].items()} if same else None
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None  # there is none, a path is gone, or somebody wrote something else

    def put(self, compute: Callable[[], dict[str, str]]) -> None:
        """Call `compute`, and keep the hashes that it gives where no file has changed meanwhile or just before."""
        before = self._seen()
        hashes = compute()
        newest = max((max(facts[3:]) for facts in before.values()), default=0)
        if newest > time.time_ns() - QUIET_SECONDS * 10**9 or self._seen() != before:
            return
        said = {"paths": list(before), "facts": list(before.values()), "hashes": hashes}
        with contextlib.suppress(PassNetError):  # where it cannot be written, the next process hashes, too
            write_json(self._kept, said)

    def _seen(self) -> dict[str, list[int]]:
        found = [*self._files, *(path for folder in self._folders for path in _modules_in(folder))]
        return {path: _facts(path) for path in found}


def _facts(path: str) -> list[int]:
    seen = os.stat(path)
    return [seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns]


def _modules_in(folder: str) -> Iterator[str]:
    """All that Python reads to find the modules of a package: its folder, what may be a module, what may be a package
    within, and the same of those that are."""
    yield folder
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if inspect.getmodulename(entry.name):
                yield entry.path
            elif "." not in entry.name and entry.name != "__pycache__" and entry.is_dir():
                inside = _modules_in(entry.path) if os.path.exists(f"{entry.path}/__init__.py") else [entry.path]
                yield from inside

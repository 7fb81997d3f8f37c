"""A library of passes in a dataset repository on the Hub, laid out as on disk: passes/HASH/{problem,pass,result}.

Nothing that comes from there is run: entries are data and text, checked against their hashes.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dedup.hashes import identify
from flows.plurals import counted
from passbench.library.pass_library import LibraryEntry, PassLibrary
from storage.errors import PassNetError
from storage.hub_repo import create_repo, pull_files, push_files

Document = dict[str, Any]
Say = Callable[[str], None]


def push_library(directory: Path, repo: str, *, private: bool, say: Say, endpoint: str | None = None) -> Document:
    """Push a library's passes to a repository, which is created if need be; what else is there stays.

    What is there is taken first, so that the faster of two passes for a graph, and the passports of all machines, are
    what is pushed. `endpoint` is another Hub than HF_ENDPOINT's. Raises PassNetError.
    """
    if not PassLibrary(directory).entries():
        raise PassNetError(f"{directory} has no passes to push: `passnet library add` puts some there")
    create_repo(repo, private=private, progress=say, endpoint=endpoint)
    taken = pull_library(directory, repo, say=say, endpoint=endpoint)["added"]
    entries = PassLibrary(directory).entries()
    paths = [path for entry in entries for path in sorted(entry.directory.rglob("*")) if path.is_file()]
    names = [str(path.relative_to(directory)) for path in paths]
    commit, sent = push_files(
        directory, names, repo, counted(len(entries), "pass", "passes"), progress=say, endpoint=endpoint
    )
    return {"repo": repo, "commit": commit, "passes": len(entries), "sent": sent, "taken": taken}


def pull_library(directory: Path, repo: str, *, say: Say, endpoint: str | None = None) -> Document:
    """Add the passes of a repository to a library, with their passports.

    Raises PassNetError for an entry that is malformed or not what its name says, before anything is added.
    """
    with tempfile.TemporaryDirectory() as fetched:
        commit = pull_files(repo, Path(fetched), "passes/*", progress=say, endpoint=endpoint)
        entries = PassLibrary(fetched).entries()
        for entry in entries:
            _check(entry, repo)
        mine = PassLibrary(directory)
        added = [entry.name for entry in entries if mine.take(entry)]
    return {"repo": repo, "commit": commit, "passes": len(entries), "added": len(added), "hashes": added}


def _check(entry: LibraryEntry, repo: str) -> None:
    """Raises PassNetError where the graph or an input is another than the hashes say, or a file is malformed."""
    entry.files()
    variants = entry.variants
    known = {row["variant_hash"] for row in entry.passports} <= set(variants)
    own = [identify(variant) for variant in variants.values()]
    if not known or {v.graph_hash for v in own} != {entry.name} or {v.variant_hash for v in own} != set(variants):
        raise PassNetError(f"{repo}: entry {entry.name[:12]} is not what its hash says: remove it there")

"""The middle of a build, shard by shard: traced graphs → subgraphs → unique subgraphs → variants → unique variants.

Rows go from file to file below a work directory, and no process holds more than a shard of them.
"""

import hashlib
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import pyarrow.parquet as pq
import torch

import dedup
import extraction
import storage
from dedup.database import Engine
from dedup.unique import unique_files, unique_paths
from extraction.cutting.typical import Texts
from extraction.pool.client import Pool
from flows.build.shards import Done, Payload, run_shards, shard
from flows.build.traced import Traced
from storage.parquet import parquet_summary
from storage.versions.staging import locked

CUT_MODELS = 25
"""Models in a shard of cutting at most."""
VARY_SUBGRAPHS = 100
"""Subgraphs in a shard of varying at most."""


@dataclass(frozen=True)
class Subgraphs:
    """`files` has the rows of each category, unique and in order of their hashes; `duplicates` merged into them, and
    `dropped` counts by cause what was left out."""

    files: dict[str, Path]
    duplicates: int
    dropped: Counter[str]

    @property
    def paths(self) -> list[Path]:
        return list(self.files.values())

    @property
    def counts(self) -> dict[str, int]:
        """Rows of each category that has any."""
        counts = {category: pq.read_metadata(file).num_rows for category, file in self.files.items()}
        return {category: count for category, count in counts.items() if count}


def digest_of(traced: Traced) -> str:
    """Identity of what a build makes of these traces, by this code (sha256, hex)."""
    digest = hashlib.sha256(torch.__version__.encode())
    for room in (storage, extraction, dedup):
        for path in sorted(p for kind in ("*.py", "*.txt") for p in Path(room.__file__).parent.rglob(kind)):
            digest.update(path.read_bytes())
    digest.update(repr(sorted((path.name, sorted(names.items())) for path, names in traced.files.items())).encode())
    return digest.hexdigest()


@contextmanager
def working(data: Path, traced: Traced) -> Iterator[Path]:
    """A directory for the shards of a build of these traces by this code, below `data`/work.

    A build that was killed finds its shards there again. The directory is removed when its block ends well, and with
    it what builds of other traces left. One build at a time uses a data directory; others wait. The path is absolute,
    since workers run elsewhere.
    """
    with locked(data / "work"):
        work = data.resolve() / "work" / digest_of(traced)[:20]
        for other in work.parent.iterdir():
            if other.is_dir() and other != work:
                shutil.rmtree(other)
        yield work
        shutil.rmtree(work)


def cut(traced: Traced, work: Path, pool: Pool, engine: Engine) -> Subgraphs:
    """The unique subgraphs of traced graphs, before they are varied."""

    def run() -> list[Done]:
        models = [
            shard(work / "cut", file=str(path.resolve()), models=dict(some))
            for path, names in sorted(traced.files.items())
            for some in _parts(sorted(names.items()), CUT_MODELS)
        ]
        graphs = run_shards("cut_shard", models, _each_model, pool)
        typical = run_shards("typical_shard", list(_with_repeats(graphs, work / "typical")), _each_model, pool)
        return [graphs, typical]

    return _unique(run, engine, work / "subgraphs", VARY_SUBGRAPHS)


def vary(subgraphs: Subgraphs, work: Path, pool: Pool, engine: Engine) -> Subgraphs:
    """The unique variants of unique subgraphs."""

    def run() -> list[Done]:
        groups = [
            shard(work / "variants", file=str(path), group=group, rows=list(range(rows)))
            for path in subgraphs.paths
            for group, rows in enumerate(_group_rows(path))
        ]
        return [run_shards("vary_shard", groups, _each_row, pool)]

    return _unique(run, engine, work / "unique", 1000)


def _unique(run: Callable[[], list[Done]], engine: Engine, directory: Path, group_rows: int) -> Subgraphs:
    """The unique rows of shards. `run` runs the shards, unless `directory` has the result already."""
    files = unique_paths(directory)
    if not all(file.exists() for file in files.values()):
        parts = run()
        dropped = sum((part.dropped for part in parts), Counter())
        paths = [file for part in parts for file in part.files]
        unique_files(engine, paths, directory, group_rows, {"dropped": dropped})
    summaries = [parquet_summary(file) for file in files.values()]
    return Subgraphs(files, sum(each["duplicates"] for each in summaries), Counter(summaries[0]["dropped"]))


def _group_rows(path: Path) -> list[int]:
    metadata = pq.read_metadata(path)
    return [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]


def _with_repeats(graphs: Done, directory: Path) -> Iterator[Payload]:
    """The shards of cutting again, with the typical ranges of their graphs; models without any are left out."""
    texts = Texts()
    for payload in graphs.payloads:
        names, own = _texts(payload)
        for text in own:
            texts.add(None if number < 0 else names[number] for number in text)
    repeats = texts.repeats()
    for payload in graphs.payloads:
        counts = {model: len(own) for model, own in parquet_summary(Path(payload["out"]))["texts"].items()}
        found = {m: [[(r.start, r.end) for r in own] for own in islice(repeats, n)] for m, n in counts.items()}
        ranges = {model: of_graphs for model, of_graphs in found.items() if any(of_graphs)}
        models = {name: model for name, model in payload["models"].items() if model in ranges}
        if models:
            yield shard(directory, file=payload["file"], models=models, ranges=ranges)


def _texts(payload: Payload) -> tuple[list[str], Iterator[list[int]]]:
    summary = parquet_summary(Path(payload["out"]))
    return list(summary["names"]), (text for own in summary["texts"].values() for text in own)


def _each_model(one: Payload) -> list[Payload]:
    rest = {"ranges": one["ranges"]} if "ranges" in one else {}
    directory = Path(one["out"]).parent
    return [shard(directory, **{**rest, "file": one["file"], "models": {k: v}}) for k, v in one["models"].items()]


def _each_row(one: Payload) -> list[Payload]:
    return [shard(Path(one["out"]).parent, file=one["file"], group=one["group"], rows=[row]) for row in one["rows"]]


def _parts(items: list, size: int) -> Iterator[list]:
    return (items[start : start + size] for start in range(0, len(items), size))

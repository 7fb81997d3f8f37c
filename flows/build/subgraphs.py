"""The middle of a build, shard by shard: traced graphs → subgraphs → unique subgraphs → variants → unique variants.

Rows go from file to file below a work directory, and no process holds more than a shard of them.
"""

import hashlib
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch

from dedup.database import Engine
from dedup.unique import unique_files, unique_paths
from extraction.cutting.typical import Texts
from extraction.pool.client import TaskPool
from flows.build.shards import Done, Payload, run_shards, shard
from flows.build.traced import Traced
from flows.build.varied import held, relation, wanted
from storage.parquet import parquet_summary
from storage.versions.code_version import CODE_VERSIONS
from storage.versions.staging import locked

CUT_MODELS = 25
"""Models in a shard of cutting at most."""
VARY_SUBGRAPHS = 50
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


def digest_of(traced: Traced, points: int) -> str:
    """Identity of what a build makes of these traces at so many shape points, by this code (sha256, hex)."""
    files = sorted((path.name, sorted(names.items())) for path, names in traced.files.items())
    versions = [CODE_VERSIONS[stage] for stage in ("cut", "vary", "unique")]
    return hashlib.sha256(repr((torch.__version__, versions, points, files)).encode()).hexdigest()


@dataclass(frozen=True)
class Work:
    """Where a build works: `of_build` has the files of its digest, `shards` those of this code that later builds use
    again, in directories `cut`, `typical` and `varied`. `used` are the shards that this build used, by stage."""

    of_build: Path
    shards: Path
    used: dict[str, set[Path]] = field(default_factory=dict)


@contextmanager
def working(data: Path, digest: str) -> Iterator[Work]:
    """Directories for the files of a build that has this digest (`digest_of`), below `data`/work and `data`/shards.

    A build that was killed finds its shards there again. When its block ends well, the former directory is removed, and
    shards that this build did not use. One build at a time uses a data directory; others wait. The path is absolute,
    since workers run elsewhere.
    """
    with locked(data / "work"):
        work = data.resolve() / "work" / digest[:20]
        for other in work.parent.iterdir():
            if other.is_dir() and other != work:
                shutil.rmtree(other)
        shards = data.resolve() / "shards"
        place = Work(work, shards / shards_digest())
        yield place
        shutil.rmtree(work)
        if place.used.keys() >= {"cut", "vary"}:  # a build that was killed later may have skipped these stages
            used = set().union(*place.used.values())
            for path in list(shards.rglob("*.parquet")):
                if path not in used:
                    path.unlink()


def shards_digest() -> str:
    """Identity of the code that makes shards: theirs are used again while it stays."""
    versions = [CODE_VERSIONS[stage] for stage in ("cut", "vary")]
    return hashlib.sha256(repr((torch.__version__, versions)).encode()).hexdigest()[:20]


def cut(traced: Traced, work: Work, pool: TaskPool, engine: Engine) -> Subgraphs:
    """The unique subgraphs of traced graphs, before they are varied."""

    def run() -> list[Done]:
        models = [
            shard(work.shards / "cut", file=str(path.resolve()), models=dict(some))
            for path, names in sorted(traced.files.items())
            for some in _parts(sorted(names.items()), CUT_MODELS)
        ]
        ops = {row["model"]: row["ops"] for row in traced.models}

        def size(one: Payload) -> float:
            return sum(ops[name] for name in one["models"].values())

        graphs = run_shards("cut_shard", models, _each_model, pool, size)
        repeats = list(_with_repeats(graphs, work.shards / "typical"))
        typical = run_shards("typical_shard", repeats, _each_model, pool, size)
        work.used["cut"] = {*graphs.files, *typical.files}
        return Merging([*graphs.files, *typical.files], graphs.dropped + typical.dropped)

    return _unique(run, engine, work.of_build / "subgraphs", VARY_SUBGRAPHS)


def vary(subgraphs: Subgraphs, points: int, work: Work, pool: TaskPool, engine: Engine) -> Subgraphs:
    """The unique variants of unique subgraphs, at up to `points` shape points of each. Subgraphs that an earlier build
    varied are not varied again."""
    directory = work.shards / "varied" / f"p{points}"

    def run() -> Merging:
        all_of_them = wanted(subgraphs.paths)
        known = held([*directory.glob("[!.]*.parquet")])
        groups = []
        for (path, group), keys in all_of_them.groups.items():
            whole = shard(directory, file=str(path), group=group, rows=list(range(len(keys))), points=points)
            new = [row for row, key in enumerate(keys) if key not in known]
            if new and len(new) < len(keys):
                groups.append(shard(directory, **{**_read(whole), "rows": new}))
            elif new or Path(whole["out"]).exists():
                groups.append(whole)
        done = run_shards("vary_shard", groups, _each_row, pool, _ops)
        known = held([*directory.glob("[!.]*.parquet")])
        dropped = sum((known[key][1] for key in all_of_them.keys & known.keys()), done.lost)
        rows, files = relation(all_of_them, known, work.of_build / "places.parquet")
        work.used["vary"] = set(files)
        return Merging(files, dropped, rows)

    return _unique(run, engine, work.of_build / "unique", 1000)


@dataclass(frozen=True)
class Merging:
    """Files of rows that are to be merged, what was dropped where they were made, and the rows as a relation where they
    do not count as they stand there."""

    files: list[Path]
    dropped: Counter[str]
    relation: str | None = None


def _unique(run: Callable[[], Merging], engine: Engine, directory: Path, group_rows: int) -> Subgraphs:
    """The unique rows of shards. `run` runs the shards, unless `directory` has the result already."""
    files = unique_paths(directory)
    if not all(file.exists() for file in files.values()):
        given = run()
        unique_files(engine, given.files, directory, group_rows, {"dropped": given.dropped}, given.relation)
    summaries = [parquet_summary(file) for file in files.values()]
    return Subgraphs(files, sum(each["duplicates"] for each in summaries), Counter(summaries[0]["dropped"]))


def _read(one: Payload) -> Payload:
    """What a shard is of."""
    return {key: one[key] for key in ("file", "group", "rows", "points")}


def _ops(one: Payload) -> float:
    """Ops of the subgraphs of a shard of varying: what its seconds grow with."""
    with pq.ParquetFile(one["file"]) as file:
        sequences = file.read_row_group(one["group"], columns=["op_sequence"]).column("op_sequence")
    return pc.sum(pc.list_value_length(sequences.take(one["rows"]))).as_py()


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
    rest = {key: one[key] for key in ("file", "group", "points")}
    return [shard(Path(one["out"]).parent, **rest, rows=[row]) for row in one["rows"]]


def _parts(items: list, size: int) -> Iterator[list]:
    return (items[start : start + size] for start in range(0, len(items), size))

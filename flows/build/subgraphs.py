"""The middle of a build, shard by shard: traced graphs → subgraphs → unique subgraphs → variants → unique variants.

Rows go from file to file below a work directory, and no process holds more than a shard of them.
"""

import hashlib
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch

from dedup.database import Engine
from dedup.unique import unique_files, unique_paths
from extraction.cutting.typical import NOTHING, Repeats, Texts
from extraction.pool.client import TaskPool
from flows.build.kept_repeats import read_repeats, write_repeats
from flows.build.shards import Done, Payload, run_shards, shard
from flows.build.traced import Traced
from flows.build.varied import held, relation, wanted
from flows.steps import say
from storage.parquet import parquet_summary
from storage.versions.code_version import CODE_VERSIONS
from storage.versions.staging import locked

CUT_MODELS = 25
"""Models in a shard of cutting at most."""
VARY_SUBGRAPHS = 50
"""Subgraphs in a shard of varying at most."""
NEW_SUBGRAPHS = 10
"""Subgraphs in a shard of varying at most where most of them were varied before: the start of a shard takes as long as
three subgraphs."""


@dataclass(frozen=True)
class Subgraphs:
    """`files` has the rows of each category, unique and in order of their hashes; `duplicates` merged into them, and
    `dropped` counts by cause what was left out. `repeats` names the file of the repeated sequences, `kept_repeats` the
    one of which these were kept; "" for variants, and where none were."""

    files: dict[str, Path]
    duplicates: int
    dropped: Counter[str]
    repeats: str = ""
    kept_repeats: str = ""

    @property
    def paths(self) -> list[Path]:
        return list(self.files.values())

    @property
    def counts(self) -> dict[str, int]:
        """Rows of each category that has any."""
        counts = {category: pq.read_metadata(file).num_rows for category, file in self.files.items()}
        return {category: count for category, count in counts.items() if count}


def digest_of(traced: Traced, points: int, kept_repeats: str = "") -> str:
    """Identity of what a build makes of these traces at so many shape points, by this code, and from the repeated
    sequences of earlier builds that it keeps (sha256, hex)."""
    files = sorted((path.name, sorted(names.items())) for path, names in traced.files.items())
    versions = [CODE_VERSIONS[stage] for stage in ("cut", "vary", "unique")]
    told = (torch.__version__, versions, points, files, *([kept_repeats] if kept_repeats else []))
    return hashlib.sha256(repr(told).encode()).hexdigest()


@dataclass(frozen=True)
class Work:
    """Where a build works: `of_build` has the files of its digest, `shards` those of this code that later builds use
    again, in directories `cut`, `typical`, `varied` and `repeats`. `used` are the shards that this build used, by
    stage."""

    of_build: Path
    shards: Path
    used: dict[str, set[Path]] = field(default_factory=dict)

    @property
    def repeats(self) -> Path:
        """Where builds by this code keep what they found to repeat (`flows.build.kept_repeats`)."""
        return repeats_of(self.shards)


def shards_of(data: Path) -> Path:
    """Where builds in a data directory by this code keep their shards: a path that is absolute, since workers run
    elsewhere."""
    return data.resolve() / "shards" / shards_digest()


def repeats_of(shards: Path) -> Path:
    """`Work.repeats` of a directory of shards."""
    return shards / "repeats"


@contextmanager
def alone(data: Path) -> Iterator[None]:
    """One build at a time uses a data directory: another one waits for the end of this block, and says so.

    Raises PassNetError where the directory cannot be written.
    """
    with locked(
        data / "work", waiting=lambda: say(f"another build works in {data}: this one begins when that has ended")
    ):
        yield


@contextmanager
def working(data: Path, digest: str) -> Iterator[Work]:
    """Directories for the files of a build that has this digest (`digest_of`), below `data`/work and `data`/shards.

    A build that was killed finds its shards there again. When its block ends well, the former directory is removed, and
    shards that this build did not use; what repeats stays, since a version that is rolled back to needs it again. For a
    block of `alone`. The paths are absolute, since workers run elsewhere.
    """
    work = data.resolve() / "work" / digest[:20]
    work.parent.mkdir(parents=True, exist_ok=True)
    for other in work.parent.iterdir():
        if other.is_dir() and other != work and _DIGEST.fullmatch(other.name):
            shutil.rmtree(other)
    place = Work(work, shards_of(data))
    yield place
    shutil.rmtree(work)
    if place.used.keys() >= {"cut", "vary"}:  # a build that was killed later may have skipped these stages
        used = set().union(*place.used.values(), place.repeats.glob("*.parquet"))
        for path in list(place.shards.parent.rglob("*.parquet")):
            if path not in used and _DIGEST.fullmatch(path.relative_to(place.shards.parent).parts[0]):
                path.unlink()


_DIGEST = re.compile("[0-9a-f]{20}")
"""The names of directories that builds make, and remove again. A data directory may come from anybody, and have a link
to elsewhere in the place of one of them."""


def shards_digest() -> str:
    """Identity of the code that makes shards: theirs are used again while it stays."""
    versions = [CODE_VERSIONS[stage] for stage in ("cut", "vary")]
    return hashlib.sha256(repr((torch.__version__, versions)).encode()).hexdigest()[:20]


def cut(traced: Traced, work: Work, pool: TaskPool, engine: Engine, kept_repeats: str = "") -> Subgraphs:
    """The unique subgraphs of traced graphs, before they are varied.

    `kept_repeats` names the repeated sequences of an earlier build: graphs that it knew are cut at the same ops.
    """

    def run() -> Merging:
        models = [
            shard(work.shards / "cut", file=str(path.resolve()), models=dict(some))
            for path, names in sorted(traced.files.items())
            for some in _parts(sorted(names.items()), CUT_MODELS)
        ]
        ops = {row["model"]: row["ops"] for row in traced.models}

        def size(one: Payload) -> float:
            return sum(ops[name] for name in one["models"].values())

        graphs = run_shards("cut_shard", models, _each_model, pool, size)
        known = read_repeats(work.repeats, kept_repeats) if kept_repeats else NOTHING
        found = _repeats(graphs, known)
        ranges = list(_with_repeats(graphs, found, work.shards / "typical"))
        typical = run_shards("typical_shard", ranges, _each_model, pool, size)
        work.used["cut"] = {*graphs.files, *typical.files}
        told = {
            "repeats": write_repeats(work.repeats, found.repeats),
            "kept_repeats": kept_repeats if found.kept else "",
        }
        return Merging([*graphs.files, *typical.files], graphs.dropped + typical.dropped, told=told)

    return _unique(run, engine, work.of_build / "subgraphs", VARY_SUBGRAPHS)


def vary(subgraphs: Subgraphs, points: int, work: Work, pool: TaskPool, engine: Engine) -> Subgraphs:
    """The unique variants of unique subgraphs, at up to `points` shape points of each. Subgraphs that an earlier build
    varied are not varied again."""
    directory = work.shards / "varied" / f"p{points}"

    def run() -> Merging:
        all_of_them = wanted(subgraphs.paths)
        known = held([*directory.glob("[!.]*.parquet")])
        shards, rest = [], {}
        for (path, group), keys in all_of_them.groups.items():
            rows = [(group, row) for row in range(len(keys))]
            whole = shard(directory, file=str(path), rows=rows, points=points)
            new = [place for place, key in zip(rows, keys, strict=True) if key not in known]
            if len(new) == len(keys) or Path(whole["out"]).exists():
                shards.append(whole)
            else:
                rest.setdefault(path, []).extend(new)
        for path, new in rest.items():
            shards += [
                shard(directory, file=str(path), rows=some, points=points) for some in _parts(new, NEW_SUBGRAPHS)
            ]
        ops = {str(path): _ops(path) for path in subgraphs.paths}
        done = run_shards(
            "vary_shard", shards, _each_row, pool, lambda one: sum(ops[one["file"]][place] for place in one["rows"])
        )
        known = held([*directory.glob("[!.]*.parquet")])
        dropped = sum((known[key][1] for key in all_of_them.keys & known.keys()), done.lost)
        rows, files = relation(all_of_them, known, work.of_build / "places.parquet")
        work.used["vary"] = set(files)
        return Merging(files, dropped, rows)

    return _unique(run, engine, work.of_build / "unique", 1000)


@dataclass(frozen=True)
class Merging:
    """Files of rows that are to be merged, what was dropped where they were made, and the rows as a relation where they
    do not count as they stand there. `told` are further fields of `Subgraphs`."""

    files: list[Path]
    dropped: Counter[str]
    relation: str | None = None
    told: dict[str, Any] = field(default_factory=dict)


def _unique(run: Callable[[], Merging], engine: Engine, directory: Path, group_rows: int) -> Subgraphs:
    """The unique rows of shards. `run` runs the shards, unless `directory` has the result already."""
    files = unique_paths(directory)
    if not all(file.exists() for file in files.values()):
        given = run()
        told = {"dropped": given.dropped, "told": given.told}
        unique_files(engine, given.files, directory, group_rows, told, given.relation)
    summaries = [parquet_summary(file) for file in files.values()]
    first, duplicates = summaries[0], sum(each["duplicates"] for each in summaries)
    return Subgraphs(files, duplicates, Counter(first["dropped"]), **first.get("told", {}))  # files of older code: none


def _ops(path: Path) -> dict[tuple[int, int], int]:
    """Ops of the subgraphs of a file, by their places: what the seconds of varying one grow with."""
    with pq.ParquetFile(path) as file:
        return {
            (group, row): ops
            for group in range(file.num_row_groups)
            for row, ops in enumerate(
                pc.list_value_length(file.read_row_group(group, columns=["op_sequence"]).column(0)).to_pylist()
            )
        }


@dataclass(frozen=True)
class _CorpusRepeats:
    """The digests of each model's texts, a mapping a shard; all that repeats, and whether what was known is kept."""

    digests: list[dict[str, list[str]]]
    repeats: Repeats
    kept: bool


def _repeats(graphs: Done, known: Repeats) -> _CorpusRepeats:
    """What repeats in the graphs of shards of cutting. Where most graphs are new, nothing counts as known."""
    texts = Texts(known)
    digests = [{model: list(map(texts.add, own)) for model, own in _texts(payload)} for payload in graphs.payloads]
    all_of_them = [digest for of_models in digests for own in of_models.values() for digest in own]
    known_ones = sum(digest in known.found for digest in all_of_them)
    if known.found and 2 * known_ones < len(all_of_them):
        return _repeats(graphs, NOTHING)
    if known_ones:
        new = len(all_of_them) - known_ones
        say(f"typical: {known_ones} graphs stay as they were cut, {new} are new (--full: find all anew)")
    return _CorpusRepeats(digests, texts.repeats(), known_ones > 0)


def _with_repeats(graphs: Done, found: _CorpusRepeats, directory: Path) -> Iterator[Payload]:
    """The shards of cutting again, with the typical ranges of their graphs; models without any are left out."""
    for payload, digests in zip(graphs.payloads, found.digests, strict=True):
        of_models = {model: [found.repeats.found[digest] for digest in own] for model, own in digests.items()}
        ranges = {model: of_graphs for model, of_graphs in of_models.items() if any(of_graphs)}
        models = {name: model for name, model in payload["models"].items() if model in ranges}
        if models:
            yield shard(directory, file=payload["file"], models=models, ranges=ranges)


def _texts(payload: Payload) -> Iterator[tuple[str, Iterator[list[str | None]]]]:
    """The op names of each model's graphs; see `flows.build.shard_tasks.cut_shard`."""
    summary = parquet_summary(Path(payload["out"]))
    names = [*summary["names"], None]  # −1 is the last
    for model, texts in summary["texts"].items():
        yield model, ([names[number] for number in text] for text in texts)


def _each_model(one: Payload) -> list[Payload]:
    rest = {"ranges": one["ranges"]} if "ranges" in one else {}
    directory = Path(one["out"]).parent
    return [shard(directory, **{**rest, "file": one["file"], "models": {k: v}}) for k, v in one["models"].items()]


def _each_row(one: Payload) -> list[Payload]:
    rest = {key: one[key] for key in ("file", "points")}
    return [shard(Path(one["out"]).parent, **rest, rows=[place]) for place in one["rows"]]


def _parts(items: list, size: int) -> Iterator[list]:
    return (items[start : start + size] for start in range(0, len(items), size))

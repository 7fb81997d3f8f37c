"""Import sample directories in PassNet's layout: tree → variants → samples and splits → dataset version."""

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from dedup.database import Engine, parquet
from dedup.samples import choose_samples
from dedup.unique import unique_files
from extraction.failures import classify_end
from extraction.pool.client import TaskPool
from flows.build.dataset_rows import dataset_tables, earlier_splits, results_that_hold
from flows.build.import_task import new_record
from flows.build.pools import pool_on
from flows.plurals import counted
from flows.steps import flow_run_id, say
from storage.errors import PassNetError
from storage.layout.read import UNREADABLE, FoundDirectories, find
from storage.parquet import parquet_summary
from storage.versions.staging import staging
from storage.versions.store import Store, Version

SPLITS = ("auto", "train", "eval")
SHARD_SAMPLES = 20
"""Sample directories in a shard. Those of a shard that crashed are read again one by one."""
TIMEOUT_S = 600.0
"""Wall time that one shard may take, in seconds."""
MEMORY_MB = 4_096
"""Private memory that one shard may take, in MiB."""
LISTED = 100
"""Failures that the manifest of a version lists; its `models` table has all of them."""
_TASK, _PREPARE = "flows.build.import_task:import_shard", "flows.build.import_task:prepare"


@dataclass
class Imported:
    """What was read: files of rows, a record of each sample directory, and directories that are no samples."""

    files: list[Path] = field(default_factory=list)
    samples: list[dict[str, Any]] = field(default_factory=list)
    others: list[tuple[str, str, str]] = field(default_factory=list)

    @property
    def failures(self) -> list[tuple[str, str, str]]:
        """Path, cause and message of all that was not read, in order of paths."""
        return sorted([*self.others, *(tuple(f) for sample in self.samples for f in sample["failures"])])


def import_samples(
    directory: Path,
    data: Path,
    split: str = "auto",
    workers: int | None = None,
    timeout_s: float = TIMEOUT_S,
    memory_mb: int = MEMORY_MB,
) -> dict:
    """Publish the samples in a tree of directories as a version of kind "import", as a JSON-ready summary.

    `split` puts all families in one split; "auto" chooses as a build does. Directories and graphs that are not in the
    layout are left out and listed. What an import that was killed left in the data directory is removed. Raises
    PassNetError where there is no sample, or none that can be read.
    """
    if split not in SPLITS:
        raise PassNetError(f"--split is one of {', '.join(SPLITS)}, not {split!r}")
    directory, data = directory.resolve(), data.resolve()  # workers run elsewhere
    store = Store(data)
    with staging(data / ".imports") as scratch, Engine(scratch / "engine") as engine:
        imported = read_tree(directory, scratch, workers, timeout_s, memory_mb)
        files = unique_files(engine, imported.files, scratch / "unique")
        duplicates = sum(parquet_summary(file)["duplicates"] for file in files.values())
        paths = list(files.values())
        counts = dict(engine.run(f"SELECT category, count(*) FROM {parquet(paths)} GROUP BY ALL ORDER BY ALL"))
        if not counts:
            raise PassNetError(_nothing(directory, imported))
        failures = imported.failures
        with store.updating() as earlier:  # evaluations may have published results while the tree was read
            choice = choose_samples(engine, parquet(paths), **_splitting(split, earlier, engine, paths))
            summary = {
                "directories": len(imported.samples),
                "graphs": sum(sample["graphs"] for sample in imported.samples),
                "subgraphs": counts,
                "duplicates": duplicates,
                "samples": dict(choice.samples),
                "failed": dict(Counter(cause for _, cause, _ in failures).most_common()),
            }
            version, created = store.publish(
                {
                    **dataset_tables(list(map(_model_row, imported.samples)), files, choice, engine),
                    **results_that_hold(earlier, paths, engine),
                },
                kind="import",
                parent=earlier,
                parameters={"directory": directory.name, "split": split},
                summary={**summary, "failures": _listed(failures[:LISTED])},
                flow_run=flow_run_id(),
            )
    say(f"published {version.name}" if created else f"nothing new: {version.name} holds this dataset")
    done = {"version": version.name, "path": str(version.path), "created": created}
    return {**summary, "failures": _listed(failures), **done}


def read_tree(root: Path, scratch: Path, workers: int | None, timeout_s: float, memory_mb: int) -> Imported:
    """Read all samples below `root` in killable workers, as they are found, into files below `scratch`."""
    imported = Imported()
    with pool_on("local", workers=workers, timeout_s=timeout_s, memory_mb=memory_mb) as pool:
        failed = _run(_shards(_samples(root, imported), root, scratch, SHARD_SAMPLES), imported, pool)
        alone = _shards((sample for payload, _ in failed for sample in payload["samples"]), root, scratch / "alone", 1)
        for payload, message in _run(alone, imported, pool):
            (sample,) = payload["samples"]
            imported.samples.append({**new_record(sample), "failures": [(sample, *message)]})
    imported.samples.sort(key=lambda record: record["sample"])
    return imported


def _samples(root: Path, imported: Imported) -> Iterator[str]:
    """Relative paths of the samples; other directories in a layout are noted."""
    for found in find(root):
        path = found.path.relative_to(root).as_posix()
        if found.kind == "sample":
            yield path
        else:
            imported.others.append((path, *_why_not(found)))


def _why_not(found: FoundDirectories) -> tuple[str, str]:
    if found.kind == "model":
        return "whole model", "a graph of a whole model is no sample; build from it: `passnet build --catalog DIR`"
    return "unreadable file", UNREADABLE


def _shards(samples: Iterable[str], root: Path, scratch: Path, size: int) -> Iterator[dict[str, Any]]:
    rest = iter(samples)
    number = 0
    while some := list(islice(rest, size)):
        yield {"root": str(root), "samples": some, "out": str(scratch / f"{number:06}.parquet")}
        number += 1


def _run(
    payloads: Iterable[dict[str, Any]], imported: Imported, pool: TaskPool
) -> list[tuple[dict[str, Any], tuple[str, str]]]:
    """Read shards; those of which the worker died, with category and message."""
    failed = []
    with closing(pool.run(_TASK, payloads, _PREPARE)) as replies:
        for reply in replies:
            if not reply.completed:
                failed.append((reply.payload, classify_end(reply.end, reply.code, reply.log)))
                continue
            out = Path(reply.payload["out"])
            records = parquet_summary(out)["samples"]
            imported.files.append(out)
            imported.samples += records
            bad = sum(len(record["failures"]) for record in records)
            graphs = sum(sample["graphs"] for sample in imported.samples)
            found = counted(len(imported.samples), "directory", "directories")
            say(f"{found}, {counted(graphs, 'graph')}" + (f"; {bad} left out just now" if bad else ""))
    return failed


def _splitting(split: str, earlier: Version | None, engine: Engine, paths: list[Path]) -> dict[str, Any]:
    if split == "auto":
        return earlier_splits(earlier)
    if split == "train":
        return {"eval_fusible": 0, "eval_typical": 0, "eval_sole_op": 0}
    families = engine.run(f"SELECT DISTINCT family_hash FROM {parquet(paths)}")
    return {"earlier_eval": {family: "eval: imported for evaluation" for (family,) in families}}


def _model_row(record: dict[str, Any]) -> dict[str, Any]:
    """A sample's row of the `models` table: what was read of it, and what was not and why."""
    failures = [f"{path}: {cause}: {message}" for path, cause, message in record["failures"]]
    return {
        "model": f"dir:{record['sample']}",
        "source": "dir",
        "revision": "",
        "config_hash": "",
        "spec": "",
        "status": "traced" if record["graphs"] else "failed",
        "error_category": record["failures"][0][1] if failures else "",
        "message": failures[0] if failures else "",
        "graphs": record["graphs"],
        "graph_breaks": failures,
        "ops": record["ops"],
        "libraries": {},
        "symbols": {},
        "static_reason": "",
    }


def _listed(failures: list[tuple[str, str, str]]) -> list[dict[str, str]]:
    return [dict(zip(("path", "cause", "message"), failure, strict=True)) for failure in failures]


def _nothing(directory: Path, imported: Imported) -> str:
    if imported.failures:
        path, cause, message = imported.failures[0]
        return f"no graph below {directory} can be imported; {path}: {cause}: {message}"
    return f"{directory} has no sample directory; one has graph_list.txt and graphs/ (docs/design.md)"


def import_text(done: dict) -> str:
    """What was imported, what was left out and why, and where the version is."""
    directories = counted(done["directories"], "sample directory", "sample directories")
    lines = [f"{done['version']}: {counted(done['graphs'], 'graph')} of {directories}"]
    lines += [f"  variants, {category}: {count}" for category, count in done["subgraphs"].items()]
    lines += [f"  samples, {split}: {count}" for split, count in done["samples"].items()]
    lines += [f"  duplicates: {done['duplicates']}"]
    lines += [f"  left out, {cause}: {count}" for cause, count in done["failed"].items()]
    lines += [f"    {f['path']}: {f['message']}" for f in done["failures"][:20]]
    if len(done["failures"]) > 20:
        lines.append(f"    and {len(done['failures']) - 20} more, see --json or the models table")
    return "\n".join([*lines, done["path"], *([] if done["created"] else ["Nothing new: this version holds it all."])])

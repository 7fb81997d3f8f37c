"""Write samples of a version as directories in PassNet's layout or in Harbor's, for `passnet export`."""

import math
from dataclasses import replace
from pathlib import Path

import pyarrow.compute as pc

from agent.learning.harbor import IMAGE, write_task
from agent.learning.reward import LEVEL
from agent.run.choose import evenly
from flows.plurals import counted
from storage.errors import PassNetError
from storage.layout.export import write_sample
from storage.versions.samples import load_samples
from storage.versions.store import Store, Version


def export_sample(sample: str, directory: Path, data: Path, version: str | None = None) -> dict:
    """Write one sample (an id, or a prefix that fits only it) to `directory`, with the best pass that is known for it.

    Returns a JSON-ready summary. Raises PassNetError for an unknown sample, and for a directory that is not empty.
    """
    opened = Store(data).open(version)
    (found,) = load_samples(opened, names=[sample])
    author, files = best_pass(opened, found.sample)
    write_sample(found, directory, files)
    return {
        "sample": found.sample,
        "version": opened.name,
        "path": str(directory),
        "variants": len(found.variants),
        "pass_author": author,
        "pass_files": sorted(files),
    }


def best_pass(version: Version, sample: str, untimed: bool = False) -> tuple[str | None, dict[str, str]]:
    """Author and files of a sample's best pass: all its results are right at t = -5, and their geometric mean is the
    fastest. With `untimed` results without times count as eager's speed.

    None and no files if there is no such pass.
    """
    columns = ["run", "author", "attempt", "compiler", "status", "t_min", "speedup_e2e", "times_meaningful"]
    columns += ["pass_files"]
    of_sample = pc.field("sample") == sample
    attempts: dict[tuple, list[dict]] = {}
    for batch in version.batches("results", columns=["sample", *columns], filter=of_sample):
        for row in batch.to_pylist():
            attempts.setdefault((row["run"], row["author"], row["attempt"]), []).append(row)
    ranked = [
        (math.fsum(math.log(_speedup(row) or 1.0) for row in rows) / len(rows), key, rows[0]["pass_files"])
        for key, rows in attempts.items()
        if all(_right(row) and (untimed or _speedup(row)) for row in rows)
    ]
    if not ranked:
        return None, {}
    _, (_, author, _), files = max(ranked, key=lambda each: (each[0], each[1]))
    return author, {file["path"]: file["content"] for file in files}


def _right(row: dict) -> bool:
    good = row["compiler"] == "pass" and row["status"] == "ok" and row["pass_files"]
    return bool(good and row["t_min"] is not None and row["t_min"] <= LEVEL)


def _speedup(row: dict) -> float | None:
    return row["speedup_e2e"] if row["times_meaningful"] else None


def export_text(done: dict) -> str:
    """What was written, in one line."""
    passes = f", with the pass of {done['pass_author']}" if done["pass_files"] else ""
    return f"{done['sample']}: {counted(done['variants'], 'variant')} in {done['path']}{passes}"


def export_tasks(
    sample: str | None,
    directory: Path,
    data: Path,
    version: str | None = None,
    split: str | None = None,
    image: str | None = None,
    limit: int | None = None,
    at_most: int | None = None,
) -> dict:
    """Write one sample as a task to `directory`, or each sample of a split to `directory`/ID.

    Returns a JSON-ready summary. Raises PassNetError for an unknown sample, for a directory that is there already, and
    unless one of `sample` and `split` is given.
    """
    if (sample is None) == (split is None):
        raise PassNetError("give a SAMPLE, or --split for all of one")
    opened = Store(data).open(version)
    found = load_samples(opened, split, names=None if sample is None else [sample], limit=limit)
    tasks = []
    for one in found:
        chosen = replace(one, variants=evenly(one.variants, at_most)) if at_most else one
        author, files = best_pass(opened, one.sample, untimed=True)
        place = directory if split is None else directory / one.sample
        write_task(chosen, place, files or None, image or IMAGE)
        tasks.append(
            {"sample": one.sample, "path": str(place), "variants": len(chosen.variants), "pass_author": author}
        )
    return {"version": opened.name, "path": str(directory), "tasks": tasks}


def export_tasks_text(done: dict) -> str:
    """What was written, in one line."""
    solved = sum(task["pass_author"] is not None for task in done["tasks"])
    return f"{counted(len(done['tasks']), 'task')} in {done['path']}, {solved} with a solution"

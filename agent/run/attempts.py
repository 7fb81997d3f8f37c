"""Attempts of authors: each is lent what it needs; its trajectory is saved after every step, and read after a kill."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent.author import Attempt, Author, Submission
from agent.run.progress import Say
from passbench.bench import Bench
from storage.parquet import read_rows, write_rows
from storage.records import Sample
from storage.schema import TRAJECTORIES


def write_pass(
    bench: Bench,
    author: Author,
    run: str,
    directory: Path,
    number: int,
    sample: Sample,
    say: Say,
    state: Path | None = None,
) -> Submission:
    """Have the author write its pass for attempt `number` into `directory`/passes.

    An attempt that was interrupted goes on from its saved trajectory. A finished one is answered from it: nothing is
    asked of a model twice. A pass that an earlier part of the run wrote is removed first.
    """
    place = directory / "passes" / sample.sample / str(number)
    shutil.rmtree(place, ignore_errors=True)
    saved = directory / "trajectories" / sample.sample / f"{number}.parquet"
    where = {
        "run": run,
        "sample": sample.sample,
        "attempt": number,
        "task_family": sample.family_hash,
        "task_split": sample.split,
    }

    def save(row: Mapping[str, Any]) -> None:
        write_rows(saved, [{**row, **where}], TRAJECTORIES)

    attempt = Attempt(
        number,
        str(bench.device),
        measure=lambda one, passes: list(bench.run(one, "pass", passes)),
        save=save,
        saved=read_rows(saved, TRAJECTORIES)[0] if saved.exists() else None,
        say=lambda text: say(f"{author.name} {sample.sample} attempt {number}: {text}", run=run, sample=sample.sample),
        state=state,
    )
    return author.attempt(sample, place, attempt)


def saved_trajectories(directory: Path) -> list[dict]:
    """Rows of all attempts of a run, finished or not. Raises PassNetError that names a corrupt file."""
    return [
        row
        for path in sorted((directory / "trajectories").glob("*/*.parquet"))
        for row in read_rows(path, TRAJECTORIES)
    ]


def usage(rows: list[dict]) -> dict[str, Any]:
    """What attempts have used, in all, and how they ended."""
    costs = [row["cost_usd"] for row in rows]
    exits: dict[str, int] = {}
    for row in rows:
        exits[row["exit_status"]] = exits.get(row["exit_status"], 0) + 1
    names = ("steps", "tool_calls", "failed_calls", "rejections", "input_tokens", "output_tokens", "seconds")
    return {
        "attempts": len(rows),
        **{name: sum(row[name] for row in rows) for name in names},
        "cost_usd": None if None in costs else sum(costs),
        "exits": exits,
    }

"""Attempts of authors that measure while they write: lent what they need, saved after every step, read back."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent.author import Attempt, Author, Interactive, Submission
from flows.steps import say
from passbench.bench import Bench
from storage.parquet import read_rows, write_rows
from storage.records import Sample
from storage.schema import TRAJECTORIES


def write_pass(
    bench: Bench, author: Author | Interactive, run: str, directory: Path, number: int, sample: Sample
) -> Submission:
    """Have the author write its pass for attempt `number` into `directory`/passes.

    An attempt that was interrupted goes on where it was, one that was finished is not repeated.
    """
    place = directory / "passes" / sample.sample / str(number)
    if not isinstance(author, Interactive):
        return author.write(sample, place)
    saved = _path(directory, sample.sample, number)
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
        say=lambda text: say(f"{author.name} {sample.sample} attempt {number}: {text}"),
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


def _path(directory: Path, sample: str, number: int) -> Path:
    return directory / "trajectories" / sample / f"{number}.parquet"

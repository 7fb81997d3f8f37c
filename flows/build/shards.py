"""Shards of a build in killable workers. A shard whose file is there is done, whichever build made it.

A shard that fails (a crash, a hang, too much memory) is run again in pieces of one model or subgraph, so only what is
at fault is lost. Pieces that fail are counted by cause.
"""

import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from extraction.failures import classify_end
from extraction.pool.client import TaskPool, TaskReply
from flows.build.stages import build_stage
from flows.steps import each, say
from storage.errors import PassNetError
from storage.parquet import parquet_summary

_TASKS = "flows.build.shard_tasks"

Payload = dict[str, Any]
"""What a task of `flows.build.shard_tasks` reads, and `out`, the file that it writes."""


@dataclass(frozen=True)
class Done:
    """The shards and pieces that were done, in the order of their shards, and what all of them left out, by cause."""

    payloads: list[Payload]
    dropped: Counter[str]
    lost: Counter[str]  # of these, pieces that failed

    @property
    def files(self) -> list[Path]:
        return [Path(payload["out"]) for payload in self.payloads]


def shard(directory: Path, *, file: str, **payload: Any) -> Payload:
    """A payload with its file below `directory`, named by what the shard is of.

    `file` counts by its path from there, so that a data directory can be moved.
    """
    told = {"file": os.path.relpath(file, directory), **payload}
    name = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:20]
    return {"file": file, **payload, "out": str(directory / f"{name}.parquet")}


def run_shards(
    task: str,
    shards: Sequence[Payload],
    pieces: Callable[[Payload], list[Payload]],
    pool: TaskPool,
    size: Callable[[Payload], float] = lambda _: 1.0,
) -> Done:
    """Run a task of `flows.build.shard_tasks` on each shard that has no file yet; inside a flow each is a task run.

    `task` is the name of a stage with `_shard` behind it. `pieces` are what a shard that failed is run as instead.
    Shards of the largest `size` (in any unit) come first, so that no worker is left with a long one at the end.
    Raises PassNetError where every piece failed: then the models or subgraphs are not the cause.
    """
    name = task.replace("_", "-")
    again = [one for one in shards if not _is_done(one) and any(map(_is_done, pieces(one)))]
    todo = [one for one in shards if not _is_done(one) and one not in again]
    sizes = {one["out"]: size(one) for one in todo + again}
    todo.sort(key=lambda one: -sizes[one["out"]])
    begun = [one for one in again if not all(map(_is_done, pieces(one)))]
    work = sum(sizes[one["out"]] for one in todo + begun)
    done_before = len(shards) - len(todo) - len(begun)
    stage = build_stage(task.removesuffix("_shard"), len(shards), done=done_before, work=work)
    failed = []
    for reply in _run(task, todo, pool, name):
        if reply.completed:
            size_of_one = sizes[reply.payload["out"]]
            stage.advance(f"{reply.answer['rows']} rows, {reply.seconds:.1f} s{_place(reply)}", size_of_one)
        else:
            failed.append(reply.payload)
            say(f"{name}: {_cause(reply)[1]}; its pieces are tried one by one")
    split = {one["out"]: pieces(one) for one in again + failed}
    left = {piece["out"]: first for first, parts in split.items() for piece in parts if not _is_done(piece)}
    rest = [piece for parts in split.values() for piece in parts if piece["out"] in left]
    dropped: Counter[str] = Counter()
    why = ""
    for reply in _run(task, rest, pool, f"{name}-piece"):
        if not reply.completed:
            category, message = _cause(reply)
            dropped[f"{name}: {category}"] += 1
            why = why or f"{category}: {message}"
            say(f"{name}: {category}: {message}: {json.dumps(reply.payload)[:300]}")
        first = left.pop(reply.payload["out"])
        if first not in left.values():
            stage.advance("in pieces", sizes[first])
    done = [one for first in shards for one in split.get(first["out"], [first]) if _is_done(one)]
    if shards and not done:
        raise PassNetError(f"{name} failed on all of its {len(rest)} pieces of work; the first: {why}")
    lost = Counter(dropped)
    for one in done:
        dropped.update(parquet_summary(Path(one["out"]))["dropped"])
    return Done(done, dropped, lost)


def _is_done(payload: Payload) -> bool:
    return Path(payload["out"]).exists()


def _place(reply: TaskReply) -> str:
    return f" on {reply.where}" if reply.where else ""


def _cause(reply: TaskReply) -> tuple[str, str]:
    """Category and message of a task that ended before it was complete."""
    return classify_end(reply.end, reply.code, reply.log)


def _run(task: str, payloads: Sequence[Payload], pool: TaskPool, name: str) -> Iterator[TaskReply]:
    if not payloads:
        return
    with closing(pool.run(f"{_TASKS}:{task}", payloads, f"{_TASKS}:prepare")) as replies:
        yield from each(lambda _: next(replies), payloads, name)

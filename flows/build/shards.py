"""Shards of a build run in killable workers, each once: a shard whose file is there is done, also by an earlier build.

A shard that fails (a crash, a hang, too much memory) is run again in pieces of one model or subgraph, so that it costs
what is at fault and nothing else; pieces that fail are counted by cause.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dedup.rows import summary_of
from extraction.failures import classify_end
from extraction.pool.client import Pool, TaskReply
from flows.steps import each, say
from storage.errors import PassNetError

_TASKS = "flows.build.shard_tasks"

Payload = dict[str, Any]
"""What a task of `flows.build.shard_tasks` reads, and `out`, the file that it writes."""


@dataclass(frozen=True)
class Done:
    """The shards and pieces that were done, in the order of their shards, and what all of them left out, by cause."""

    payloads: list[Payload]
    dropped: Counter[str]

    @property
    def files(self) -> list[Path]:
        return [Path(payload["out"]) for payload in self.payloads]


def shard(directory: Path, **payload: Any) -> Payload:
    """A payload with its file below `directory`, named by what the shard is of."""
    name = hashlib.sha256(json.dumps(payload, sort_keys=True).encode()).hexdigest()[:20]
    return {**payload, "out": str(directory / f"{name}.parquet")}


def run_shards(task: str, shards: Sequence[Payload], pieces: Callable[[Payload], list[Payload]], pool: Pool) -> Done:
    """Run a task of `flows.build.shard_tasks` on each shard that has no file yet; inside a flow each is a task run.

    `pieces` are what a shard that failed is run as instead. Raises PassNetError where every piece failed: then it
    is no fault of models or subgraphs.
    """
    name = task.replace("_", "-")
    say(f"{name}: {sum(not _is_done(one) for one in shards)} of {len(shards)} shards to do")
    again = [one for one in shards if not _is_done(one) and any(map(_is_done, pieces(one)))]
    todo = [one for one in shards if not _is_done(one) and one not in again]
    failed = [reply.payload for reply in _run(task, todo, pool, name) if not reply.completed]
    split = {one["out"]: pieces(one) for one in again + failed}
    rest = [piece for each_ in split.values() for piece in each_ if not _is_done(piece)]
    dropped: Counter[str] = Counter()
    why = ""
    for reply in _run(task, rest, pool, f"{name}-piece"):
        if not reply.completed:
            category, message = classify_end(reply.end, reply.code, reply.log)
            dropped[f"{name}: {category}"] += 1
            why = why or f"{category}: {message}"
            say(f"{name}: {category}: {message}: {json.dumps(reply.payload)[:300]}")
    done = [one for first in shards for one in split.get(first["out"], [first]) if _is_done(one)]
    if shards and not done:
        raise PassNetError(f"{name} failed on all of its {len(rest)} pieces of work; the first: {why}")
    for one in done:
        dropped.update(summary_of(Path(one["out"]))["dropped"])
    return Done(done, dropped)


def _is_done(payload: Payload) -> bool:
    return Path(payload["out"]).exists()


def _run(task: str, payloads: Sequence[Payload], pool: Pool, name: str) -> Iterator[TaskReply]:
    if not payloads:
        return
    with closing(pool.run(f"{_TASKS}:{task}", payloads, f"{_TASKS}:prepare")) as replies:
        for number, reply in enumerate(each(lambda _: next(replies), payloads, name), 1):
            rows = f"{reply.answer['rows']} rows" if reply.completed else f"{reply.end} {reply.code}"
            say(f"{name} {number}/{len(payloads)}: {rows}, {reply.seconds:.1f} s")
            yield reply

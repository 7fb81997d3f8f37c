"""Tasks of demonstrations as they are exported, each with the pass that its solution writes.

    DIRECTORY/NUMBER/task      the task in Harbor's layout
    DIRECTORY/NUMBER/pass      what its solve.sh has written
    DIRECTORY/NUMBER/graph     the graph's hash

Tasks are numbered in the order in which they were drawn.
"""

import contextlib
import hashlib
import io
import json
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

import pyarrow.parquet as pq

from agent.learning import verify
from agent.learning.answers import files_of
from agent.learning.harbor import write_task
from benchmarks.learning.checking.ways import GPU, INTERPRETER, LARGEST, chosen_variants
from benchmarks.learning.graph_sources import kept_sample
from benchmarks.learning.journals import journal
from storage.records import Sample

_WRITERS = 8
"""Tasks that are written at a time."""


def drawn_tasks(
    written: Sequence[Path], demonstrations: Path, seed: int, device: str, earned: Mapping[str, bool]
) -> Iterator[tuple[str, Sample, str]]:
    """Graph, sample and answer of demonstrations whose samples these journals have, in a random order.

    Variants are those that `make_demonstrations --check gpu` takes, on a CPU small ones. `earned` has graphs that were
    judged before: those that earned are left out, the others come first.
    """
    columns = ["graph_hash", "task", "answer"]
    rows = {row["graph_hash"]: row for row in pq.read_table(demonstrations, columns=columns).to_pylist()}
    lines = {line["graph_hash"]: line for place in written for line in journal(place) if not line["cause"]}
    largest = LARGEST[INTERPRETER if device == "cpu" else GPU]
    both = [g for g, line in lines.items() if g in rows and line["task"] == rows[g]["task"]]
    drawn = {graph: hashlib.sha256(f"{seed} {graph}".encode()).digest() for graph in both}
    for graph in sorted(both, key=lambda graph: (graph not in earned, drawn[graph])):
        sample = None if earned.get(graph) else chosen_variants(kept_sample(lines[graph]), 1, largest)
        if sample is not None:
            yield graph, sample, rows[graph]["answer"]


def write_tasks(tasks: Iterator[tuple[str, Sample, str]], count: int, directory: Path) -> int:
    """Write the first `count` of these tasks; returns how many there were."""

    def write(numbered: tuple[int, tuple[str, Sample, str]]) -> None:
        number, (graph, sample, answer) = numbered
        task_of(sample, answer, directory / str(number))
        (directory / str(number) / "graph").write_text(graph)

    with ThreadPoolExecutor(_WRITERS) as pool:
        return len(list(pool.map(write, enumerate(islice(tasks, count)))))


def task_of(sample: Sample, answer: str, place: Path) -> tuple[Sample, Path]:
    """A task as it is exported: the sample that its verifier has, and the pass that its solution writes."""
    write_task(sample, place / "task", files_of(answer))
    environment = {**os.environ, "PASSNET_PASSES": str(place / "pass")}
    subprocess.run([place / "task" / "solution" / "solve.sh"], env=environment, check=True)
    return written_task(place)


def written_task(place: Path) -> tuple[Sample, Path]:
    """The sample and the pass of a task that is written there."""
    return verify.kept_sample(place / "task" / "tests" / "sample"), place / "pass"


def earned_by_nothing(place: Path, device: str) -> float:
    """What the task's verifier gives where the agent has left nothing."""
    out = place / "nothing.json"
    given = ["--sample", place / "task" / "tests" / "sample", "--passes", place / "nothing", "--out", out]
    with contextlib.redirect_stdout(io.StringIO()):
        status = verify.main([*map(str, given), "--device", device])
    if status:
        raise RuntimeError(f"the verifier of {place} does not work")
    return json.loads(out.read_text("utf-8"))["reward"]

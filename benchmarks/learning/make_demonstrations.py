"""Demonstrations of the author `readable` for one graph each, without a GPU: for `benchmarks.learning.from_scratch`.

    python -m benchmarks.learning.make_demonstrations --version DIR --traces DIR --composed 2000 --held-out DIR \
        --journal DIR --workers 16 --seconds 300 --out FILE

takes the training samples of a version graph by graph, windows of traced models, and graphs that are put together at
random; leaves out what is too near to an evaluation sample of these versions or of the held-out ones; has `readable`
write a pass; and compares that with eager under the interpreter, in all dtypes at small sizes
(`benchmarks.learning.interpreted`). What is not right at t = -5 is left out and counted. Each graph is a line of a
journal when it is done: killed and run again, it goes on where it stopped. `--passbench` has all of PassBench check,
which takes seconds a graph. Without `--out` the journal alone is written.
"""

import argparse
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch

from agent.learning.answers import answer_of
from agent.learning.demonstrations import split_of
from agent.learning.leaks import HeldOut
from agent.learning.reward import earn
from agent.llm.task import describe_graphs
from agent.readable.author import Readable
from benchmarks.learning.graph_sources import (
    composed_samples,
    held_out_samples,
    shown,
    small,
    version_samples,
    window_samples,
)
from benchmarks.learning.interpreted import Interpreter
from passbench.bench import Bench
from passbench.contract import PassFiles
from passbench.policy.check import check_files
from passbench.settings import Settings
from storage.parquet import write_rows
from storage.records import Sample
from storage.versions.version import Version

SCHEMA = pa.schema(
    [
        ("split", pa.string()),  # train or validation, by family
        ("kind", pa.string()),  # real: of a version; window: of a traced model; composed
        ("sample", pa.string()),
        ("family_hash", pa.string()),
        ("graph_hash", pa.string()),
        ("op_sequence", pa.list_(pa.string())),
        ("models", pa.list_(pa.string())),
        ("task", pa.string()),
        ("answer", pa.string()),
        ("checked", pa.string()),  # how it was found right at t = -5
    ]
)
CHECKED, CHECKED_BY_PASSBENCH = "cpu interpreter", "cpu interpreter, all of PassBench"
MOST_OF_A_FAMILY = 3
QUICK = Settings(
    draws=2, draw_calls=1, calls=2, pairs=1, batch=2, warmup=0, repeats=0, double=False, call_timeout=20, threads=1
)
_LONGEST = 6000  # characters of task and answer

Check = Callable[[Sample, Mapping[str, str]], str]
"""Says what is wrong with a pass; empty if it is right."""

Line = dict[str, Any]
"""A graph in the journal: `sample`, the `cause` for which it is left out, or the row."""


def sources(arguments: argparse.Namespace, part: tuple[int, int]) -> Iterator[tuple[str, Sample]]:
    """Kind and sample of every graph of a part, the kinds in turn."""
    number, count = part
    every = [
        (("real", s) for v in arguments.version for s in version_samples(Version.open(v), part)),
        (("window", s) for t in arguments.traces for s in window_samples(t, part, arguments.windows, arguments.seed)),
        (("composed", s) for s in composed_samples(arguments.seed * 1000 + number, arguments.composed // count)),
    ]
    while every:
        for one in tuple(every):
            if (found := next(one, None)) is None:
                every.remove(one)
            else:
                yield found


def work(arguments: argparse.Namespace) -> None:
    """Write the journal of one part."""
    torch.set_num_threads(1)
    part = tuple(map(int, arguments.part.split("/")))
    path = arguments.journal / f"{arguments.part.replace('/', '-of-')}.jsonl"
    before = journal(arguments.journal)
    done = {line["sample"] for line in before}
    families = Counter(line.get("family_hash") for line in before)
    held_out = HeldOut.of(held_out_samples([*arguments.held_out, *arguments.version]))
    author = Readable(margin=-100.0, seconds=10.0)
    end = time.monotonic() + arguments.seconds
    with ExitStack() as stack, path.open("a", encoding="utf-8") as file:
        check = _by_passbench(stack.enter_context(Bench("cpu", QUICK))) if arguments.passbench else None
        check = check or stack.enter_context(Interpreter()).fault
        for kind, sample in sources(arguments, part):
            if time.monotonic() > end:
                break
            if sample.sample in done or families[sample.family_hash] >= MOST_OF_A_FAMILY:
                continue
            done.add(sample.sample)
            found = demonstration(sample, held_out, author, check, arguments.largest)
            families[found.get("family_hash")] += 1
            found["checked"] = CHECKED_BY_PASSBENCH if arguments.passbench else CHECKED
            line = {"sample": sample.sample, "kind": kind} | found
            file.write(json.dumps(line) + "\n")
            file.flush()


def _by_passbench(bench: Bench) -> Check:
    def fault(sample: Sample, files: Mapping[str, str]) -> str:
        reward = earn(bench, sample, files)
        return "" if reward.value else f"{reward.status}: {reward.reason}"

    return fault


def demonstration(sample: Sample, held_out: HeldOut, author: Readable, check: Check, largest: int) -> Line:
    """The row for a graph, or the `cause` why there is none. The check is on variants of at most `largest` elements."""
    first = sample.variants[0]
    if cause := held_out.why_not(sample):
        return {"cause": cause}
    written = author.write(_in_one_dtype(shown(sample)))
    if not written.files:
        return {"cause": f"not written: {written.reason[:60]}"}
    files = PassFiles(tuple(m.name for m in written.modules), written.files, ())
    if findings := check_files(files):
        return {"cause": f"refused: {findings[0].rule}"}
    task, answer = describe_graphs(shown(sample)), answer_of(written.files)
    if len(task) + len(answer) > _LONGEST:
        return {"cause": "too long"}
    chosen = small(sample, largest)
    if chosen is None:
        return {"cause": "no variant is small enough to be interpreted"}
    if fault := check(chosen, written.files):
        return {"cause": "wrong", "reason": fault[:300]}
    return {
        "cause": "",
        "split": split_of(sample.family_hash),
        "family_hash": sample.family_hash,
        "graph_hash": first.graph_hash,
        "op_sequence": list(first.graph.op_sequence),
        "models": sorted({source.model for v in sample.variants for source in v.sources}),
        "task": task,
        "answer": answer,
    }


def _in_one_dtype(sample: Sample) -> Sample:
    """The half type alone where dtypes are all that variants differ in: `readable` writes the same for it."""
    by_dtype = {
        next(iter({i.dtype for i in v.inputs})): v for v in sample.variants if len({i.dtype for i in v.inputs}) == 1
    }
    same = len({tuple((i.shape, i.stride) for i in v.inputs) for v in sample.variants}) == 1
    if same and set(by_dtype) == {"float32", "float16", "bfloat16"}:
        return replace(sample, variants=(by_dtype["float16"],))
    return sample


def journal(directory: Path) -> list[Line]:
    """All whole lines that are in a journal so far."""
    texts = [path.read_text("utf-8") for path in sorted(directory.glob("*.jsonl"))]
    return [json.loads(line) for text in texts for line in text.split("\n")[:-1]]


def rows_of(lines: list[Line]) -> list[Line]:
    """The rows of a journal, each graph once, a few of a family; those that are of real models come first."""
    graphs: set[str] = set()
    families: Counter[str] = Counter()
    rows = []
    for line in sorted(lines, key=lambda line: line["kind"] == "composed"):
        if line["cause"] or line["graph_hash"] in graphs:
            continue
        graphs.add(line["graph_hash"])
        families[line["family_hash"]] += 1
        if families[line["family_hash"]] <= MOST_OF_A_FAMILY:
            rows.append({name: line[name] for name in SCHEMA.names})
    return rows


def main() -> int:
    """Write the journal and the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--version", type=Path, action="append", default=[])
    add("--traces", type=Path, action="append", default=[], help="a directory of traces")
    add("--windows", type=int, default=60, help="windows of a traced graph, at most")
    add("--composed", type=int, default=0, help="graphs that are put together at random")
    add("--held-out", type=Path, action="append", required=True)
    add("--seed", type=int, default=0)
    add("--workers", type=int, default=1)
    add("--part", default="", metavar="I/N", help="what a worker is told")
    add("--largest", type=int, default=60_000, help="elements of a variant that is interpreted, at most")
    add("--seconds", type=float, default=1e9, help="stop taking graphs after these")
    add("--passbench", action="store_true", help="check with all of PassBench")
    add("--journal", type=Path, required=True)
    add("--out", type=Path)
    arguments = parser.parse_args()
    arguments.journal.mkdir(parents=True, exist_ok=True)
    if arguments.part:
        work(arguments)
        return 0
    begun = [
        subprocess.Popen([sys.executable, "-m", __spec__.name, *sys.argv[1:], "--part", f"{n}/{arguments.workers}"])
        for n in range(arguments.workers)
    ]
    codes = [process.wait() for process in begun]
    if any(codes):
        print("a worker ended early; what it has done is in the journal", file=sys.stderr)
        return 1
    lines = journal(arguments.journal)
    rows = rows_of(lines)
    if arguments.out is not None:
        write_rows(arguments.out, rows, SCHEMA)
    print(f"{len(rows)} rows, {len({r['family_hash'] for r in rows})} families")
    for (kind, cause), count in Counter((line["kind"], line["cause"]) for line in lines).most_common():
        print(f"{count:6} {kind}: {cause or 'a demonstration'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

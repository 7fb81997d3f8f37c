"""Demonstrations of the author `readable` for one graph each: for `benchmarks.learning.from_scratch`.

    python -m benchmarks.learning.make_demonstrations --version DIR --traces DIR --composed 2000 --held-out DIR \
        --journal DIR --workers 16 --seconds 300 --out FILE

takes the training samples of a version graph by graph, windows of traced models, and graphs that are put together at
random; leaves out what is too near to an evaluation sample of these versions or of the held-out ones; has `readable`
write a pass; and checks it, as `--check` says: by the interpreter, in all dtypes at small sizes; on the GPUs that there
are, many one after another in a process (`benchmarks.learning.checking.own_passes`); by PassBench there, many side by
side; the same one at a time, with times; or later: passes are written alone, and a run with `--written` on the journal
of this one checks them before it looks for other graphs. What is not right at
t = -5 is left out and counted. Each graph is a line of a journal when it is done: killed and run again, it goes on
where it stopped. Without `--out` the journal alone is written. `--keep FILE` adds the rows of an earlier file whose
graphs have none.
"""

import argparse
import json
import os
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch

from agent.learning.answers import answer_of, files_of
from agent.learning.demonstrations import split_of
from agent.learning.leaks import HeldOut
from agent.learning.rationale import rationale
from agent.llm.task import describe_graphs
from agent.readable.author import Readable
from benchmarks.learning.checking.doubt import exact
from benchmarks.learning.checking.verdicts import BY_PASSBENCH
from benchmarks.learning.checking.ways import INTERPRETER, LATER, WAYS, Check, checking
from benchmarks.learning.claims import Claims
from benchmarks.learning.graph_sources import (
    composed_samples,
    held_out_samples,
    kept_sample,
    line_of,
    shown,
    version_samples,
    window_samples,
)
from benchmarks.learning.journals import Line, journal
from benchmarks.learning.parts import begun
from passbench.contract import NAMES_FILE, PassFiles
from passbench.policy.check import check_files
from passbench.result import libraries
from storage.parquet import read_rows, write_rows
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
        ("rationale", pa.string()),  # what is fused and what that saves; of earlier rows empty
        ("checked", pa.string()),  # how it was found right
        ("device", pa.string()),  # where
        ("libraries", pa.string()),  # JSON: versions of torch and triton there
        ("variants", pa.int64()),  # how many of the graph's
        ("level", pa.int64()),  # the largest t at which all of them are right
        ("speedup_e2e", pa.float64()),  # the geometric mean over them; empty where it was not timed alone on a GPU
        ("speedup_device", pa.float64()),
    ]
)
CLAIMS = "claims"
MOST_OF_A_FAMILY = 3
WRONG = "wrong"
"""The cause of a pass that a check found wrong."""
_LONGEST = 24_000  # characters of task and answer
_ANSWER_TO_TASK = 3
"""How much longer an answer is than its task in the median. Graphs whose answers would be too long take the longest to
write; of 648 tasks whose answers fitted, the longest has 6,251 characters."""
_ROUNDED = "right at t = "
"""So begins a fault that another rounding than eager's may be the cause of: many a backward graph amplifies it."""


def sources(arguments: argparse.Namespace, part: tuple[int, int]) -> Iterator[tuple[str, Sample]]:
    """Kind and sample of every graph of a part: those whose passes are written, then of each version, each directory of
    traces and those put together in turn."""
    number, count = part
    lines = chain.from_iterable(map(journal, arguments.written))
    if arguments.exact:
        written = (line for line in lines if not line["cause"])
        lines = sorted((one for one in written if exact(files_of(one["answer"]))), key=lambda one: len(one["answer"]))
    for line in lines:
        if int(line["graph_hash"][:8], 16) % count == number and not line["cause"]:
            yield line["kind"], kept_sample(line)
    every = [
        *((("real", s) for s in version_samples(Version.open(v), part)) for v in arguments.version),
        *(
            (("window", s) for s in window_samples(t, part, arguments.windows, arguments.seed))
            for t in arguments.traces
        ),
        (("composed", s) for s in composed_samples(arguments.seed * 1000 + number, arguments.composed // count)),
    ]
    while every:
        for one in tuple(every):
            if (found := next(one, None)) is None:
                every.remove(one)
            else:
                yield found


def work(arguments: argparse.Namespace, niceness: int = 0) -> None:
    """Write the journal of one part, as a process that is so much nicer than others."""
    os.nice(niceness)
    end = time.monotonic() + arguments.seconds
    torch.set_num_threads(1)
    part = number, _ = tuple(map(int, arguments.part.split("/")))
    path = arguments.journal / f"{arguments.part.replace('/', '-of-')}.jsonl"
    done = {line["sample"] for line in journal(arguments.journal)}
    claims = Claims(arguments.journal / CLAIMS, arguments.of_a_family)
    written = {line["sample"]: line for place in arguments.written for line in journal(place)}
    held_out = HeldOut.of(held_out_samples([*arguments.held_out, *arguments.version]))
    author = Readable(margin=-100.0, seconds=10.0)
    with (
        checking(arguments.check, number, arguments.variants, arguments.largest, arguments.journal) as check,
        path.open("a", encoding="utf-8") as file,
    ):
        for kind, sample in sources(arguments, part):
            if time.monotonic() > end:
                break
            graph = sample.variants[0].graph_hash
            if sample.sample in done or (place := claims.take(graph, sample.family_hash)) is None:
                continue
            found = demonstration(sample, held_out, author, check, written.get(sample.sample))
            if found["cause"]:
                claims.leave(place)
            about = {"sample": sample.sample, "kind": kind, "graph_hash": graph, "family_hash": sample.family_hash}
            if arguments.check == LATER and not found["cause"]:
                about |= line_of(shown(sample))
            file.write(json.dumps(about | found) + "\n")
            file.flush()


def demonstration(
    sample: Sample, held_out: HeldOut, author: Readable, check: Check, written: Mapping[str, Any] | None = None
) -> Line:
    """The row for a graph, or the `cause` why there is none. `written`: its line in a journal, whose pass was not
    checked."""
    if cause := held_out.why_not(sample):
        return {"cause": cause}
    if written is not None and written["cause"]:
        return {name: written[name] for name in ("cause", "reason") if name in written}
    task = describe_graphs(shown(sample))
    if len(task) > _LONGEST // _ANSWER_TO_TASK:
        return {"cause": "too long"}
    files, cause = (files_of(written["answer"]), "") if written else _written(sample, author)
    if cause:
        return {"cause": cause}
    answer = answer_of(files)
    if len(task) + len(answer) > _LONGEST:
        return {"cause": "too long"}
    began = time.monotonic()
    result = asdict(check(sample, files))
    if result["fault"].startswith(_ROUNDED) and (files := Readable().replayed(_in_one_dtype(shown(sample))).files):
        answer, result = answer_of(files), asdict(check(sample, files))
    fault, cause = result.pop("fault"), result.pop("cause")
    if fault or cause:
        return {"cause": cause or WRONG, "reason": fault[:300], "answer": answer}
    return {
        "cause": "",
        "split": split_of(sample.family_hash),
        "op_sequence": list(sample.variants[0].graph.op_sequence),
        "models": sorted({source.model for v in sample.variants for source in v.sources}),
        "task": task,
        "answer": answer,
        "rationale": rationale(sample.variants[0], files),
        "libraries": json.dumps({name: libraries()[name] for name in ("torch", "triton")}),
        "check_seconds": round(time.monotonic() - began, 2),
        **result,
    }


def _written(sample: Sample, author: Readable) -> tuple[Mapping[str, str], str]:
    """The files of a pass for a graph, and the cause why there are none."""
    made = author.write(_in_one_dtype(shown(sample)))
    if not made.files:
        return {}, f"not written: {made.reason[:60]}"
    names = tuple(json.loads(made.files[NAMES_FILE]))
    findings = check_files(PassFiles(names, made.files, ()))
    return made.files, f"refused: {findings[0].rule}" if findings else ""


def _in_one_dtype(sample: Sample) -> Sample:
    """The half type alone where dtypes are all that variants differ in: `readable` writes the same for it."""
    by_dtype = {
        next(iter({i.dtype for i in v.inputs})): v for v in sample.variants if len({i.dtype for i in v.inputs}) == 1
    }
    same = len({tuple((i.shape, i.stride) for i in v.inputs) for v in sample.variants}) == 1
    if same and set(by_dtype) == {"float32", "float16", "bfloat16"}:
        return replace(sample, variants=(by_dtype["float16"],))
    return sample


def kept_rows(arguments: argparse.Namespace) -> list[Line]:
    """The rows of earlier files, without those of the family or the op sequence of a sample that is held out now."""
    rows = [row for path in arguments.keep for row in read_rows(path, SCHEMA)]
    held = HeldOut.of(held_out_samples([*arguments.held_out, *arguments.version])) if rows else HeldOut.of(())
    near = (r["family_hash"] in held.families or tuple(r["op_sequence"]) in held.sequences for r in rows)
    return [row for row, too_near in zip(rows, near, strict=True) if not too_near]


def rows_of(lines: list[Line], kept: list[Line], most: int = MOST_OF_A_FAMILY) -> list[Line]:
    """The rows of a journal, and the `kept` ones of an earlier file: each graph once, as it was checked best, `most` of
    a family. Those of real models come first. A graph has no row where any line of the journal says that its pass is
    wrong."""
    wrong = {line["graph_hash"] for line in lines if line.get("cause") == WRONG}
    graphs: set[str] = set()
    families: Counter[str] = Counter()
    rows = []
    found = [line for line in (*lines, *kept) if not line.get("cause") and line["checked"]]
    found = [line for line in found if line["graph_hash"] not in wrong]
    for line in sorted(found, key=lambda one: (one["kind"] == "composed", *_least_sure_last(one))):
        if line["graph_hash"] in graphs:
            continue
        graphs.add(line["graph_hash"])
        families[line["family_hash"]] += 1
        if families[line["family_hash"]] <= most:
            rows.append({name: line[name] for name in SCHEMA.names})
    return rows


def _least_sure_last(line: Line) -> tuple[bool, bool, bool]:
    return line["device"] == "cpu", line["checked"] != BY_PASSBENCH, line["speedup_e2e"] is None


def arguments_of(given: Sequence[str] | None = None) -> argparse.Namespace:
    """What a command line says."""
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
    add("--check", choices=WAYS, default=INTERPRETER)
    add("--variants", type=int, default=3, help="variants of a graph that PassBench checks, at most")
    add("--largest", type=int, help="elements of a variant that is checked, at most")
    add("--of-a-family", type=int, default=MOST_OF_A_FAMILY, help="demonstrations of a family, at most")
    add("--written", type=Path, action="append", default=[], help="a journal whose passes were left for later")
    add(
        "--exact",
        action="store_true",
        help="of those only passes with eager's bits (checking/doubt.py); short first",
    )
    add("--keep", type=Path, action="append", default=[], help="a file of earlier demonstrations")
    add("--seconds", type=float, default=1e9, help="stop taking graphs after these")
    add("--journal", type=Path, required=True)
    add("--out", type=Path)
    return parser.parse_args(given)


def main() -> int:
    """Write the journal and the file."""
    arguments = arguments_of()
    arguments.journal.mkdir(parents=True, exist_ok=True)
    if arguments.part:
        work(arguments)
        return 0
    shutil.rmtree(arguments.journal / CLAIMS, ignore_errors=True)
    Claims(arguments.journal / CLAIMS, arguments.of_a_family).fill(journal(arguments.journal))
    parts = [f"{n}/{arguments.workers}" for n in range(arguments.workers)]
    workers = [begun(work, argparse.Namespace(**{**vars(arguments), "part": part})) for part in parts]
    for worker in workers:
        worker.join()
    if any(worker.exitcode for worker in workers):
        print("a worker ended early; what it has done is in the journal", file=sys.stderr)
        return 1
    lines = journal(arguments.journal)
    rows = rows_of(lines, kept_rows(arguments), arguments.of_a_family)
    if arguments.out is not None:
        write_rows(arguments.out, rows, SCHEMA)
    print(f"{len(rows)} rows, {len({r['family_hash'] for r in rows})} families")
    for (kind, cause), count in Counter((line["kind"], line["cause"]) for line in lines).most_common():
        print(f"{count:6} {kind}: {cause or ('a demonstration' if arguments.check != LATER else 'written')}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

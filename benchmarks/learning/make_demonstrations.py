"""Demonstrations of the author `readable` for one graph each, without a GPU: for `benchmarks.learning.from_scratch`.

    python -m benchmarks.learning.make_demonstrations --version DIR --held-out DIR --composed 2000 --out FILE

takes the training samples of a version graph by graph, and graphs that are put together at random, leaves out what is
too near to a sample of the held-out versions, and has `readable` write a pass. `--check N` runs every N-th pass through
PassBench on the CPU, in all dtypes at small sizes, and prints how many are right; wrong ones are left out.
"""

import argparse
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from agent.learning.answers import answer_of
from agent.learning.demonstrations import split_of
from agent.learning.leaks import HeldOut
from agent.learning.reward import earn
from agent.llm.task import describe_graphs
from agent.readable.author import Readable
from benchmarks.learning.composed import composed
from passbench.bench import Bench
from passbench.contract import NAMES_FILE, PassFiles
from passbench.policy.check import check_files
from passbench.settings import Settings
from storage.parquet import write_rows
from storage.records import Sample, Variant
from storage.versions.samples import load_samples
from storage.versions.version import Version

SCHEMA = pa.schema(
    [
        ("split", pa.string()),  # train or validation, by family
        ("kind", pa.string()),  # real or composed
        ("sample", pa.string()),
        ("family_hash", pa.string()),
        ("graph_hash", pa.string()),
        ("op_sequence", pa.list_(pa.string())),
        ("models", pa.list_(pa.string())),
        ("task", pa.string()),
        ("answer", pa.string()),
        ("checked", pa.bool_()),
    ]
)
QUICK = Settings(draws=2, calls=2, batch=2, warmup=1, repeats=0, double=False, call_timeout=20)
_LONGEST = 6000  # characters of task and answer


def graph_samples(version: Version) -> Iterator[Sample]:
    """The training samples of a version, a sample for each graph; forward and backward, small graphs first."""
    found = []
    for sample in load_samples(version, "train", ("fusible", "typical", "sole_op")):
        found += _by_graph(sample.variants)
    yield from sorted(found, key=lambda s: (len(s.variants[0].graph.ops), s.sample))


def unpublished_samples(directory: Path, part: tuple[int, int]) -> Iterator[Sample]:
    """The fusible variants that a build has in files so far, a sample for each graph, in the order of their hashes."""
    rows = [row for path in sorted(directory.glob("*.parquet")) for row in pq.read_table(path).to_pylist()]
    found = _by_graph(Variant.from_row(row) for row in rows if row["category"] == "fusible")
    yield from sorted(found, key=lambda s: s.variants[0].graph_hash)[part[0] :: part[1]]


def _by_graph(variants: Iterable[Variant]) -> list[Sample]:
    graphs = defaultdict(dict)
    for one in variants:
        graphs[one.graph_hash].setdefault(one.variant_hash, one)
    found = []
    for hash_, kept in graphs.items():
        family = next(iter(kept.values())).family_hash
        category = next(iter(kept.values())).category
        name = f"{category}-{family[:12]}-{hash_[:6]}"
        found.append(Sample(name, family, category, "train", tuple(kept.values())))
    return found


def held_out_samples(places: list[Path]) -> list[Sample]:
    """All samples of these versions: none of them may be learned from."""
    return [sample for place in places for sample in load_samples(Version.open(place))]


def small(sample: Sample, limit: int = 300_000) -> Sample | None:
    """The first small variant of each dtype; None if there is none."""
    kept = {}
    for one in sample.variants:
        if sum(_count(i.shape) for i in (*one.inputs, *one.outputs)) <= limit:
            kept.setdefault(tuple(i.dtype for i in one.inputs), one)
    return replace(sample, variants=tuple(kept.values())) if kept else None


def _count(shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


def main() -> int:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", type=Path, action="append", default=[])
    parser.add_argument("--held-out", type=Path, action="append", default=[])
    parser.add_argument("--rows", type=Path, help="files of variants of a build that is not published yet")
    parser.add_argument("--part", default="0/1", metavar="I/N", help="of --rows, the I-th of N parts, from 0")
    parser.add_argument("--composed", type=int, default=0, help="graphs that are put together at random")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=1e9, help="stop taking graphs after these")
    parser.add_argument("--check", type=int, default=0, metavar="N")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    eval_samples = held_out_samples(arguments.held_out)
    for place in arguments.version:
        eval_samples += load_samples(Version.open(place), "eval")
    held_out = HeldOut.of(eval_samples)
    real = [("real", s) for place in arguments.version for s in graph_samples(Version.open(place))]
    if arguments.rows is not None:
        number, _, count = arguments.part.partition("/")
        real += [("real", s) for s in unpublished_samples(arguments.rows, (int(number), int(count)))]
    made = (("composed", s) for s in islice(composed(arguments.seed), arguments.composed))
    rows, causes, seen, author = [], Counter(), set(), Readable(margin=-100.0, seconds=10.0)
    end = time.monotonic() + arguments.seconds
    with Bench("cpu", QUICK) as bench:
        for kind, sample in (*real, *made):
            if time.monotonic() > end:
                break
            cause, row = _row(sample, kind, held_out, seen, author)
            if row is not None and arguments.check and len(rows) % arguments.check == 0:
                cause = _checked(bench, sample, row)
            causes[cause or f"{kind}: written"] += 1
            if row is not None and not cause.startswith("wrong"):
                rows.append(row)
                if len(rows) % 100 == 0:
                    print(len(rows), dict(causes.most_common(6)), flush=True)
    for row in rows:
        del row["files"]
    write_rows(arguments.out, rows, SCHEMA)
    print(f"{len(rows)} rows, {len({r['family_hash'] for r in rows})} families in {arguments.out}")
    for cause, count in causes.most_common():
        print(f"{count:6} {cause}")
    return 0


def _row(sample: Sample, kind: str, held_out: HeldOut, seen: set[str], author: Readable) -> tuple[str, dict | None]:
    first = sample.variants[0]
    if first.graph_hash in seen:
        return "a graph that has a row", None
    if cause := held_out.why_not(sample):
        return cause, None
    written = author.write(sample)
    if not written.files:
        return f"not written: {written.reason[:60]}", None
    files = PassFiles(tuple(m.name for m in written.modules), written.files, ())
    if findings := check_files(files):
        return f"refused: {findings[0].rule}", None
    task, answer = describe_graphs(sample), answer_of(written.files)
    if len(task) + len(answer) > _LONGEST:
        return "too long", None
    seen.add(first.graph_hash)
    return "", {
        "split": split_of(sample.family_hash),
        "kind": kind,
        "sample": sample.sample,
        "family_hash": sample.family_hash,
        "graph_hash": first.graph_hash,
        "op_sequence": list(first.graph.op_sequence),
        "models": sorted({source.model for v in sample.variants for source in v.sources}),
        "task": task,
        "answer": answer,
        "checked": False,
        "files": written.files,
    }


def _checked(bench: Bench, sample: Sample, row: dict) -> str:
    """Checks a row; says why it is wrong, or how it was checked."""
    chosen = small(sample)
    if chosen is None:
        return ""
    reward = earn(bench, chosen, {name: row["files"][name] for name in (*row["files"],) if name != NAMES_FILE}
                  | {NAMES_FILE: row["files"][NAMES_FILE]})  # fmt: skip
    row["checked"] = reward.value > 0
    if not reward.value:
        print(f"wrong: {sample.sample}: {reward.status}: {reward.reason[:200]}", flush=True)
    return "checked: right" if reward.value else f"wrong: {reward.status}"


if __name__ == "__main__":
    sys.exit(main())

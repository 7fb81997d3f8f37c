"""Varying by two trees of the code, which take turns: processor seconds of each, and whether they make equal rows.

    python3 -m benchmarks.extraction.tracing.varying_in_turns --tree BEFORE --tree AFTER --traces FILE --out FILE

Cuts the graphs of a file of traces, and takes every so many-th of the distinct sole_op and fusible subgraphs. Each
tree has a process of its own, warm as the workers of a build are; which one is first changes from subgraph to subgraph.
So what else the machine does falls on both.
"""

import argparse
import gc
import hashlib
import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from dedup.hashes import identify, identify_base
from dedup.rows import batches
from extraction.cutting.cut import cut_graph
from extraction.pool.server import YOUNG_OBJECTS
from extraction.tracing.trace_files import read_traces
from flows.build.shard_tasks import prepare, variants_of
from storage.records import Variant


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tree", type=Path, action="append", required=True, help="a checkout of the repository")
    parser.add_argument("--traces", type=Path, required=True)
    parser.add_argument("--every", type=int, default=20)
    parser.add_argument("--points", type=int, default=3, help="shape points of a subgraph at most")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    command = [sys.executable, str(Path(__file__).resolve()), "--worker", str(arguments.points)]
    workers = [
        subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(tree.resolve())}, stdin=-1, stdout=-1, text=True)
        for tree in arguments.tree
    ]
    seconds: dict[str, list[float]] = {}
    counts: Counter[str] = Counter()
    for number, subgraph in enumerate(_subgraphs(arguments.traces)):
        if number % arguments.every:
            continue
        asked = json.dumps(subgraph.to_row(), default=str)
        answers = {}
        for place in sorted(range(len(workers)), reverse=bool(number // arguments.every % 2)):
            workers[place].stdin.write(asked + "\n")
            workers[place].stdin.flush()
            answers[place] = json.loads(workers[place].stdout.readline())
        of_category = seconds.setdefault(subgraph.category, [0.0] * len(workers))
        for place, answer in answers.items():
            of_category[place] += answer["seconds"]
        counts["subgraphs"] += 1
        counts["rows"] += answers[0]["rows"]
        counts["different"] += len({answer["digest"] for answer in answers.values()}) > 1
    found = {**counts, "seconds": {name: [round(each, 2) for each in both] for name, both in seconds.items()}}
    arguments.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(found))
    for worker in workers:
        worker.stdin.close()
        worker.wait()


def _subgraphs(traces: Path) -> list[Variant]:
    """Distinct subgraphs in the order of their base hashes."""
    found = {}
    for graph in read_traces(traces)[1]:
        for subgraph in map(identify_base, cut_graph(graph, Counter())):
            found.setdefault(subgraph.variant_hash, subgraph)
    return [found[name] for name in sorted(found)]


def work(points: int) -> None:
    """Varies each row of standard input, as the code on PYTHONPATH does it."""
    gc.disable()
    prepare()
    gc.freeze()
    gc.enable()
    gc.set_threshold(YOUNG_OBJECTS)
    for line in sys.stdin:
        subgraph, dropped = Variant.from_row(json.loads(line)), Counter()
        begin = time.process_time()
        made = list(batches(map(identify, variants_of(subgraph, dropped, points))))
        seconds = time.process_time() - begin
        text = repr([[batch.to_pylist() for batch in made], sorted(dropped.items())])
        digest = hashlib.sha256(text.encode()).hexdigest()
        print(json.dumps({"seconds": seconds, "rows": sum(map(len, made)), "digest": digest}), flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        work(int(sys.argv[2]))
    else:
        main()

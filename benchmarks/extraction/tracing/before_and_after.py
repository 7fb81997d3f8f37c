"""Models drawn at random, traced and counted by an earlier tree's workers and by this one's: seconds by stage.

    git worktree add /tmp/before b24c46e
    python -m benchmarks.extraction.tracing.before_and_after --before /tmp/before --models 40 --out FILE

Seconds are of a processor. Each tree has one warm process, set up as `extraction.pool.server` sets up its own; a model
is a fork of it, one at a time, the two trees in turns. "trace" is all until a task's first answer (the graphs),
"kernels" until its second. "plain" is `torch.compile` with a backend that only takes the graph, on the same tensors
with fixed sizes, in this tree's process. "same" says of graphs, and of which ops need a kernel together, whether both
trees give the same; how kernels are numbered is left out.
"""

import argparse
import gc
import hashlib
import json
import os
import platform
import random
import resource
import statistics
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

CATALOG = Path("benchmarks/extraction/whole_corpus.txt")
LIMIT_S = 240
"""Processor seconds after which a model is given up, in each tree."""
THIS = Path(__file__).resolve()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--models", type=int, default=40)
    parser.add_argument("--seed", type=int, default=23)
    parser.add_argument("--seconds", type=float, default=1_800, help="no model is begun after so many")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--serve", action="store_true", help="used by itself")
    arguments = parser.parse_args()
    if arguments.serve:
        serve()
        return
    lines = [line for line in CATALOG.read_text().splitlines() if line.startswith(("timm:", "transformers:"))]
    drawn = random.Random(arguments.seed).sample(lines, arguments.models)
    started = time.monotonic()
    trees = {"before": _started(arguments.before.resolve()), "after": _started(THIS.parents[3])}
    rows: dict[str, dict[str, Any]] = {}
    for model in drawn:
        if time.monotonic() - started > arguments.seconds:
            break
        found = {name: _asked(tree, model, name == "after") for name, tree in trees.items()}
        answers = [each.pop("digests", (None, None)) for each in found.values()]
        same = [None not in pair and pair[0] == pair[1] for pair in zip(*answers, strict=True)]
        rows[model] = {**found, "same": dict(zip(("graphs", "kernels"), same, strict=True))}
        print(model, json.dumps(rows[model]), flush=True)
        arguments.out.write_text(json.dumps(_summary(rows, len(drawn)), indent=1) + "\n")
    for tree in trees.values():
        tree.stdin.close()
        tree.wait()
    print(json.dumps({key: value for key, value in _summary(rows, len(drawn)).items() if key != "models"}, indent=1))


def _summary(rows: dict[str, dict[str, Any]], drawn: int) -> dict[str, Any]:
    both = {model: row for model, row in rows.items() if all("kernels" in row[tree] for tree in ("before", "after"))}
    total = {t: [row[t]["trace"] + row[t]["kernels"] for row in both.values()] for t in ("before", "after")}
    plain = [row["after"]["plain"] for row in both.values()]
    by_plain = {tree: [each / one for each, one in zip(total[tree], plain, strict=True) if one] for tree in total}
    return {
        "drawn": drawn,
        "run": len(rows),
        "traced_by_both": len(both),
        "same": {what: sum(row["same"][what] for row in both.values()) for what in ("graphs", "kernels")},
        "seconds": {
            "before": {stage: _sum(both, "before", stage) for stage in ("trace", "kernels")},
            "after": {stage: _sum(both, "after", stage) for stage in ("plain", "trace", "kernels")},
        },
        "times_faster_in_the_mean": round(sum(total["before"]) / sum(total["after"]), 2) if both else None,
        "by_plain_in_the_median": {t: round(statistics.median(each), 2) for t, each in by_plain.items()}
        if both
        else None,
        "by_plain_at_most": {t: round(max(each), 2) for t, each in by_plain.items()} if both else None,
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[1], 1),
        "processor": platform.machine(),
        "torch": torch.__version__,
        "models": rows,
    }


def _sum(rows: dict[str, dict[str, Any]], tree: str, stage: str) -> float:
    return round(sum(row[tree][stage] or 0 for row in rows.values()), 1)


def _started(tree: Path) -> subprocess.Popen:
    from extraction.pool.client import ENVIRONMENT  # so that both trees' processes are as their workers are

    environment = {**os.environ, **ENVIRONMENT, "PYTHONPATH": str(tree)}
    return subprocess.Popen(
        [sys.executable, str(THIS), "--serve"], cwd=tree, env=environment, text=True, bufsize=1,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip


def _asked(tree: subprocess.Popen, model: str, with_plain: bool) -> dict[str, Any]:
    tree.stdin.write(json.dumps([model, with_plain]) + "\n")
    return json.loads(tree.stdout.readline())


def serve() -> None:
    """Answers each line of the standard input, a model, with a line of what it took."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what models print
    sys.path = [each for each in sys.path if Path(each or ".").resolve() != THIS.parent]
    torch.set_num_threads(1)  # a fork of a process with threads would wait for them
    gc.disable()
    import_module("extraction.tracing.trace_workers").prepare()
    gc.freeze()
    gc.enable()
    gc.set_threshold(import_module("extraction.pool.server").YOUNG_OBJECTS)
    for line in sys.stdin:
        model, with_plain = json.loads(line)
        row = _in_fork(stages, model)
        if with_plain:
            row["plain"] = _in_fork(plain, model).get("plain")  # None where dynamo fails with fixed sizes
        answers.write(json.dumps(row) + "\n")
        answers.flush()


def _in_fork(measure: Any, model: str) -> dict[str, Any]:
    read, write = os.pipe()
    if os.fork() == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (LIMIT_S, LIMIT_S))
        try:
            row = measure(model)
        except BaseException as error:  # a model may raise anything
            row = {"error": f"{type(error).__name__}: {error}"[:200]}
        os.write(write, json.dumps(row).encode())
        os._exit(0)
    os.close(write)
    with open(read, encoding="utf-8") as answer:
        text = answer.read()
    os.wait()
    return json.loads(text or f'{{"error": "more than {LIMIT_S} s"}}')


def plain(model: str) -> dict[str, float]:
    """Seconds of a dynamo capture as it comes."""
    from extraction.examples.inputs import Example
    from extraction.sources.catalog import parse_entry
    from extraction.sources.spec import spec_of
    from extraction.tracing.trace import build

    module, inputs = build(spec_of(parse_entry(model)))
    tensors = {name: each.tensor if isinstance(each, Example) else each for name, each in inputs.items()}
    started = time.process_time()
    with torch.no_grad():
        torch.compile(module, backend=lambda graph, _: graph.forward, dynamic=False)(**tensors)
    return {"plain": round(time.process_time() - started, 2)}


def stages(model: str) -> dict[str, Any]:
    """Seconds of a worker's task until each of its two answers, the number of ops, and digests of the answer."""
    from extraction.sources.catalog import parse_entry
    from extraction.sources.spec import spec_of
    from extraction.tracing.trace_workers import trace_task

    task = trace_task({"model": model, "spec": spec_of(parse_entry(model)).to_json()})
    started = time.process_time()
    first = next(task)
    if "error" in first:
        return {"error": first["error"][0], "trace": round(time.process_time() - started, 2)}
    traced = time.process_time()
    graphs = next(task)["graphs"]
    ended = time.process_time()
    kernels = [_together(graph.pop("kernels")) for graph in graphs]
    digests = [hashlib.sha256(json.dumps(part, sort_keys=True).encode()).hexdigest()[:16] for part in (graphs, kernels)]
    ops = sum(len(json.loads(graph["graph"])["ops"]) for graph in graphs)
    return {"trace": round(traced - started, 2), "kernels": round(ended - traced, 2), "ops": ops, "digests": digests}


def _together(needs: list[list[int]] | None) -> list[list[int]] | None:
    """For each kernel the ops that need it, in order."""
    if needs is None:
        return None
    ops: dict[int, list[int]] = {}
    for op, kernels in enumerate(needs):
        for kernel in kernels:
            ops.setdefault(kernel, []).append(op)
    return sorted(ops.values())


if __name__ == "__main__":
    main()

"""Fusible ranges predicted from one schedule against ranges measured prefix by prefix: how many are identical, and why
the others are not; and the time of both.

    python benchmarks/extraction/kernel_counting.py --device cuda --out DIR \
        --models benchmarks/extraction/counting_models.txt

Pieces of at most `--size` ops are cut out of traced models, `--per-model` each, at borders that few values cross; equal
pieces are measured once. Each piece is measured by a worker process, `--workers` side by side on one GPU. When
`--budget` seconds are over, what is measured is written. `--windows FILE` keeps the pieces: they are read from there if
it exists, so that they can be cut where the model libraries are and measured where the GPU is.

Writes DIR/results.json and DIR/README.md. `--device cpu` measures TorchInductor's C++ kernels and `--device reference`
counts the schedule of each prefix by itself; both check the machinery without a GPU and are no measurements.
"""

import argparse
import json
import multiprocessing
import multiprocessing.connection
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

GRACE_S = 60.0
"""How long a worker may go on with one compilation when the budget is over, in seconds."""

Range = tuple[int, int]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="", help="a catalogue file, or entries with commas between them")
    parser.add_argument("--graphs", type=int, default=40, help="pieces at most")
    parser.add_argument("--per-model", type=int, default=2)
    parser.add_argument("--size", type=int, default=48, help="ops of a piece at most")
    parser.add_argument("--device", choices=("cuda", "cpu", "reference"), default="cuda")
    parser.add_argument("--budget", type=float, default=300.0, help="seconds")
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 1))
    parser.add_argument("--windows", type=Path, help="JSON lines of the pieces: read, or written if not there")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    began = time.monotonic()
    if arguments.windows and arguments.windows.exists():
        lines = arguments.windows.read_text().splitlines()
    else:
        lines = pieces(entries(arguments.models), arguments.size, arguments.per_model, arguments.workers)
        if arguments.windows:
            arguments.windows.write_text("".join(line + "\n" for line in lines))
    lines = spread(lines, arguments.graphs)
    print(f"{len(lines)} pieces after {time.monotonic() - began:.0f} s", flush=True)
    rows = []
    tasks = [(line, arguments.device) for line in lines]
    for row in side_by_side(compare, tasks, arguments.workers, began + arguments.budget):
        rows.append(row)
        print(f"[{len(rows)}/{len(lines)}] {row['piece']}: {said(row)}", flush=True)
    arguments.out.mkdir(parents=True, exist_ok=True)
    report = {"device": arguments.device, **machine(arguments.device), "wall_s": round(time.monotonic() - began, 1)}
    report |= {"summary": summary(rows), "pieces": sorted(rows, key=lambda row: row["piece"])}
    (arguments.out / "results.json").write_text(json.dumps(report, indent=1) + "\n")
    (arguments.out / "README.md").write_text(page(report))
    print(json.dumps(report["summary"]))


def entries(models: str) -> list[str]:
    """Catalogue entries of a file, or of the text itself."""
    path = Path(models)
    lines = path.read_text().splitlines() if path.is_file() else models.split(",")
    return [line.split("#")[0].strip() for line in lines if line.split("#")[0].strip()]


def spread(lines: Sequence[str], count: int) -> list[str]:
    """At most `count` pieces, the first of every model before the second of any."""
    seen: dict[str, int] = {}
    ranked = []
    for number, line in enumerate(lines):
        model = json.loads(line)["model"].partition("[")[0]
        seen[model] = seen.get(model, 0) + 1
        ranked.append((seen[model], number, line))
    return [line for _, _, line in sorted(ranked)[:count]]


# Pieces of models


def pieces(models: Sequence[str], size: int, per_model: int, workers: int) -> list[str]:
    """The pieces of all models, in the order of models, equal ones once; models that cannot be traced are named."""
    found: dict[str, list[dict]] = {}
    tasks = [(model, size, per_model) for model in models]
    for row in side_by_side(cut_up, tasks, workers, time.monotonic() + 3600):
        if "error" in row:
            print(f"{row['piece']}: {row['error']}", flush=True)
        found[row["piece"]] = row.get("pieces", [])
    unique = {}
    for model in models:
        for piece in found.get(model, []):
            key = json.dumps([piece["graph"], [(i["dtype"], i["shape"], i["stride"]) for i in piece["inputs"]]])
            unique.setdefault(key, json.dumps(piece))
    return list(unique.values())


def cut_up(model: str, size: int, per_model: int, deadline: float) -> dict[str, Any]:
    """The pieces of a model's first graph, as plain data."""
    from extraction.analysis.prepared import Prepared, prepare
    from extraction.cutting.cut import cut_range
    from extraction.sources.catalog import parse_entry
    from extraction.sources.spec import spec_of
    from extraction.tracing.trace import trace
    from storage.graph.as_json import to_json
    from storage.records import TracedGraph, Variant

    traced = trace(spec_of(parse_entry(model)), model).graphs[0]
    prepared = prepare(TracedGraph(model, 0, traced.concrete, traced.inputs))
    if not isinstance(prepared, Prepared):
        return {"piece": model, "error": f"does not propagate: {prepared.message}"}
    found = []
    for start, end in windows(prepared, size, per_model):
        variant = cut_range(prepared, "sole_op", start, end)
        if isinstance(variant, Variant):
            source = variant.sources[0]
            name = f"{model}[{source.start}:{source.end}]"
            inputs = [replace(i, symbolic_shape=None, symbolic_stride=None).to_row() for i in variant.inputs]
            found.append({"model": name, "graph": to_json(variant.graph), "inputs": inputs})
    return {"piece": model, "pieces": found}


def windows(prepared: Any, size: int, count: int) -> list[Range]:
    """Ranges of at most `size` ops, evenly spaced, each from one narrow border to another.

    A border is narrow where fewest values made before it are read after it: between blocks, where there are blocks.
    """
    ops, first = len(prepared.graph.ops), prepared.inputs
    crossing = [0] * (ops + 1)
    for op in range(ops):
        for border in range(op + 1, min(prepared.last[first + op], ops) + 1):
            crossing[border] += 1
    found = []
    for number in range(count):
        middle = number * ops // count
        start = 0 if number == 0 else min(range(middle, min(middle + size, ops)), key=lambda at: (crossing[at], at))
        ends = range(start + size // 2, min(start + size, ops) + 1)
        if ends:
            found.append((start, min(ends, key=lambda at: (crossing[at], -at))))
    return found


# One piece


def compare(line: str, device: str, deadline: float) -> dict[str, Any]:
    """Both ranges of a piece, and what explains their differences."""
    from extraction.cutting.measured_kernels import Measured, MeasureError, measure, measured_ranges, prefix, scheduled
    from extraction.kernels.lowering import LoweringError
    from storage.graph.as_json import from_json
    from storage.records import Input, TracedGraph

    row = json.loads(line)
    result = {"piece": row["model"]}
    inputs = tuple(Input.from_row(each) for each in row["inputs"])
    traced = TracedGraph(row["model"], 0, from_json(row["graph"]), inputs)
    result["ops"] = len(traced.graph.ops)
    try:
        begin = time.perf_counter()
        static, prepared = predicted(traced, "reference")
        result["static_s"] = time.perf_counter() - begin
        result |= {"static": static, "static_on_gpu": predicted(traced, "cuda")[0] if device == "cuda" else None}
        if device == "reference":
            measured = Measured()
            begin = time.perf_counter()
            measured.ranges = measured_ranges(prepared, lambda s, e: scheduled(*prefix(prepared, s, e)))
            measured.seconds = time.perf_counter() - begin
        else:
            measured = measure(prepared, device, deadline)
        result |= {"measured": measured.ranges, "measured_s": measured.seconds}
        result |= {"compilations": measured.compilations, "prefixes": len(measured.counts)}
        result["counters_disagree"] = [
            [*at, list(c.launches.generated + c.launches.called), list(c.in_code.generated + c.in_code.called)]
            for at, c in measured.counts.items()
            if c.kernels != c.in_code.kernels
        ]
        result["differences"] = [
            explained(prepared, each, sorted(static), measured) for each in sorted(set(static) ^ set(measured.ranges))
        ]
    except (LoweringError, MeasureError) as error:
        result["error"] = str(error)
        if "CUDA error" in str(error) or "device-side assert" in str(error):
            result["dead"] = True  # a process cannot use the GPU after such an error
    return result


def predicted(traced: Any, device: str) -> tuple[list[Range], Any]:
    """The ranges of one schedule, and the prepared graph."""
    from extraction.analysis.prepared import Prepared, prepare
    from extraction.cutting.cut import fusible_ranges
    from extraction.kernels.lowering import LoweringError, kernels_by_op

    kernels = tuple(tuple(sorted(needed)) for needed in kernels_by_op(traced.graph, traced.inputs, device))
    prepared = prepare(replace(traced, kernels=kernels))
    if not isinstance(prepared, Prepared):
        raise LoweringError(f"does not propagate: {prepared.message}")
    return list(fusible_ranges(prepared)), prepared


def explained(prepared: Any, each: Range, static: Sequence[Range], measured: Any) -> dict[str, Any]:
    """A range that only one side has: its ops, what its prefixes need, and the kind of difference.

    - "schedule": a prefix by itself is scheduled as it was measured; in its graph the same ops are fused otherwise,
      since values are read elsewhere or need not be kept.
    - "compilation": a prefix is not even scheduled by itself as it was measured: `torch.compile` changes the ATen graph
      before it lowers it, or launches otherwise than scheduled.
    - "layout": a range of one op that needs a kernel and others that copy on a CPU, where values are described, and are
      views on a GPU; behind attention, whose result is laid out otherwise there.
    - "follows": the range only begins or ends otherwise because its neighbour does.
    """
    from extraction.cutting.measured_kernels import prefix, scheduled
    from extraction.kernels.lowering import LoweringError

    start, end = each
    ops = prepared.graph.op_sequence
    counts = {e: c for (s, e), c in measured.counts.items() if s == start}
    row = {"range": each, "side": "static" if each in static else "measured", "ops": ops[start:end]}
    row["kernels_in_graph"] = [sorted(prepared.kernels(op)) for op in range(start, end)]
    row["measured_kernels"] = {e: c.kernels for e, c in sorted(counts.items())}
    row["launches"] = {e: [*c.launches.generated, *c.launches.called] for e, c in sorted(counts.items())}
    if sum(map(bool, row["kernels_in_graph"])) < 2:
        return {**row, "kind": "layout", "alone": {}}
    if not counts:
        return {**row, "kind": "follows" if measured.counts else "schedule", "alone": {}}
    alone = {}
    for stop in counts:
        try:
            alone[stop] = scheduled(*prefix(prepared, start, stop))
        except LoweringError as error:
            alone[stop] = str(error)
    first = counts.get(start + 1)
    agree = first is not None and all(
        isinstance(n, int) and (n <= alone[start + 1]) == (counts[stop].kernels <= first.kernels)
        for stop, n in alone.items()
    )
    return {**row, "kind": "schedule" if agree else "compilation", "alone": alone}


# Processes


def side_by_side(task: Any, payloads: Sequence[tuple], workers: int, deadline: float) -> Iterator[dict[str, Any]]:
    """Rows of `task(*payload, deadline)`, each in one of so many processes, as they come.

    A process that dies or hangs costs the row that it was at. Rows that are not begun at the deadline say so.
    """
    context = multiprocessing.get_context("spawn")
    waiting = list(payloads)
    running: dict[int, tuple[Any, Any, Any]] = {}
    free: list[tuple[Any, Any]] = []
    while waiting or running:
        while waiting and len(running) < workers and time.monotonic() < deadline:
            process, pipe = free.pop() if free else _started(context, task)
            payload = waiting.pop(0)
            pipe.send((payload, deadline - time.monotonic()))
            running[id(pipe)] = (process, pipe, payload)
        if not running:
            break
        for pipe in multiprocessing.connection.wait([p for _, p, _ in running.values()], timeout=1.0):
            process, _, payload = running.pop(id(pipe))
            row = _received(process, pipe, payload)
            if process.is_alive() and not row.get("dead"):
                free.append((process, pipe))
            else:
                process.kill()
            yield row
        if time.monotonic() > deadline + GRACE_S:
            for process, _, payload in running.values():
                process.kill()
                yield {"piece": named(payload), "error": "killed: it went on after the budget"}
            break
    for process, pipe in free:
        pipe.close()  # it ends by itself then
        process.join(5)
        process.kill()
    for payload in waiting:
        yield {"piece": named(payload), "error": "not begun within the budget"}


def named(payload: tuple) -> str:
    return json.loads(payload[0])["model"] if payload[0].startswith("{") else payload[0]


def _started(context: Any, task: Any) -> tuple[Any, Any]:
    here, there = context.Pipe()
    process = context.Process(target=_serve, args=(there, task), daemon=True)
    process.start()
    there.close()
    return process, here


def _serve(pipe: Any, task: Any) -> None:
    """A worker: payloads come through the pipe, rows go back."""
    warm(task)
    while True:
        try:
            payload, seconds = pipe.recv()
        except EOFError:
            return
        try:
            row = task(*payload, time.monotonic() + seconds)
        except Exception as error:  # a model, TorchInductor or CUDA may raise anything; its row says what
            row = {"piece": named(payload), "error": f"{type(error).__name__}: {str(error)[:300]}", "dead": True}
        pipe.send(row)


def warm(task: Any) -> None:
    """Imports and first-time work before anything is timed."""
    import torch

    torch.set_num_threads(1)
    if task is not compare:
        return
    from extraction.kernels.lowering import kernels_by_op
    from storage.graph.record import Graph, Op, Ref
    from storage.records import Input

    relu = Op("function", "torch.relu", (Ref(0),), {})
    product = Op("function", "torch.matmul", (Ref(1), Ref(1)), {})
    kernels_by_op(Graph(1, (relu, product), (Ref(2),)), [Input("x", "input", "float32", (8, 8), (8, 1))])


def _received(process: Any, pipe: Any, payload: tuple) -> dict[str, Any]:
    try:
        return pipe.recv()
    except EOFError:
        process.join(5)
        return {"piece": named(payload), "error": f"its process ended with exit code {process.exitcode}"}


# What came of it


def said(row: dict[str, Any]) -> str:
    if "error" in row:
        return row["error"]
    same = len(set(map(tuple, row["static"])) & set(map(tuple, row["measured"])))
    return (
        f"{len(row['static'])} predicted in {row['static_s']:.2f} s, {len(row['measured'])} measured in "
        f"{row['measured_s']:.1f} s, {same} the same"
    )


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Counts over all pieces that both sides answered; a range counts once whether one side has it or both."""
    done = [row for row in rows if "error" not in row]
    static = [{tuple(r) for r in row["static"]} for row in done]
    measured = [{tuple(r) for r in row["measured"]} for row in done]
    same = sum(len(a & b) for a, b in zip(static, measured, strict=True))
    union = sum(len(a | b) for a, b in zip(static, measured, strict=True))
    kinds: dict[str, int] = {}
    for row in done:
        for each in row["differences"]:
            kinds[each["kind"]] = kinds.get(each["kind"], 0) + 1
    ratios = sorted(row["measured_s"] / row["static_s"] for row in done)
    on_gpu = [row for row in done if row["static_on_gpu"] is not None]
    return {
        "pieces": len(done),
        "models": len({row["piece"].partition("[")[0] for row in done}),
        "ops": sum(row["ops"] for row in done),
        "not_measured": len(rows) - len(done),
        "predicted": sum(map(len, static)),
        "measured": sum(map(len, measured)),
        "identical": same,
        "share_of_measured": _share(same, sum(map(len, measured))),
        "share_of_all": _share(same, union),
        "differences": kinds,
        "static_s": round(sum(row["static_s"] for row in done), 2),
        "measured_s": round(sum(row["measured_s"] for row in done), 1),
        "times_faster_median": round(ratios[len(ratios) // 2], 1) if ratios else None,
        "prefixes": sum(row["prefixes"] for row in done),
        "compilations": sum(row["compilations"] for row in done),
        "counters_disagree": sum(len(row["counters_disagree"]) for row in done),
        "reference_is_gpu": _share(sum(row["static_on_gpu"] == row["static"] for row in on_gpu), len(on_gpu)),
    }


def _share(part: int, whole: int) -> float | None:
    return round(part / whole, 4) if whole else None


def machine(device: str) -> dict[str, str]:
    import torch

    name = torch.cuda.get_device_name() if device == "cuda" else "none"
    return {"gpu": name, "torch": torch.__version__, "command": " ".join(sys.argv)}


def page(report: dict[str, Any]) -> str:
    """The results for people."""
    total = report["summary"]
    lines = [
        "# Kernel counting: one schedule against a measurement a prefix",
        "",
        f"`python {report['command']}` on {report['gpu']}, torch {report['torch']}, {report['wall_s']} s in all.",
        "",
        f"- {total['pieces']} pieces of {total['models']} models, {total['ops']} ops; {total['not_measured']} pieces "
        "were not measured (below)",
        f"- {total['predicted']} ranges predicted, {total['measured']} measured, {total['identical']} identical: "
        f"{_percent(total['share_of_measured'])} of the measured ones, {_percent(total['share_of_all'])} of all that "
        "either side has",
        f"- time: {total['static_s']} s predicted, {total['measured_s']} s measured; a piece in the median "
        f"{total['times_faster_median']} times faster",
        f"- {total['prefixes']} prefixes, {total['compilations']} compilations (equal prefixes of a piece are compiled "
        f"once and their time counts each time); profiler and generated code disagree on {total['counters_disagree']}",
        f"- the reference GPU predicts as this GPU does on {_percent(total['reference_is_gpu'])} of the pieces",
        "",
        "| piece | ops | predicted | measured | identical | predicted s | measured s | ratio |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    done = [row for row in report["pieces"] if "error" not in row]
    for row in done:
        same = len({tuple(r) for r in row["static"]} & {tuple(r) for r in row["measured"]})
        lines.append(
            f"| {row['piece']} | {row['ops']} | {len(row['static'])} | {len(row['measured'])} | {same} "
            f"| {row['static_s']:.2f} | {row['measured_s']:.1f} | {row['measured_s'] / row['static_s']:.0f} |"
        )
    lines += ["", "## Differences", "", _clean(explained.__doc__), ""]
    lines += ["| piece | range | only | kind | ops | kernels in the graph | measured, by end | scheduled alone |"]
    lines += ["| --- | --- | --- | --- | --- | --- | --- | --- |"]
    for row in done:
        for each in row["differences"]:
            ops = ", ".join(name.rpartition(".")[2] for name in each["ops"])
            cells = [row["piece"], each["range"], each["side"], each["kind"], ops, each["kernels_in_graph"]]
            cells += [each["measured_kernels"], each["alone"]]
            lines.append("| " + " | ".join(str(cell).replace("|", "/") for cell in cells) + " |")
    lines += ["", "## Not measured", ""]
    lines += [f"- {row['piece']}: {row['error']}" for row in report["pieces"] if "error" in row] or ["None."]
    return "\n".join(lines) + "\n"


def _clean(text: str | None) -> str:
    return "\n".join(line[4:] for line in (text or "").splitlines()[2:])


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f}%"


if __name__ == "__main__":
    main()

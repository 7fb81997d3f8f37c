"""One piece: the ranges that one schedule predicts, those that are measured, and what explains their differences."""

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

Range = tuple[int, int]


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

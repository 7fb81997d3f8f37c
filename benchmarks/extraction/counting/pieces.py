"""Pieces of models: ranges of ops of a traced graph, from one narrow border to another, as lines of JSON."""

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.extraction.counting.workers import side_by_side

Range = tuple[int, int]


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

"""Processor seconds of real models by stage, each in a fork of a warm process, beside a plain dynamo capture.

    python -m benchmarks.extraction.model_stages --out FILE [MODEL ...]

"plain" is `torch.compile` with a backend that only takes the graph, on the same tensors with fixed sizes. "capture"
is the part of "trace" that dynamo takes; "kernels" is TorchInductor's schedule. The least of `--rounds` is kept. Each
model has a digest of its graphs and counts, by which two commits are compared; `--before FILE` does so.
"""

import argparse
import hashlib
import json
import os
import platform
import statistics
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch

from benchmarks.extraction.trace_speed import timed
from extraction.examples.inputs import Example
from extraction.sources.catalog import parse_entry
from extraction.sources.spec import library_versions, spec_of
from extraction.tracing import trace as tracing
from extraction.tracing.trace_files import graph_to_row
from extraction.tracing.trace_workers import prepare

MODELS = (
    "timm:resnet50",
    "timm:convnext_tiny",
    "timm:swin_tiny_patch4_window7_224",
    "timm:vit_base_patch16_224",
    "transformers:bert",
    "transformers:gpt2",
    "transformers:llama",
    "transformers:whisper",
)
STAGES = ("plain", "trace", "capture", "kernels")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    before = json.loads(arguments.before.read_text())["models"] if arguments.before else {}
    torch.set_num_threads(1)  # a fork of a process with threads would wait for them
    prepare()
    rows: dict[str, dict[str, Any]] = {}
    for model in arguments.models:
        rounds = [in_fork(model) for _ in range(arguments.rounds)]
        rows[model] = rounds[0] | {stage: min(each[stage] for each in rounds) for stage in STAGES}
        if model in before:
            rows[model]["same"] = rows[model]["digest"] == before[model]["digest"]
        print(model, json.dumps(rows[model]), flush=True)
    ratios = [(row["trace"] + row["kernels"]) / row["plain"] for row in rows.values()]
    result = {
        "models": rows,
        "seconds": {stage: round(sum(row[stage] for row in rows.values()), 2) for stage in STAGES},
        "median_of_trace_and_kernels_by_plain": round(statistics.median(ratios), 2),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[1], 1),
        "processor": platform.machine(),
        "versions": dict(sorted({*library_versions("timm"), *library_versions("transformers")})),
    }
    arguments.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps({key: value for key, value in result.items() if key != "models"}, indent=1))


def in_fork(model: str) -> dict[str, Any]:
    """The row of a model, made in two forks: none is warm from the other's capture."""
    row: dict[str, Any] = {}
    for measure in (plain, stages):
        read, write = os.pipe()
        if os.fork() == 0:
            os.write(write, json.dumps(measure(model)).encode())
            os._exit(0)
        os.close(write)
        with open(read, encoding="utf-8") as answer:
            row |= json.loads(answer.read())
        os.wait()
    return row


def plain(model: str) -> dict[str, float]:
    """Seconds of a dynamo capture as it comes."""
    module, inputs = tracing.build(spec_of(parse_entry(model)))
    tensors = {name: each.tensor if isinstance(each, Example) else each for name, each in inputs.items()}
    started = time.process_time()
    with torch.no_grad():
        torch.compile(module, backend=lambda graph, _: graph.forward, dynamic=False)(**tensors)
    return {"plain": round(time.process_time() - started, 2)}


def stages(model: str) -> dict[str, Any]:
    """Seconds of the trace, of dynamo in it and of counting kernels; the number of ops and the digest."""
    spent: Counter[str] = Counter()
    tracing.capture = timed(tracing.capture, "capture", spent)
    spec = spec_of(parse_entry(model))
    traced = timed(tracing.trace, "trace", spent)(spec, model)
    graphs = [timed(tracing.with_kernels, "kernels", spent)(graph) for graph in traced.graphs]
    text = json.dumps([graph_to_row(graph) for graph in graphs], sort_keys=True, default=str)
    seconds = {stage: round(spent[stage], 2) for stage in STAGES if stage in spent}
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return {**seconds, "ops": sum(len(graph.graph.ops) for graph in graphs), "digest": digest}


if __name__ == "__main__":
    main()

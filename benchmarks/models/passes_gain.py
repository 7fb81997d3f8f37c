"""What passes give to whole models, beside TorchInductor and CUDA graphs, on this machine:

    python -m benchmarks.models.passes_gain --out DIR [--models transformers:bert,timm:levit_256] [--dtype bfloat16]
        [--batch 1] [--regions 6] [--author distill] [--effort quick] [--device cuda]

Each model is tuned as `passnet tune --author distill` does it: the author writes passes for fusible regions of the
model, those first that stand in it most often, PassBench measures them, and the ways of running the whole are timed in
turn with and without those that are right. Writes DIR/gain.jsonl, a line a model as it is done, with the fastest way of
either kind, and prints a table of them; models that the file has are not run again.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.models.model_list import MODELS, prepared
from flows.models.named_model import NamedModel
from flows.models.tune import tune
from passbench.models.optimized_model import OptimizeSettings
from passbench.result import device_name, libraries
from storage.versions.provenance import source_commit


def main(given: Sequence[str] | None = None) -> int:
    """Run what the command line asks for; returns 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--models", default="transformers:bert,timm:levit_256,timm:resnext50_32x4d")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--regions", type=int, default=6, help="that the author writes for, of each model")
    parser.add_argument("--author", default="distill")
    parser.add_argument("--effort", default="quick")
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args(given)
    options.out.mkdir(parents=True, exist_ok=True)
    file = options.out / "gain.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    for name in options.models.split(","):
        if name not in {row["model"] for row in rows}:
            rows.append(_row(name, options))
            with file.open("a") as out:
                out.write(json.dumps(rows[-1]) + "\n")
    print(table(rows))
    return 0


def _row(name: str, options: argparse.Namespace) -> dict[str, Any]:
    (found,) = [model for model in MODELS if model.name == name]
    device = torch.device(options.device)
    model, args, kwargs = prepared(found, options.batch, getattr(torch, options.dtype), device)
    begin = time.monotonic()
    document, _ = tune(
        NamedModel(name, model, args, kwargs, options.batch),
        options.out / "library",
        OptimizeSettings(effort=options.effort),
        author=options.author,
        limit=options.regions,
        say=lambda line: print(f"{time.monotonic() - begin:6.0f} s  {name}: {line}", file=sys.stderr, flush=True),
    )
    return {
        "model": name,
        "dtype": options.dtype,
        "batch": options.batch,
        "device": device_name(device),
        "libraries": libraries(),
        "commit": source_commit(),
        "seconds": time.monotonic() - begin,
        **{key: document[key] for key in ("chosen", "why_not", "ops", "covered", "refused", "regions", "ways")},
        **gain(document["ways"]),
    }


def gain(ways: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The fastest way without passes and the fastest with them, what they take, and how much faster the latter is; and
    the same of eager's kernels in one CUDA graph. None where one is missing."""
    plain = _fastest(way for way in ways if not way["served"])
    served = _fastest(way for way in ways if way["served"])
    times = {way["way"]: way["us"] for way in ways}
    return {
        "without": plain and plain["way"],
        "without_us": plain and plain["us"],
        "with": served and served["way"],
        "with_us": served and served["us"],
        "matches": sum(served["served"].values()) if served else 0,
        "gain": plain["us"] / served["us"] if plain and served else None,
        "gain_in_eager_graph": _ratio(times.get("eager-graph"), times.get("eager-graph+passes")),
    }


def _fastest(ways: Any) -> dict[str, Any] | None:
    return min((way for way in ways if way["us"] is not None), key=lambda way: way["us"], default=None)


def _ratio(a: float | None, b: float | None) -> float | None:
    return a / b if a and b else None


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Markdown, a line a model."""
    lines = [
        "| model | dtype | batch | regions | passes written | best without | us | best with passes | us | matches "
        "| gain | gain in eager's graph |",
        "|-" * 12 + "|",
    ]
    for row in rows:
        cells = [row["model"], row["dtype"], row["batch"], row["regions"].get("regions"), row["regions"].get("written")]
        cells += [row["without"], row["without_us"], row["with"], row["with_us"], row["matches"], row["gain"]]
        cells += [row["gain_in_eager_graph"]]
        lines.append("| " + " | ".join(map(_cell, cells)) + " |")
    return "\n".join(lines)


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.0f}" if value >= 100 else f"{value:.2f}"
    return "" if value is None else str(value)


if __name__ == "__main__":
    sys.exit(main())

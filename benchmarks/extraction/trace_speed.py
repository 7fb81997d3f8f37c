"""Models a minute with warm workers, against a cold process for each; and where a warm worker's time goes.

    python -m benchmarks.extraction.trace_speed --models 40 --out benchmarks/extraction/tracing/speed.json

The models are drawn at random from timm and transformers, or named by `--catalog FILE`. Both ways run one model at a
time and do the same work: spec to traced graphs, once without and once with the kernel counts that cutting needs. The
warm time has the start of the server in it, and the library imports and warm-up traces that the server does once.
`--profile N` then traces the first N in this process and times the stages; with `--models 0` that is all, of all models
that are named.
"""

import argparse
import json
import os
import platform
import random
import resource
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from extraction.pool.client import ENVIRONMENT, run_tasks
from extraction.sources.catalog import Entry, read_catalog
from extraction.sources.spec import Spec, library_versions, spec_of, specs_of
from extraction.tracing.limits import MEMORY_MB, TIMEOUT_S
from extraction.tracing.trace_workers import prepare, trace_task

ROOT = Path(__file__).resolve().parents[2]
COLD = """
import json, sys
from extraction.tracing.trace_workers import trace_task
from benchmarks.extraction.trace_speed import trace_alone
for answer in {"whole": trace_task, "alone": trace_alone}[sys.argv[2]](json.loads(sys.argv[1])): pass
print(json.dumps({"traced": "graphs" in answer}))
"""
TASKS = {
    "alone": "benchmarks.extraction.trace_speed:trace_alone",
    "whole": "extraction.tracing.trace_workers:trace_task",
}


def trace_alone(payload: dict[str, str]) -> Iterator[dict[str, Any]]:
    """A worker's task that ends with the graphs, and counts no kernels."""
    yield next(trace_task(payload))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=40)
    parser.add_argument("--catalog", action="append")
    parser.add_argument("--profile", type=int, default=10)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    entries = [entry for name in arguments.catalog or ("timm", "transformers") for entry in read_catalog(name)]
    random.Random(0).shuffle(entries)
    chosen = with_spec(entries, arguments.models or arguments.profile)
    payloads = [{"model": entry.text, "spec": spec_of(entry).to_json()} for entry in chosen]
    result: dict[str, Any] = {"models": [entry.text for entry in chosen]}
    result |= {how: compared(payloads, how) for how in TASKS if arguments.models}
    result |= {
        "profile": stages(chosen[: arguments.profile]),
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[2],
        "versions": dict(sorted({*library_versions("timm"), *library_versions("transformers")})),
    }
    arguments.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


def with_spec(entries: list[Entry], number: int) -> list[Entry]:
    """The first entries that have a spec, each of another one."""
    chosen: dict[str, Entry] = {}
    for entry, spec in zip(entries[: 2 * number], specs_of(entries[: 2 * number]), strict=True):
        if isinstance(spec, Spec):
            chosen.setdefault(spec.config_hash, entry)
    return list(chosen.values())[:number]


def compared(payloads: list[dict[str, str]], how: str) -> dict[str, Any]:
    """Seconds of these models with one warm worker, and with a cold process each."""
    started, processor = time.monotonic(), children_seconds()
    limits = {"workers": 1, "timeout_s": TIMEOUT_S, "memory_mb": MEMORY_MB}
    inside, traced = 0.0, 0
    with closing(
        run_tasks(TASKS[how], payloads, prepare="extraction.tracing.trace_workers:prepare", **limits)
    ) as replies:
        for number, reply in enumerate(replies, 1):
            inside += reply.seconds
            traced += reply.completed and "graphs" in reply.answer
            print(f"[{number}] {how} {reply.payload['model']} {reply.seconds:.1f} s warm", flush=True)
    warm, warm_processor = time.monotonic() - started, children_seconds() - processor
    cold, processor = [], children_seconds()
    for number, payload in enumerate(payloads, 1):
        cold.append(cold_seconds(payload, how))
        print(f"[{number}] {how} {payload['model']} {cold[-1]:.1f} s cold", flush=True)
    cold_processor = children_seconds() - processor
    return {
        "traced": traced,
        "warm_seconds": round(warm, 1),
        "warm_seconds_in_models": round(inside, 1),
        "cold_seconds": round(sum(cold), 1),
        "warm_models_a_minute": round(60 * len(payloads) / warm, 1),
        "cold_models_a_minute": round(60 * len(payloads) / sum(cold), 1),
        "ratio": round(sum(cold) / warm, 2),
        "ratio_without_the_server_s_start": round(sum(cold) / inside, 2),
        "warm_processor_seconds": round(warm_processor, 1),
        "cold_processor_seconds": round(cold_processor, 1),
        "ratio_of_processor_seconds": round(cold_processor / warm_processor, 2),
    }


def cold_seconds(payload: dict[str, str], how: str) -> float:
    """Seconds of a new Python process that traces one model as a worker does."""
    started = time.monotonic()
    done = subprocess.run([sys.executable, "-c", COLD, json.dumps(payload), how], cwd=ROOT,
                          env={**os.environ, **ENVIRONMENT}, capture_output=True, check=False, timeout=600)  # fmt: skip
    if done.returncode:
        raise SystemExit(f"{payload['model']}: {done.stderr.decode()[-500:]}")
    return time.monotonic() - started


def children_seconds() -> float:
    """Seconds of processor that the child processes so far have used, which a busy machine does not change much."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def stages(entries: list[Entry]) -> dict[str, float]:
    """Seconds by stage of a warm process's traces of these models; models that fail count with what they took."""
    from extraction.failures import ModelError
    from extraction.tracing import trace as tracing

    spent: Counter[str] = Counter()
    prepare()
    for name in ("build", "capture", "_laid_out", "with_ranges"):
        setattr(tracing, name, timed(getattr(tracing, name), name, spent))
    started = time.process_time()
    for entry in entries:
        try:
            for graph in timed(tracing.trace, "trace", spent)(spec_of(entry), entry.text).graphs:
                timed(tracing.with_kernels, "with_kernels", spent)(graph)
        except ModelError:
            spent["failed"] += 1
    total = time.process_time() - started
    spent["trace"] -= sum(spent[name] for name in ("build", "capture", "_laid_out", "with_ranges"))
    names = {
        "build": "build_model_and_inputs",
        "capture": "dynamo",
        "_laid_out": "fake_tensor_layouts",
        "with_ranges": "value_ranges",
        "trace": "records_and_the_rest",
        "with_kernels": "inductor_scheduler",
    }
    shares = {f"{names[key]}_seconds": round(value, 1) for key, value in spent.most_common() if key in names}
    return {"models": len(entries), "failed": spent["failed"], "seconds": round(total, 1), **shares}


def timed(function: Callable[..., Any], name: str, spent: Counter[str]) -> Callable[..., Any]:
    """The function, which adds its seconds of CPU to `spent`."""

    def call(*args: Any, **options: Any) -> Any:
        started = time.process_time()
        try:
            return function(*args, **options)
        finally:
            spent[name] += time.process_time() - started

    return call


if __name__ == "__main__":
    main()

"""Traces the models of a catalogue, each in a killable worker, and says for each what came of it."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import cache
from typing import Any

from extraction.failures import ModelError, classify_end
from extraction.pool.client import TaskPool, TaskReply
from extraction.sources.catalog import Entry, parse_entry
from extraction.sources.spec import Spec, Specified, config_text, library_versions, spec_of
from extraction.tracing.limits import PREPARE
from extraction.tracing.trace_files import TraceOutcome, graph_from_row, graph_to_row

_TASK = "extraction.tracing.trace_workers:trace_task"
_WARM_UP = ("timm:resnet10t", "transformers:bert")
_SMALL = {"num_hidden_layers": 1}
"""Changes of the configs of `_WARM_UP` that have these fields; a second layer would warm nothing up."""


def trace_all(entries: Specified, pool: TaskPool) -> Iterator[TraceOutcome]:
    """Traces `entries` in the pool's workers, a model a task, and yields outcomes as they are completed.

    Entries with equal specs are traced once. A model that fails in any way is an outcome with status "failed" and an
    error category; no exception of a model gets out. Raises PassNetError if the worker server cannot start. Closing the
    iterator kills all workers.
    """
    groups: dict[str, list[tuple[Entry, Spec]]] = {}
    for entry, spec in entries.items():
        if isinstance(spec, ModelError):
            yield TraceOutcome(entry, failed_row(entry, None, spec.category, str(spec), 0.0))
        else:
            groups.setdefault(spec.config_hash, []).append((entry, spec))
    payloads = ({"model": first.text, "spec": spec.to_json()} for (first, spec), *_ in groups.values())
    with closing(pool.run(_TASK, payloads, PREPARE)) as replies:
        for reply in replies:
            spec = Spec.from_json(reply.payload["spec"])
            (first, _), *others = groups[spec.config_hash]
            outcome = outcome_of(first, spec, reply)
            yield outcome
            for entry, _ in others:
                yield _shared(outcome, entry)


def outcome_of(entry: Entry, spec: Spec, reply: TaskReply) -> TraceOutcome:
    """The outcome that a worker's reply means."""
    if reply.answer is None:
        category, message = classify_end(reply.end, reply.code, reply.log)
        return TraceOutcome(entry, failed_row(entry, spec, category, message, reply.seconds))
    answer = reply.answer
    if "error" in answer:
        return TraceOutcome(entry, failed_row(entry, spec, *answer["error"], reply.seconds))
    graphs = tuple(graph_from_row(row) for row in answer["graphs"])
    if not reply.completed:  # it was traced; only the kernels are missing
        category, message = classify_end(reply.end, reply.code, reply.log)
        graphs = tuple(replace(g, lowering_error=f"{category}: {message}") if g.kernels is None else g for g in graphs)
    row = {
        **_row(entry, spec, reply.seconds),
        "status": "traced",
        "error_category": "",
        "message": "",
        "graphs": len(graphs),
        "graph_breaks": answer["graph_breaks"],
        "ops": sum(len(g.graph.ops) for g in graphs),
        "symbols": answer["symbols"],
        "static_reason": answer["static_reason"],
    }
    return TraceOutcome(entry, row, graphs)


def failed_row(entry: Entry, spec: Spec | None, category: str, message: str, seconds: float) -> dict[str, Any]:
    """The `models` row of an entry that was not traced; `spec` is None where there is none."""
    return {
        **_row(entry, spec, seconds),
        "status": "failed",
        "error_category": category,
        "message": message,
        "graphs": 0,
        "graph_breaks": [],
        "ops": 0,
    }


def _row(entry: Entry, spec: Spec | None, seconds: float) -> dict[str, Any]:
    return {
        "model": entry.text,
        "source": entry.source,
        "revision": entry.revision,
        "config_hash": spec.config_hash if spec else "",
        "spec": spec.config if spec else "",
        "seconds": seconds,
        "libraries": dict(spec.libraries if spec else library_versions(entry.source)),
        "symbols": {},
        "static_reason": "",
    }


def _shared(outcome: TraceOutcome, entry: Entry) -> TraceOutcome:
    row = {**outcome.row, **_row_names(entry), "seconds": 0.0}
    if outcome.traced:
        row["message"] = f"shares the trace of {outcome.entry.text}"
    return TraceOutcome(entry, row)


def _row_names(entry: Entry) -> dict[str, Any]:
    return {"model": entry.text, "source": entry.source, "revision": entry.revision}


@cache
def prepare() -> None:
    """Traces a small model of each source, so that every worker starts with the libraries imported and warm; once."""
    from extraction.tracing.trace import trace

    for text in _WARM_UP:
        spec = spec_of(parse_entry(text))
        config = {**spec.fields, **{name: value for name, value in _SMALL.items() if name in spec.fields}}
        trace(replace(spec, config=config_text(config)), text).counted()


def trace_task(payload: dict[str, str]) -> Iterator[dict[str, Any]]:
    """A worker's task: a model's graphs as plain data, first without kernels, then with; or why there are none."""
    from extraction.classify import classify
    from extraction.tracing.trace import trace

    try:
        traced = trace(Spec.from_json(payload["spec"]), payload["model"])
    except Exception as error:  # whatever a model raises is an answer, with its category
        yield {"error": classify(error)}
        return
    answer = {
        "graph_breaks": list(traced.graph_breaks),
        "symbols": traced.symbols,
        "static_reason": traced.static_reason,
    }
    yield {**answer, "graphs": [graph_to_row(graph) for graph in traced.graphs]}
    yield {**answer, "graphs": [graph_to_row(graph) for graph in traced.counted()]}

"""Chat data of passes that PassBench has found right: what a model is shown, and what it should have answered.

In: a training sample, a pass for it, and the results of that pass. Out: a row of `DEMONSTRATIONS`. Families are split
into train and validation by their hash, so no family is in both, and a later build splits them the same way.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from agent.learning.answers import answer_of
from agent.learning.leaks import HeldOut
from agent.learning.rationale import rationale
from agent.llm.prompt import SYSTEM
from agent.llm.task import describe_graphs
from passbench.score import geometric_mean
from storage.records import Sample

LEVEL = -5
VALIDATION = 0.05
"""Share of the families that are for validation."""

_CALL = pa.struct(
    [
        ("id", pa.string()),
        ("type", pa.string()),
        ("function", pa.struct([("name", pa.string()), ("arguments", pa.string())])),
    ]
)
MESSAGE = pa.struct(
    [
        ("role", pa.string()),
        ("content", pa.string()),
        ("tool_calls", pa.list_(_CALL)),
        ("tool_call_id", pa.string()),
        ("name", pa.string()),
    ]
)
_FILE = pa.struct([("path", pa.string()), ("content", pa.string())])

COLUMNS = (
    ("messages", pa.list_(MESSAGE), "the conversation with tool calls: contract, task, files, submit"),
    ("prompt", pa.list_(MESSAGE), "the plain form: contract and task"),
    ("completion", pa.list_(MESSAGE), "the plain form's answer: rationale, then each file in a block"),
    ("sample", pa.string(), "the sample that the task is of"),
    ("graph_hash", pa.string(), "identity of the graph; no two rows share one"),
    ("family_hash", pa.string(), "identity of ops and wiring; rows of several splits share none"),
    ("category", pa.string(), "fusible, typical or sole_op"),
    ("op_sequence", pa.list_(pa.string()), "the graph's ops, in order"),
    ("models", pa.list_(pa.string()), "models that the graph was found in"),
    ("task", pa.string(), "the task as the author llm is shown it, without times"),
    ("rationale", pa.string(), "what is fused and what that saves, from facts"),
    ("files", pa.list_(_FILE), "the pass"),
    ("author", pa.string(), "who wrote the pass"),
    ("run", pa.string(), "the run that measured it"),
    ("level", pa.int32(), "the level at which every variant is correct, or stricter: the largest t_min"),
    ("speedup_e2e", pa.float64(), "geometric mean over variants by the clock e2e; null where no GPU measured"),
    ("speedup_device", pa.float64(), "the same by the clock device"),
    ("variants", pa.int32(), "variants that were checked"),
    ("device", pa.string(), "where they were: a GPU's name, or cpu"),
    ("libraries", pa.string(), "JSON: versions of torch, triton and others there"),
    ("licence", pa.string(), "of the row; graphs hold shapes and operators of models, no weights"),
)
"""Column, type, meaning."""

DEMONSTRATIONS = pa.schema([(name, type_) for name, type_, _ in COLUMNS])

PLAIN = (
    "Answer with the files of a pass, each in a Python block behind its name in backticks and a colon, and at the end "
    "the list of names. There are no tools.\n\n"
)
"""What the plain form says before the task."""


@dataclass(frozen=True)
class Solved:
    """A pass that may become a demonstration: the results of one author at one sample, as rows of `results`."""

    sample: Sample
    files: Mapping[str, str]
    rows: Sequence[Mapping[str, Any]]


def split_of(family: str) -> str:
    """ "validation" for a share `VALIDATION` of the families, by their hash, else "train"."""
    number = int(hashlib.sha256(f"validation {family}".encode()).hexdigest()[:8], 16)
    return "validation" if number < VALIDATION * 16**8 else "train"


def demonstrations(
    candidates: Iterable[Solved], held_out: HeldOut, causes: Counter[str], unmeasured: bool = False
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Splits and rows; `causes` counts what is left out, and why.

    Left out is what is too near to an evaluation sample, not correct at t = -5 in every variant, refused, without a
    time (unless `unmeasured`), slower than eager, or of a graph that has a row already.
    """
    seen: set[str] = set()
    for candidate in candidates:
        graphs = {v.graph_hash for v in candidate.sample.variants}
        cause = held_out.why_not(candidate.sample) or _fault(candidate, unmeasured)
        if not cause and graphs & seen:
            cause = "a graph that has a row"
        if cause:
            causes[cause] += 1
            continue
        seen |= graphs
        yield split_of(candidate.sample.family_hash), row_of(candidate)


def _fault(candidate: Solved, unmeasured: bool) -> str:
    rows = candidate.rows
    checked = {row["variant_hash"] for row in rows}
    if not candidate.files or any(row["compiler"] != "pass" for row in rows):
        return "no pass"
    if any(row["status"] == "rejected" for row in rows):
        return "refused"
    if {v.variant_hash for v in candidate.sample.variants} - checked:
        return "not all variants were checked"
    if any(row["status"] != "ok" or row["t_min"] is None or row["t_min"] > LEVEL for row in rows):
        return f"not correct at t = {LEVEL}"
    if not all(row["times_meaningful"] for row in rows):
        return "" if unmeasured else "not timed on a GPU"
    speedup = _mean(rows, "speedup_e2e")
    return "not timed on a GPU" if speedup is None else "slower than eager" if speedup < 1 else ""


def row_of(candidate: Solved) -> dict[str, Any]:
    """The demonstration as a row."""
    sample, files, rows = candidate.sample, dict(candidate.files), candidate.rows
    first = sample.variants[0]
    task, why = describe_graphs(sample), rationale(first, files)
    measured = all(row["times_meaningful"] for row in rows)
    return {
        "messages": conversation(task, files, why),
        "prompt": [message("system", SYSTEM), message("user", PLAIN + task)],
        "completion": [message("assistant", answer_of(files, why))],
        "sample": sample.sample,
        "graph_hash": first.graph_hash,
        "family_hash": sample.family_hash,
        "category": sample.category,
        "op_sequence": list(first.graph.op_sequence),
        "models": sorted({source.model for v in sample.variants for source in v.sources}),
        "task": task,
        "rationale": why,
        "files": [{"path": path, "content": text} for path, text in files.items()],
        "author": rows[0]["author"],
        "run": rows[0]["run"],
        "level": max(row["t_min"] for row in rows),
        "speedup_e2e": _mean(rows, "speedup_e2e") if measured else None,
        "speedup_device": _mean(rows, "speedup_device") if measured else None,
        "variants": len(rows),
        "device": rows[0]["device"],
        "libraries": json.dumps(dict(rows[0]["libraries"]), sort_keys=True),
        "licence": "Apache-2.0",
    }


def _mean(rows: Sequence[Mapping[str, Any]], column: str) -> float | None:
    speedups = [row[column] for row in rows]
    return geometric_mean(speedups) if all(speedups) else None


def conversation(task: str, files: Mapping[str, str], why: str) -> list[dict[str, Any]]:
    """The tool-call form: all files in one answer, then submit."""
    calls = [_call(n, "write_file", {"name": name, "content": text}) for n, (name, text) in enumerate(files.items())]
    wrote = [
        message("tool", f"Wrote {name}.") | {"tool_call_id": call["id"], "name": "write_file"}
        for name, call in zip(files, calls, strict=True)
    ]
    submit = _call(len(calls), "submit", {})
    return [
        message("system", SYSTEM),
        message("user", task),
        message("assistant", why) | {"tool_calls": calls},
        *wrote,
        message("assistant", "") | {"tool_calls": [submit]},
    ]


def _call(number: int, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(dict(arguments))}
    return {"id": f"call_{number}", "type": "function", "function": function}


def message(role: str, content: str) -> dict[str, Any]:
    """A message of `MESSAGE` without tool calls."""
    return {"role": role, "content": content, "tool_calls": None, "tool_call_id": None, "name": None}

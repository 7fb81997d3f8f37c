"""What must hold after a run of the author `llm` that was killed and started again (`agent_run.py`)."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import isclose
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelResponse, RetryPromptPart, ToolReturnPart

from agent.run.attempts import usage
from storage.versions.store import Store, Version
from tests.support.llm_solver import EXITS, Asked, Solver

_EVALUATED = re.compile(r"(?:Submitted\.\n)?\d+ of \d+ variants ok, AS ")
_SEEN = {
    "an unknown tool": "there is no tool",
    "arguments that are no JSON": "Invalid JSON",
    "a module that is missing": "missing.py",
    "a wrong pass": ": wrong",
    "a pass that is refused": "rejected",
    "a pass without a match": "no_match",
    "a right pass": ": ok, t_min",
}
"""What tool outputs say of each way to err, and of success."""


class Check(NamedTuple):
    """`detail` says what was found, in a few words."""

    name: str
    ok: bool
    detail: str


@dataclass
class Kill:
    """What there was when the flow was killed: the files of finished attempts with their digests. And after it: those
    of the flow's processes that did not end, the states of the flow runs, and how many requests failed in all."""

    before: dict[str, str]
    orphans: list[int] = field(default_factory=list)
    states: list[str] = field(default_factory=list)
    faults: int = 0


def finished(out: Path) -> dict[str, str]:
    """The trajectories of finished attempts below `out`/data/runs, and digests of their files."""
    files = sorted((out / "data" / "runs").glob("*/trajectories/*/*.parquet"))
    done = [f for f in files if pq.read_table(f, columns=["exit_status"])["exit_status"][0].as_py() != "running"]
    return {str(f.relative_to(out)): hashlib.sha256(f.read_bytes()).hexdigest() for f in done}


def used(out: Path) -> dict[str, Any]:
    """What the run has used, from the published trajectories."""
    return usage(_latest(out).table("trajectories").to_pylist())


def checks(
    out: Path, solver: Solver, kill: Kill, attempts: int, devices: int, model: str, price: tuple[float, float], key: str
) -> list[Check]:
    """All checks, in order. `devices`: how many attempts go on at a time."""
    version = _latest(out)
    rows = version.table("trajectories").to_pylist()
    results = version.table("results").to_pylist()
    samples = version.table("samples").num_rows
    return [
        _states(kill),
        _resumed(out, kill, rows),
        _asked_once(solver, rows, devices),
        _one_version(out, rows, results),
        _all_there(rows, results, samples, attempts, model),
        *_each(rows, price),
        _billed(rows, solver, kill, devices, price),
        _as_planned(rows, solver),
        _best_counts(rows, results),
        _hidden(out, key),
    ]


def _states(kill: Kill) -> Check:
    detail = f"flow runs: {', '.join(kill.states)}; {len(kill.orphans)} processes of the first left"
    return Check("killed and run again", kill.states == ["Crashed", "Completed"] and not kill.orphans, detail)


def _resumed(out: Path, kill: Kill, rows: list[dict]) -> Check:
    after = finished(out)
    same = sum(after.get(name) == digest for name, digest in kill.before.items())
    detail = f"{same} of {len(kill.before)} attempts finished before the kill are as they were, of {len(rows)}"
    return Check("resumed", 0 < len(kill.before) == same < len(rows), detail)


def _asked_once(solver: Solver, rows: list[dict], devices: int) -> Check:
    """Every step's request came once, and the one in flight at the kill twice; on several devices there may be more."""
    times = Counter(solver.asked)
    twice = [asked for asked, count in times.items() if count > 1]
    wanted = {
        Asked(r["sample"], r["attempt"], solver.plan(r["sample"], r["attempt"]), n)
        for r in rows
        for n in range(r["steps"])
    }
    ok = solver.holding in twice and len(twice) <= devices and max(times.values()) == 2 and wanted == set(times)
    detail = f"{len(solver.asked)} requests for {len(wanted)} steps, asked twice: {len(twice)}, in flight at the kill"
    return Check("no step repeated", ok, detail)


def _one_version(out: Path, rows: list[dict], results: list[dict]) -> Check:
    names = Store(out / "data").names()
    runs = {row["run"] for row in (*rows, *results)}
    return Check(
        "one version of results", names == ["v1", "v2"] and len(runs) == 1, f"{', '.join(names)}; runs: {len(runs)}"
    )


def _all_there(rows: list[dict], results: list[dict], samples: int, attempts: int, model: str) -> Check:
    numbers = Counter(row["attempt"] for row in rows)
    variants = {(r["sample"], r["variant_hash"]) for r in results}
    ok = numbers == dict.fromkeys(range(1, attempts + 1), samples) and len(results) == len(variants) * attempts
    ok = ok and {row["model"] for row in (*rows, *results)} == {model}
    return Check("trajectories and results complete", ok, f"{len(rows)} attempts, {len(results)} results")


def _each(rows: list[dict], price: tuple[float, float]) -> Iterator[Check]:
    """What a trajectory holds, attempt by attempt."""
    faults: dict[str, list[str]] = {name: [] for name in ("messages", "calls", "tokens", "cost", "scores", "seconds")}
    for row in rows:
        name = f"{row['sample']} {row['attempt']}"
        messages = ModelMessagesTypeAdapter.validate_json(row["messages"])
        answers = [m for m in messages if isinstance(m, ModelResponse)]
        parts = [p for m in messages if not isinstance(m, ModelResponse) for p in m.parts]
        returned = [p for p in parts if isinstance(p, ToolReturnPart | RetryPromptPart)]
        called = [call.tool_call_id for answer in answers for call in answer.tool_calls]
        tokens = tuple(sum(getattr(a.usage, f"{kind}_tokens") for a in answers) for kind in ("input", "output"))
        free = [a for a in answers if not a.usage.input_tokens]
        evaluated = sum(bool(_EVALUATED.match(str(p.content))) for p in returned)
        wrong = {
            "messages": len(answers) != row["steps"] or messages[0].parts[0].part_kind != "user-prompt",
            "calls": called != [p.tool_call_id for p in returned] or len(called) != row["tool_calls"],
            "tokens": tokens != (row["input_tokens"], row["output_tokens"]) or bool(free),
            "cost": not isclose(row["cost_usd"], _cost(*tokens, price)),
            "scores": not row["scores"] or len(row["scores"]) != evaluated,
            "seconds": not row["seconds"] > 0,
        }  # fmt: skip
        for what, is_wrong in wrong.items():
            faults[what] += [name] if is_wrong else []
    about = {
        "messages": "every step's answer is kept",
        "calls": "every tool call is answered and counted",
        "tokens": "an attempt's tokens are the sum of its steps'",
        "cost": "an attempt's cost is that of its tokens",
        "scores": "every evaluation has its score",
        "seconds": "every attempt has its time",
    }
    for what, names in faults.items():
        yield Check(about[what], not names, f"{len(rows) - len(names)} of {len(rows)} {' '.join(names[:3])}".strip())


def _billed(rows: list[dict], solver: Solver, kill: Kill, devices: int, price: tuple[float, float]) -> Check:
    """The run's sums are what the model's server counted by itself; less what was in flight on other devices."""
    run = usage(rows)
    bill = solver.bill["prompt_tokens"], solver.bill["completion_tokens"]
    sums = run["input_tokens"], run["output_tokens"]
    ok = (sums == bill or (devices > 1 and sums < bill)) and isclose(run["cost_usd"], _cost(*sums, price))
    failed = run["failed_calls"]
    ok = ok and failed > 0 and kill.faults - failed in range(devices + 1)  # what was in flight may have failed before
    detail = f"${run['cost_usd']:.4f} for {bill[0]} + {bill[1]} tokens; {failed} of {kill.faults} failed calls counted"
    return Check("the run's sums are the server's", ok, detail)


def _as_planned(rows: list[dict], solver: Solver) -> Check:
    """Every attempt ended as its plan does, and every way to err was answered."""
    strange = [r for r in rows if r["exit_status"] != EXITS[solver.plan(r["sample"], r["attempt"])]]
    said = "\n".join(row["messages"] for row in rows)
    plans = {solver.plan(row["sample"], row["attempt"]) for row in rows}
    unseen = [what for what, text in _SEEN.items() if text not in said] if plans == set(EXITS) else []
    exits = Counter(row["exit_status"] for row in rows)
    detail = ", ".join(f"{count} {name}" for name, count in exits.items()) + f"; {len(plans)} plans"
    detail += f"; not seen: {', '.join(unseen)}" if unseen else ""
    return Check("attempts end as planned", not strange and not unseen, detail)


def _best_counts(rows: list[dict], results: list[dict]) -> Check:
    """What was measured at the end are the files of each attempt's best evaluation."""
    best = {(row["sample"], row["attempt"]): _files(row["best_files"]) for row in rows}
    other = [r for r in results if _files(r["pass_files"]) != best[r["sample"], r["attempt"]]]
    statuses = Counter(r["status"] for r in results)
    detail = "results: " + ", ".join(f"{count} {status}" for status, count in statuses.most_common())
    return Check("the best evaluated pass counts", not other, detail)


def _hidden(out: Path, key: str) -> Check:
    """No file has the key, the server's database among them; Parquet is looked at unpacked, too."""
    files = [path for path in out.rglob("*") if path.is_file()]
    holding = [path for path in files if key.encode() in path.read_bytes()]
    for path in files:
        if path.suffix == ".parquet" and key in json.dumps(pq.read_table(path).to_pylist(), default=str):
            holding.append(path)
    detail = f"{len(files)} files" + "".join(f"; {path.relative_to(out)}" for path in holding[:3])
    return Check("the key is in no file", len(files) > 20 and not holding, detail)


def _files(files: list[dict]) -> dict[str, str]:
    return {file["path"]: file["content"] for file in files}


def _cost(given: int, made: int, price: tuple[float, float]) -> float:
    return (given * price[0] + made * price[1]) / 1e6


def _latest(out: Path) -> Version:
    return Store(out / "data").open()

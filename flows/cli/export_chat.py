"""Trajectories as training data: chat messages of good attempts at training samples, in Parquet for `load_dataset`."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from agent.learning.demonstrations import MESSAGE
from flows.plurals import causes_text, counted
from flows.report.results import COLUMNS, find_runs
from flows.steps import say
from passbench.score import aggregate_score
from storage.disk import disk_error, filling
from storage.errors import PassNetError
from storage.parquet import write_parquet
from storage.versions.shards import file_sha256
from storage.versions.store import Store, Version

CHAT = pa.schema(
    [
        ("messages", pa.list_(MESSAGE)),
        ("tools", pa.string()),  # JSON: the functions that the messages call
        ("sample", pa.string()),
        ("run", pa.string()),
        ("model", pa.string()),
        ("attempt", pa.int32()),
        ("score", pa.float64()),  # AS of the attempt's pass, measured after the conversation
        ("exit_status", pa.string()),
    ]
)

CARD = """\
---
configs:
- config_name: sft
  description: contents {contents}
  data_files:
  - split: train
    path: data/sft/train-*.parquet
---
# Conversations that wrote good compiler passes

{rows} attempts from {version}, each as chat messages with tool calls. Made by `passnet trajectories`: {filters}
"""

_CORRECT = -5
_BATCH = 32


@dataclass(frozen=True)
class Filter:
    """Which attempts are worth learning from. `min_score` bounds AS from below; `per_sample` keeps the best so many
    attempts at a sample; `unmeasured` lets in what no GPU timed, whose scores mean nothing."""

    min_score: float = 1.0
    per_sample: int | None = None
    submitted: bool = True
    unmeasured: bool = False


def export_trajectories(
    out: str | Path,
    data: str | Path,
    version: str | None = None,
    runs: Sequence[str] = ("latest",),
    min_score: float = 1.0,
    per_sample: int | None = None,
    submitted: bool = True,
    unmeasured: bool = False,
) -> dict:
    """Write a dataset of chat messages to the new directory `out`; says how many attempts were left out, and why.

    Only training samples whose family no evaluation sample has, only passes that are correct in every variant at
    t = -5, only attempts in which no integrity layer refused anything; `runs` as `passnet score` takes them.
    Raises PassNetError if `out` is there already, for unknown runs, and if nothing is left.
    """
    from agent.llm.chat import chat_messages, tools_json

    out, opened = Path(out), Store(data).open(version)
    if out.exists():
        raise PassNetError(f"{out} exists already: give a new directory")
    wanted = {run for name in runs for run in find_runs(opened, name)}
    rule = Filter(min_score, per_sample, submitted, unmeasured)
    scores, causes = _chosen(opened, wanted, rule)
    left_out = causes_text(dict(causes.most_common()))
    if not scores:
        why = f"(left out: {left_out})" if causes else "since there are none"
        raise PassNetError(
            f"no attempt in {opened.name} is left to export {why}; make some with "
            "`passnet evaluate --author llm --split train`"
        )
    tools = tools_json()

    def row(attempt: dict) -> dict:
        plain = {name: attempt[name] for name in ("sample", "run", "model", "attempt", "exit_status")}
        return {"messages": chat_messages(attempt["messages"]), "tools": tools, "score": scores[_key(attempt)], **plain}

    try:
        with filling(out) as place:
            contents = _write(place, opened, scores.keys(), row)[:16]
            card = CARD.format(rows=len(scores), version=opened.name, filters=f"{rule}.", contents=contents)
            (place / "README.md").write_text(card, encoding="utf-8")
    except OSError as error:
        raise disk_error(error, out, "another --out") from error
    say(f"{counted(len(scores), 'conversation')} in {out}; left out: {left_out}")
    return {"path": str(out), "version": opened.name, "exported": len(scores), "left_out": dict(causes)}


def _chosen(version: Version, runs: set[str], rule: Filter) -> tuple[dict[tuple, float], Counter[str]]:
    """Scores of the attempts to export, and how many others there are by cause."""
    samples = version.table("samples", columns=["sample", "family_hash", "split"]).to_pylist()
    held_out = {row["family_hash"] for row in samples if row["split"] == "eval"}
    training = {row["sample"] for row in samples if row["split"] == "train"}
    results: dict[tuple, list[dict]] = defaultdict(list)
    for row in version.table("results", columns=COLUMNS).to_pylist():
        if row["run"] in runs:
            results[_key(row)].append(row)
    good: dict[tuple, float] = {}
    causes: Counter[str] = Counter()
    columns = ["run", "sample", "attempt", "task_family", "task_split", "exit_status", "rejections"]
    for attempt in version.table("trajectories", columns=columns).to_pylist():
        if attempt["run"] not in runs:
            continue
        key = _key(attempt)
        score = aggregate_score(results[key])
        known = attempt["task_split"] == "train" and attempt["sample"] in training
        if not known or attempt["task_family"] in held_out:
            causes["not of a training sample"] += 1
        elif cause := _fault(attempt, results[key], score, rule):
            causes[cause] += 1
        else:
            good[key] = score
    return _best(good, rule.per_sample, causes), causes


def _fault(attempt: dict, rows: list[dict], score: float | None, rule: Filter) -> str | None:
    """Why an attempt at a training sample is not worth learning from; None if it is."""
    if not rows:
        return "no results"
    if attempt["rejections"] or any(row["status"] == "rejected" for row in rows):
        return "an integrity layer refused a pass"
    if any(row["status"] != "ok" or row["t_min"] > _CORRECT for row in rows):
        return "not correct"
    if rule.submitted and attempt["exit_status"] != "submitted":
        return "not submitted"
    if not rule.unmeasured and not all(row["times_meaningful"] for row in rows):
        return "not timed on a GPU"
    if score is None or score < rule.min_score:
        return "score too low"
    return None


def _best(good: dict[tuple, float], per_sample: int | None, causes: Counter[str]) -> dict[tuple, float]:
    """The best `per_sample` attempts at each sample."""
    if per_sample is None:
        return good
    kept: dict[tuple, float] = {}
    taken: Counter[str] = Counter()
    for key, score in sorted(good.items(), key=lambda item: (-item[1], item[0])):
        if taken[key[1]] < per_sample:
            kept[key] = score
            taken[key[1]] += 1
        else:
            causes["better attempts at the sample"] += 1
    return kept


def _write(out: Path, version: Version, keys: Sequence[tuple], row: Callable[[dict], dict]) -> str:
    """Write the conversations. Returns the file's SHA-256."""
    path = out / "data" / "sft" / "train-00000-of-00001.parquet"
    groups = (pa.Table.from_pylist([row(each) for each in rows], CHAT) for rows in _batched(version, set(keys)))
    write_parquet(path, groups, CHAT, elsewhere="another --out")
    return file_sha256(path)


def _batched(version: Version, keys: set[tuple]) -> Iterator[list[dict]]:
    columns = ["run", "sample", "attempt", "model", "exit_status", "messages"]
    for batch in version.batches("trajectories", columns=columns):
        for start in range(0, len(batch), _BATCH):
            if rows := [row for row in batch.slice(start, _BATCH).to_pylist() if _key(row) in keys]:
                yield rows


def _key(row: dict) -> tuple:
    return row["run"], row["sample"], row["attempt"]

"""Scores of runs as one document, for `passnet score`: the t-tables, the summaries, groups and attempts."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flows.report.results import Results, load_results, variant_facts
from passbench.names import CLOCKS
from passbench.result import EAGER_VARIES
from passbench.score import is_measured, outcome_of, outcomes_of, says_something, table_rows, times_meaningful
from passbench.scoring.attempts import best_attempts, pass_at
from passbench.scoring.groups import UNKNOWN, VariantFacts, group_of, group_order
from passbench.scoring.summary import Summary, summarise
from storage.errors import PassNetError

NEEDS_FACTS = ("dtype", "size", "group")


def score_run(
    names: Sequence[str],
    data: Path,
    version: str | None = None,
    clock: str | None = None,
    t: int = -5,
    p: float = 0.0,
    b: float = 0.1,
    by: str | None = None,
    best: bool = False,
    kernels_only: bool = False,
    without_capture: bool = False,
) -> dict:
    """Scores of runs (ids, authors, paths; see `load_results`) by both clocks or one, as a JSON-ready document.

    `t` is the level of everything but the t-table; `p`, `b` as in `passbench.score.speedup_score`; `by` one of
    `passbench.scoring.groups.GROUPINGS`. Every attempt counts, with `best` each sample's best one alone; pass@k is of
    all attempts either way. `kernels_only` and `without_capture` are as in `load_results`. Everything is
    computed from the results, nothing taken from the stored scores.
    Raises PassNetError for runs that are not there, and where nothing can be scored.
    """
    results = load_results(names, data, version, kernels_only=kernels_only, without_capture=without_capture)
    clocks = [clock] if clock else CLOCKS
    notes = _notes(results, clocks)
    counted = best_attempts(results.rows, p, b) if best else results.rows
    by_what, facts = _grouping(by, results, notes)
    settings = {"t": t, "p": p, "b": b}
    runs, scores, lines = [], [], []
    for run in sorted({row["run"] for row in results.rows}):
        mine = [row for row in counted if row["run"] == run]
        every = [row for row in results.rows if row["run"] == run]
        for by_clock in clocks:
            if why_not := _unmeasured(mine, by_clock):
                notes.append(f"{run} has no {by_clock} scores: {why_not}")
                continue
            scored = _summary(mine, by_clock, settings)
            line = {"run": run, **_facts_of_run(every), "clock": by_clock, **_line(scored)}
            line["pass_at_k"] = {str(k): share for k, share in pass_at(every, t, by_clock).items()}
            if by_what and by_what != "author":
                line["groups"] = _groups(mine, by_clock, by_what, facts, settings)
            runs.append(line)
            scores += table_rows(scored.table, mine, run=run, author=line["author"], clock=by_clock)
    if not runs:
        raise PassNetError(f"nothing to score: {'; '.join(notes) or results.source + ' has no rows'}")
    if by_what == "author":
        for by_clock in CLOCKS:
            scored_runs = {line["run"] for line in runs if line["clock"] == by_clock}
            rows = [row for row in counted if row["run"] in scored_runs]
            lines += [{"clock": by_clock, **line} for line in _groups(rows, by_clock, "author", facts, settings)]
    return {
        "source": results.source,
        "version": results.version.name if results.version else None,
        **settings,
        "by": by_what,
        "best": best,
        "notes": notes,
        "runs": runs,
        "authors": lines,
        "scores": scores,
    }


def _summary(rows: Sequence[Mapping[str, Any]], clock: str, settings: Mapping[str, Any]) -> Summary | None:
    """The summary of rows that a clock has measured; None where eager failed on all of them."""
    kept = [row for row in rows if says_something(row, clock)]
    outcomes = [outcome_of(row, clock) for row in kept]
    return summarise(outcomes, [row["sample"] for row in kept], **settings) if kept else None


def _line(scored: Summary) -> dict:
    at = scored.at
    return {
        "samples": scored.samples,
        "n": scored.n,
        "aggregate": scored.aggregate,
        "interval": None if scored.interval is None else list(scored.interval),
        "s_t": at.s_t,
        "es_t": at.es_t,
        "geometric_mean_speedup": at.alpha if at.lam else None,
        "lam": at.lam,
        "slower": scored.slower,
        "fast_p": {str(bound): share for bound, share in scored.fast.items()},
    }


def _groups(
    rows: Sequence[Mapping[str, Any]],
    clock: str,
    by: str,
    facts: Mapping[str, VariantFacts],
    settings: Mapping[str, Any],
) -> list[dict]:
    """A line a group, in order; groups on which eager failed altogether are left out."""
    members: dict[str, list] = {}
    for row in rows:
        members.setdefault(group_of(row, by, facts), []).append(row)
    scored = [(group, _summary(members[group], clock, settings)) for group in sorted(members, key=group_order)]
    return [{"group": group, **_line(summary)} for group, summary in scored if summary]


def _grouping(by: str | None, results: Results, notes: list[str]) -> tuple[str | None, dict[str, VariantFacts]]:
    """What to group by, and dtype and size of the variants where that takes them.

    Where no version holds the variants, it is the category, and a note says so.
    """
    if by not in NEEDS_FACTS:
        return by, {}
    hashes = {row["variant_hash"] for row in results.rows}
    facts = variant_facts(results.version, hashes)
    missing = len(hashes) - len(facts)
    where = results.version.name if results.version else "the data directory"
    if not facts:
        notes.append(
            f"grouped by category: results hold no dtypes and sizes, and {where} does not hold these variants; "
            "name the version that does with --data and --version"
        )
        return "category", {}
    if missing:
        notes.append(f"{where} does not hold {missing} of {len(hashes)} variants: their dtype and size are {UNKNOWN}")
    return by, facts


def _notes(results: Results, clocks: Sequence[str]) -> list[str]:
    notes = [*results.left_out]
    if failed := sum(not says_something(row) for row in results.rows):
        notes.append(f"{failed} of {len(results.rows)} rows are left out: eager itself failed on those variants")
    if "device" in clocks and (unseen := sum(not says_something(row, "device") for row in results.rows) - failed):
        notes.append(
            f"{unseen} of {len(results.rows)} rows are left out by the device's clock: eager cannot be captured in a "
            "CUDA graph on those variants"
        )
    if varying := sum(EAGER_VARIES in (row["reason"] or "") for row in results.rows):
        notes.append(f"in {varying} of {len(results.rows)} rows eager, called twice, is not right at t = -5 either")
    if not times_meaningful(results.rows):
        notes.append("no GPU ran for some or all rows: their statuses and t_min are real, times and scores say nothing")
    return notes


def _unmeasured(rows: Sequence[Mapping[str, Any]], clock: str) -> str:
    """Why a clock cannot score these rows; empty if it can."""
    outcomes = outcomes_of(rows, clock)
    if is_measured(outcomes, clock):
        return ""
    if not outcomes:
        return "eager failed on all of its variants"
    correct = sum(o.t_min is not None for o in outcomes)
    untimed = sum(o.t_min is not None and o.speedup is None for o in outcomes)
    return f"{untimed} of {correct} correct variants have no {clock} time" if untimed else f"nothing has a {clock} time"


def _facts_of_run(rows: Sequence[Mapping[str, Any]]) -> dict:
    """What one line says of a run beside its scores."""
    return {
        "author": rows[0]["author"],
        "model": rows[0]["model"],
        "device": rows[0]["device"],
        "protocol": rows[0]["protocol"],
        "attempts": len({row["attempt"] for row in rows}),
        "times_meaningful": times_meaningful(rows),
    }

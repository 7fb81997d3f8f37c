"""What runs measured, as a Markdown record: hardware, versions, and a line per author and category."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from passbench.names import CLOCKS
from passbench.score import geometric_mean, score_rows, times_meaningful
from storage.schema import CATEGORIES


def summary(dataset: str, runs: Mapping[str, Sequence[dict]], seconds: Mapping[str, float]) -> str:
    """The record. `dataset`: what the samples are from; `runs`: rows by author; `seconds`: what each step took."""
    every = [row for rows in runs.values() for row in rows]
    text = [
        *_origin(every),
        f"{dataset}.",
        "",
        "Speedups: geometric means over variants that ran, eager / candidate. ES and AS: docs/scores.md."
        + ("" if times_meaningful(every) else " No GPU ran for some or all rows: their times and scores say nothing."),
        "",
        "| author | numerics | category | samples | variants | ok | t_min <= -5 | e2e | device | below eager | ES_-5 | "
        "AS e2e | AS device | noisy e2e, device |",
        "|---" * 14 + "|",
    ]
    for author, rows in runs.items():
        for category in (*CATEGORIES, "all"):
            if mine := [row for row in rows if category in (row["category"], "all")]:
                text.append(_table_line(author, category, mine))
    text += ["", *(f"- {name}: {took:.0f} s" for name, took in seconds.items())]
    text += ["", *(_phases(author, rows) for author, rows in runs.items())]
    text += ["", *(_spread_of_eager(rows) for author, rows in runs.items() if author == "eager")]
    failures = Counter((r["author"], r["status"], r["reason"][:160]) for r in every if r["status"] != "ok")
    if failures:
        text += ["", "Failures:", *(f"- {a}: {n} x {s}: {why}" for (a, s, why), n in failures.most_common(30))]
    return "\n".join(text) + "\n"


_SHOWN_PHASES = 12


def _phases(author: str, rows: Sequence[dict]) -> str:
    """Where the time of an author's variants went: milliseconds a variant by phase, the longest first."""
    total: Counter[str] = Counter()
    for row in rows:
        total.update(dict(row.get("phases") or ()))
    seconds = sum(row["seconds"] for row in rows)
    total["else"] = seconds - sum(total.values())
    shown = ", ".join(f"{name} {1000 * took / len(rows):.0f}" for name, took in total.most_common(_SHOWN_PHASES))
    return f"- {author}: {60 * len(rows) / max(seconds, 1e-9):.0f} variants a minute; milliseconds each: {shown}"


def _origin(rows: Sequence[dict]) -> list[str]:
    """Where rows come from: a line for each kind of hardware, set of versions and commit among them."""
    kinds = Counter(
        "; ".join(
            (
                ", ".join(f"{name} {value}" for name, value in dict(row["hardware"] or ()).items()) or row["device"],
                ", ".join(f"{name} {value}" for name, value in dict(row["libraries"] or ()).items()),
                f"commit {row['commit']}",
            )
        )
        for row in rows
    )
    busy = sum(bool(row["busy"]) for row in rows)
    return [*kinds, f"{busy} of {len(rows)} results were measured while the machine did other work."]


def _noisy(rows: Sequence[dict], clock: str) -> str:
    """Share of the rows' timings by a clock that stayed noisy."""
    found = [timing["noisy"] for row in rows for timing in row["timings"] or () if timing["clock"] == clock]
    return f"{sum(found) / len(found):.0%}" if found else "-"


def _table_line(author: str, category: str, rows: Sequence[dict]) -> str:
    """Figures of one author on one category."""
    e2e, on_device = ([r[f"speedup_{clock}"] for r in rows if r[f"speedup_{clock}"]] for clock in CLOCKS)
    tables = {clock: score_rows(rows, run=author, author=author, clock=clock) for clock in CLOCKS}
    level = {(score["clock"], score["t"]): score for table in tables.values() for score in table}

    def score(clock: str, column: str) -> str:
        return f"{level[clock, -5][column]:.3f}" if (clock, -5) in level else "-"

    figures = [
        author,
        next((row["numerics"] for row in rows if row["numerics"]), "-"),
        category,
        len({r["sample"] for r in rows}),
        len(rows),
        sum(r["status"] == "ok" for r in rows),
        sum(r["status"] == "ok" and r["t_min"] <= -5 for r in rows),
        f"{geometric_mean(e2e):.3f}" if e2e else "-",
        f"{geometric_mean(on_device):.3f}" if on_device else "-",
        f"{sum(s < 1 for s in e2e) / len(e2e):.0%}" if e2e else "-",
        score("e2e", "es_t"),
        score("e2e", "aggregate"),
        score("device", "aggregate"),
        ", ".join(_noisy(rows, clock) for clock in CLOCKS),
    ]
    return "| " + " | ".join(str(figure) for figure in figures) + " |"


def _spread_of_eager(rows: Sequence[dict]) -> str:
    """How near to 1 the speedups of eager against itself are: the noise of the measurement."""
    text = ["eager against itself, share of variants within 1, 2 and 3 % of 1.00, and geometric mean:"]
    for clock in CLOCKS:
        speedups = np.array([r[f"speedup_{clock}"] for r in rows if r[f"speedup_{clock}"]])
        if not len(speedups):
            continue
        shares = ", ".join(f"{(abs(speedups - 1) <= width).mean():.1%}" for width in (0.01, 0.02, 0.03))
        text.append(f"{clock} {shares}, {math.exp(np.log(speedups).mean()):.4f} over {len(speedups)} variants;")
    return " ".join(text)

"""The tables of a report, from the rows of `flows.report.rows`: pure functions from rows to rows."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import exp, fsum
from typing import Any

from passbench.score import geometric_mean, log_score, outcome_of, says_something
from passbench.scoring.groups import group_order
from passbench.scoring.summary import summarise

Row = Mapping[str, Any]

FEWEST = 4
"""Variants that an op must occur in to be listed among those on which a compiler loses."""

BANDS = ((1, "1 op"), (4, "2 to 4 ops"), (8, "5 to 8 ops"), (16, "9 to 16 ops"), (1 << 30, "17 ops and more"))


def leaderboard(scored: Mapping[str, Any], labels: Mapping[str, str]) -> list[dict]:
    """A line a run, best AS (e2e) first; scores at the level of `scored`."""
    lines: dict[str, dict] = {}
    for run in scored["runs"]:
        mark = "" if run["times_meaningful"] else " (no GPU: scores say nothing)"
        about = {"author": labels[run["run"]] + mark, "run": run["run"], "device": run["device"]}
        line = lines.setdefault(run["run"], about)
        line |= {"samples": run["samples"], "variants": run["n"], f"AS {run['clock']}": run["aggregate"]}
        if run["clock"] == "e2e":
            low, high = run["interval"] or (None, None)
            line |= {
                "low": low,
                "high": high,
                "speedup": run["geometric_mean_speedup"],
                "correct": run["lam"],
                "slower": run["slower"],
                "fast_1": run["fast_p"]["1.0"],
            }
    return sorted(lines.values(), key=lambda line: -(line.get("AS e2e") or 0))


def common_leaderboard(rows: Sequence[Row]) -> list[dict]:
    """Runs by AS (e2e) on the variants that all of them measured. Empty if they have no variant in common, or all."""
    measured = [r for r in rows if says_something(r)]
    runs = _grouped(measured, lambda r: r["label"])
    hashes = [{r["variant_hash"] for r in members} for members in runs.values()]
    common = set.intersection(*hashes) if hashes else set()
    if not common or all(each == common for each in hashes):
        return []
    lines = []
    for label, members in runs.items():
        mine = [r for r in members if r["variant_hash"] in common]
        scored = summarise([outcome_of(r) for r in mine], [r["sample"] for r in mine])
        low, high = scored.interval or (None, None)
        line = {"author": label, "AS e2e": scored.aggregate, "low": low, "high": high}
        lines.append(line | {"correct": scored.at.lam, "slower": scored.slower, "variants": len(common)})
    return sorted(lines, key=lambda line: -line["AS e2e"])


def failures(rows: Iterable[Row]) -> list[dict]:
    """Results that are not ok, counted by author, status and first line of the reason; most frequent first."""
    counts = Counter((r["label"], r["status"], _first_line(r["reason"])) for r in rows if r["status"] != "ok")
    return [
        {"author": author, "status": status, "variants": count, "reason": reason}
        for (author, status, reason), count in counts.most_common()
    ]


def trace_failures(models: Iterable[Row]) -> list[dict]:
    """Models of the catalogue that could not be traced, by category of error, with one example; most first."""
    by_category: dict[str, list[Row]] = defaultdict(list)
    for model in models:
        if model["status"] != "traced":
            by_category[model["error_category"] or "unknown"].append(model)
    return [
        {
            "category": category,
            "models": len(failed),
            "example": failed[0]["model"],
            "message": _first_line(failed[0]["message"]),
        }
        for category, failed in sorted(by_category.items(), key=lambda item: (-len(item[1]), item[0]))
    ]


def losers(rows: Sequence[Row]) -> list[Row]:
    """Rows of TorchInductor as a user calls it; of another of its modes where only that was run; else none."""
    names = sorted(
        {r["author"] for r in rows if r["author"].startswith("inductor")}, key=lambda n: (n != "inductor", n)
    )
    return [r for r in rows if names and r["author"] == names[0] and r["speedup_e2e"] and r["status"] == "ok"]


def losses_by_group(rows: Sequence[Row]) -> list[dict]:
    """How rows of one author do against eager, by category × dtype, size and op count."""
    kinds: list[tuple[str, Callable[[Row], str]]] = [
        ("all", lambda r: "all"),
        ("category, dtype", lambda r: f"{r['category']} {r['dtype']}"),
        ("largest tensor", lambda r: r["size"]),
        ("length", lambda r: next(name for most, name in BANDS if len(r["ops"]) <= most)),
    ]
    return [
        {"by": kind, "group": group, **_against_eager(members)}
        for kind, key in kinds
        for group, members in sorted(_grouped(rows, key).items(), key=lambda item: _order(item[0]))
    ]


def losses_by_op(rows: Sequence[Row]) -> list[dict]:
    """The same by op that occurs in the subgraph, slowest first; ops in fewer than `FEWEST` variants are left out."""
    by_op: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        for op in set(row["ops"]):
            by_op[op].append(row)
    lines = [{"op": op, **_against_eager(members)} for op, members in by_op.items() if len(members) >= FEWEST]
    return sorted(lines, key=lambda line: (line["speedup"], line["op"]))


def worst_variants(lost: Sequence[Row], rows: Sequence[Row], most: int = 12) -> list[dict]:
    """The variants on which `lost` is slowest, beside the fastest correct other author in `rows`."""
    best: dict[str, Row] = {}
    mine = {row["label"] for row in lost}
    for row in rows:
        if row["label"] not in mine and row["status"] == "ok" and row["speedup_e2e"]:
            before = best.get(row["variant_hash"])
            if before is None or row["speedup_e2e"] > before["speedup_e2e"]:
                best[row["variant_hash"]] = row
    lines = []
    for row in sorted(lost, key=lambda r: r["speedup_e2e"])[:most]:
        other = best.get(row["variant_hash"])
        lines.append(
            {
                "sample": row["sample"],
                "variant": row["variant_hash"][:12],
                "dtype": row["dtype"],
                "ops": len(row["ops"]),
                "e2e": row["speedup_e2e"],
                "on the device": row["speedup_device"],
                "best other": None if other is None else other["speedup_e2e"],
                "by": "" if other is None else other["label"],
            }
        )
    return lines


def by_sample(rows: Sequence[Row]) -> list[dict]:
    """A line a run and sample, best first within each run: AS (e2e) over its variants and attempts, dtypes."""
    lines = []
    for (label, sample), members in _grouped([r for r in rows if says_something(r)], _run_and_sample).items():
        logs = [log_score(outcome_of(r)) for r in members]
        lines.append(
            {
                "author": label,
                "sample": sample,
                "AS": exp(fsum(logs) / len(logs)),
                "variants": len(members),
                "ok": sum(r["status"] == "ok" for r in members),
                "dtypes": " ".join(sorted({r["dtype"] for r in members})),
                "ops": len(members[0]["ops"]),
                "sequence": " ".join(
                    op.removeprefix("torch.").removeprefix("nn.functional.") for op in members[0]["ops"]
                ),
            }
        )
    return sorted(lines, key=lambda line: (line["author"], -line["AS"], line["sample"]))


def extremes(lines: Sequence[dict], each: int) -> list[dict]:
    """The best and worst samples of each run but eager's, from `by_sample`: `place` says which. No sample twice."""
    chosen = []
    for author, mine in _grouped(lines, lambda line: line["author"]).items():
        if author.split()[0] == "eager":
            continue
        worst = mine[max(each, len(mine) - each) :]
        chosen += [line | {"place": "best"} for line in mine[:each]]
        chosen += [line | {"place": "worst"} for line in reversed(worst)]
    return chosen


def _order(group: str) -> tuple[int, tuple[int, str]]:
    bands = [name for _, name in BANDS]
    return bands.index(group) if group in bands else 0, group_order(group)


def _run_and_sample(row: Row) -> tuple[str, str]:
    return row["label"], row["sample"]


def _grouped(rows: Iterable[Any], key: Callable[[Any], Any]) -> dict[Any, list]:
    groups: dict[Any, list] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    return groups


def _against_eager(rows: Sequence[Row]) -> dict:
    """`hidden` is the share that is faster than eager on the device and yet slower end to end: host overhead."""
    device = [r["speedup_device"] for r in rows if r["speedup_device"]]
    slower = [r for r in rows if r["speedup_e2e"] < 1]
    return {
        "variants": len(rows),
        "speedup": geometric_mean([r["speedup_e2e"] for r in rows]),
        "on the device": geometric_mean(device) if device else None,
        "slower": len(slower) / len(rows),
        "hidden": sum((r["speedup_device"] or 0) > 1 for r in slower) / len(rows) if device else None,
    }


def _first_line(text: str | None) -> str:
    lines = (text or "").strip().splitlines()
    return lines[0][:160] if lines else ""


def whole_models(rows: Sequence[Row]) -> list[dict]:
    """A line a whole model, batch size and dtype: times in microseconds of a call by regime, speedups, errors."""
    lines = []
    for row in rows:
        times = {each["regime"]: each["us"] for each in row["regimes"] if ":" not in each["regime"]}
        kept = {name: row[name] for name in ("model", "batch", "dtype", "device", "status", "chosen")}
        regimes = {name: times.get(name) for name in ("eager", "compile", "reduce-overhead", "max-autotune", "ours")}
        over = {"over eager": row["speedup_eager"], "over torch.compile": row["speedup_compiled"]}
        errors = {"error": row["error"], "eager's error": row["error_eager"]}
        shares = {"covered": row["covered"], "covered time": row["covered_time"]}
        lines.append({**kept, **regimes, **over, **errors, **shares, "reason": row["reason"] or row["why_not"]})
    return sorted(lines, key=lambda line: (line["dtype"], line["batch"], line["model"]))


def whole_models_by_kind(rows: Sequence[Row]) -> list[dict]:
    """Geometric means of the speedups of whole models that are right, by device, dtype and batch size."""
    groups: dict[tuple, list[Row]] = defaultdict(list)
    for row in rows:
        if row["status"] == "ok":
            groups[row["device"], row["dtype"], row["batch"]].append(row)
    lines = []
    for (device, dtype, batch), mine in sorted(groups.items()):
        eager = [row["speedup_eager"] for row in mine if row["speedup_eager"]]
        compiled = [row["speedup_compiled"] for row in mine if row["speedup_compiled"]]
        lines.append(
            {
                "device": device,
                "dtype": dtype,
                "batch": batch,
                "models": len(mine),
                "over eager": geometric_mean(eager) if eager else None,
                "over torch.compile": geometric_mean(compiled) if compiled else None,
                "lowest": min(compiled, default=None),
            }
        )
    return lines

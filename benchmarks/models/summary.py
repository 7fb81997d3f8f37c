"""What rows of whole models say, in a few tables: ours against eager and torch.compile, and where it comes from."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

from passbench.models.recipes import PARTS

WORTH = 0.98
"""A model below this speedup is slower than with torch.compile."""


def summary(rows: Sequence[dict[str, Any]], seconds: float) -> str:
    """Markdown. Speedups are geometric means of whole calls, host included, over the models that have both times."""
    measured = [row for row in rows if row["status"] == "ok"]
    parts = [f"{len(measured)} of {len(rows)} measured and right, {seconds:.0f} s."]
    if measured:
        libraries = dict(measured[0]["libraries"])
        parts.append(f"{measured[0]['device']}, torch {libraries['torch']}, triton {libraries['triton']}.")
    lines = [
        "| dtype | batch | models | over eager | over the best of torch.compile | lowest | below 0.98 "
        "| models with max-autotune among them | over the best | lowest |",
        "|-" * 10 + "|",
    ]
    for dtype, batch in sorted({(row["dtype"], row["batch"]) for row in measured}):
        mine = [row for row in measured if (row["dtype"], row["batch"]) == (dtype, batch)]
        compiled = [row["speedup_compiled"] for row in mine if row["speedup_compiled"]]
        eager = [row["speedup_eager"] for row in mine if row["speedup_eager"]]
        tuned = [row["speedup_compiled"] for row in mine if _us(row, "max-autotune") and row["speedup_compiled"]]
        lines.append(
            f"| {dtype} | {batch} | {len(mine)} | {_mean(eager)} | {_mean(compiled)} | {_lowest(compiled)} "
            f"| {sum(x < WORTH for x in compiled)} | {len(tuned)} | {_mean(tuned)} | {_lowest(tuned)} |"
        )
    parts += ["\n".join(lines), _switched_off(measured), _ablation(measured), _starts(measured), _models(rows)]
    return "\n\n".join(parts) + "\n"


def _switched_off(rows: Sequence[dict[str, Any]]) -> str:
    """What each part gives: the time of the best way without it over that of the best way."""
    lines = ["| switched off | dtype | batch | models | takes times as long |", "|---|---|---|---|---|"]
    for part in PARTS:
        for dtype, batch in sorted({(row["dtype"], row["batch"]) for row in rows}):
            mine = [row for row in rows if (row["dtype"], row["batch"]) == (dtype, batch)]
            pairs = [(_us(row, f"without:{part}"), _us(row, f"ours:{row['chosen']}")) for row in mine]
            ratios = [a / b for a, b in pairs if a and b]
            if ratios:
                lines.append(f"| {part} | {dtype} | {batch} | {len(ratios)} | {_mean(ratios)} |")
    return "\n".join(lines)


def _starts(rows: Sequence[dict[str, Any]]) -> str:
    """How long ours took until three calls were answered: choosing included, or with a warm library."""
    found = sorted(r["seconds"] for row in rows for r in row["regimes"] if r["regime"] == "ours" and r["seconds"])
    if not found:
        return ""
    return f"Until ours answered: {found[len(found) // 2]:.1f} s (median), {found[-1]:.1f} s at most."


def _ablation(rows: Sequence[dict[str, Any]]) -> str:
    """Each way over the one that lacks one thing."""
    steps = [
        ("eager's kernels without the host", "ours:eager", "ours:eager-graph"),
        ("TorchInductor's kernels without the host", "ours:inductor", "ours:inductor-graph"),
        ("TorchInductor's kernels instead of eager's", "ours:eager-graph", "ours:inductor-graph"),
        ("merged weights", "ours:inductor-graph", "ours:merged-graph"),
        ("coordinate descent", "ours:merged-graph", "ours:merged-descent-graph"),
        ("horizontal fusion", "ours:merged-graph", "ours:merged-horizontal-graph"),
        ("dependent launches", "ours:merged-graph", "ours:merged-dependent-graph"),
        ("tuned products", "ours:merged-graph", "ours:merged-autotuned-graph"),
        ("launch against reduce-overhead", "reduce-overhead", "ours:inductor-graph"),
    ]
    lines = ["| what | batch | models | speedup |", "|---|---|---|---|"]
    for what, without, with_ in steps:
        for batch in sorted({row["batch"] for row in rows}):
            pairs = [(_us(row, without), _us(row, with_)) for row in rows if row["batch"] == batch]
            ratios = [a / b for a, b in pairs if a and b]
            if ratios:
                lines.append(f"| {what} | {batch} | {len(ratios)} | {_mean(ratios)} |")
    return "\n".join(lines)


def _models(rows: Sequence[dict[str, Any]]) -> str:
    names = ("eager", "compile", "reduce-overhead", "max-autotune", "ours")
    lines = [
        f"| model | dtype | batch | {' | '.join(names)} | chosen | over compiled | why |",
        "|-" * (6 + len(names)) + "|",
    ]
    for row in rows:
        times = " | ".join("" if (us := _us(row, name)) is None else f"{us:.0f}" for name in names)
        ratio = "" if row["speedup_compiled"] is None else f"{row['speedup_compiled']:.2f}"
        why = (row["reason"] or row["why_not"])[:120].replace("|", "/")
        lines.append(
            f"| {row['model']} | {row['dtype']} | {row['batch']} | {times} | {row['chosen']} | {ratio} | {why} |"
        )
    return "\n".join(lines)


def _us(row: dict[str, Any], regime: str) -> float | None:
    return next((r["us"] for r in row["regimes"] if r["regime"] == regime), None)


def _lowest(ratios: Sequence[float]) -> str:
    return f"{min(ratios):.2f}" if ratios else ""


def _mean(ratios: Iterable[float]) -> str:
    logs = [math.log(x) for x in ratios]
    return f"{math.exp(sum(logs) / len(logs)):.3f}" if logs else ""

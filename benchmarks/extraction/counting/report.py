"""What came of all pieces: a line for each, counts over all, and the page for people."""

import sys
from collections.abc import Sequence
from typing import Any

from benchmarks.extraction.counting.comparison import explained


def said(row: dict[str, Any]) -> str:
    if "error" in row:
        return row["error"]
    same = len(set(map(tuple, row["static"])) & set(map(tuple, row["measured"])))
    return (
        f"{len(row['static'])} predicted in {row['static_s']:.2f} s, {len(row['measured'])} measured in "
        f"{row['measured_s']:.1f} s, {same} the same"
    )


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Counts over all pieces that both sides answered; a range counts once whether one side has it or both."""
    done = [row for row in rows if "error" not in row]
    static = [{tuple(r) for r in row["static"]} for row in done]
    measured = [{tuple(r) for r in row["measured"]} for row in done]
    same = sum(len(a & b) for a, b in zip(static, measured, strict=True))
    union = sum(len(a | b) for a, b in zip(static, measured, strict=True))
    kinds: dict[str, int] = {}
    for row in done:
        for each in row["differences"]:
            kinds[each["kind"]] = kinds.get(each["kind"], 0) + 1
    ratios = sorted(row["measured_s"] / row["static_s"] for row in done)
    on_gpu = [row for row in done if row["static_on_gpu"] is not None]
    return {
        "pieces": len(done),
        "models": len({row["piece"].partition("[")[0] for row in done}),
        "ops": sum(row["ops"] for row in done),
        "not_measured": len(rows) - len(done),
        "predicted": sum(map(len, static)),
        "measured": sum(map(len, measured)),
        "identical": same,
        "share_of_measured": _share(same, sum(map(len, measured))),
        "share_of_all": _share(same, union),
        "differences": kinds,
        "static_s": round(sum(row["static_s"] for row in done), 2),
        "measured_s": round(sum(row["measured_s"] for row in done), 1),
        "times_faster_median": round(ratios[len(ratios) // 2], 1) if ratios else None,
        "prefixes": sum(row["prefixes"] for row in done),
        "compilations": sum(row["compilations"] for row in done),
        "counters_disagree": sum(len(row["counters_disagree"]) for row in done),
        "reference_is_gpu": _share(sum(row["static_on_gpu"] == row["static"] for row in on_gpu), len(on_gpu)),
    }


def _share(part: int, whole: int) -> float | None:
    return round(part / whole, 4) if whole else None


def machine(device: str) -> dict[str, str]:
    import torch

    name = torch.cuda.get_device_name() if device == "cuda" else "none"
    return {"gpu": name, "torch": torch.__version__, "command": " ".join(sys.argv)}


def page(report: dict[str, Any]) -> str:
    """The results for people."""
    total = report["summary"]
    lines = [
        "# Kernel counting: one schedule against a measurement a prefix",
        "",
        f"`python {report['command']}` on {report['gpu']}, torch {report['torch']}, {report['wall_s']} s in all.",
        "",
        f"- {total['pieces']} pieces of {total['models']} models, {total['ops']} ops; {total['not_measured']} pieces "
        "were not measured (below)",
        f"- {total['predicted']} ranges predicted, {total['measured']} measured, {total['identical']} identical: "
        f"{_percent(total['share_of_measured'])} of the measured ones, {_percent(total['share_of_all'])} of all that "
        "either side has",
        f"- time: {total['static_s']} s predicted, {total['measured_s']} s measured; a piece in the median "
        f"{total['times_faster_median']} times faster",
        f"- {total['prefixes']} prefixes, {total['compilations']} compilations (equal prefixes of a piece are compiled "
        f"once and their time counts each time); profiler and generated code disagree on {total['counters_disagree']}",
        f"- the reference GPU predicts as this GPU does on {_percent(total['reference_is_gpu'])} of the pieces",
        "",
        "| piece | ops | predicted | measured | identical | predicted s | measured s | ratio |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    done = [row for row in report["pieces"] if "error" not in row]
    for row in done:
        same = len({tuple(r) for r in row["static"]} & {tuple(r) for r in row["measured"]})
        lines.append(
            f"| {row['piece']} | {row['ops']} | {len(row['static'])} | {len(row['measured'])} | {same} "
            f"| {row['static_s']:.2f} | {row['measured_s']:.1f} | {row['measured_s'] / row['static_s']:.0f} |"
        )
    lines += ["", "## Differences", "", _clean(explained.__doc__), ""]
    lines += ["| piece | range | only | kind | ops | kernels in the graph | measured, by end | scheduled alone |"]
    lines += ["| --- | --- | --- | --- | --- | --- | --- | --- |"]
    for row in done:
        for each in row["differences"]:
            ops = ", ".join(name.rpartition(".")[2] for name in each["ops"])
            cells = [row["piece"], each["range"], each["side"], each["kind"], ops, each["kernels_in_graph"]]
            cells += [each["measured_kernels"], each["alone"]]
            lines.append("| " + " | ".join(str(cell).replace("|", "/") for cell in cells) + " |")
    lines += ["", "## Not measured", ""]
    lines += [f"- {row['piece']}: {row['error']}" for row in report["pieces"] if "error" in row] or ["None."]
    return "\n".join(lines) + "\n"


def _clean(text: str | None) -> str:
    return "\n".join(line[4:] for line in (text or "").splitlines()[2:])


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f}%"

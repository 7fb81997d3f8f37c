"""The curve of a run of `benchmarks.learning.from_scratch` as a figure and tables.

python -m benchmarks.learning.curve_figure DIR      # DIR/record.json to DIR/curve.svg and, printed, its tables
"""

import json
import sys
from pathlib import Path

STAGES = ("parses", "allowed", "matches", "right")


def table(record: dict) -> str:
    """Markdown: a line a point, that of an author last. `kept` is the loss on families kept for validation, `whole` the
    share of their answers that the model predicts whole, `repeats` that of its answers which repeat their task."""
    lines = ["| point | steps | kept | whole | repeats | parses | allowed | matches | right |", "|---|" + "---|" * 8]
    for point in sorted(record["points"], key=lambda point: "steps" not in point):
        kept = point.get("kept_families") or {"loss": point.get("loss_on_kept_families")}
        cells = [point["point"], str(point.get("steps", "–")), _cell(kept.get("loss"), "{:.2f}")]
        cells += [_cell(share, "{:.0%}") for share in (kept.get("whole"), point.get("repeats"))]
        cells += [_cell(point[name], "{:.0%}") for name in STAGES]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def ends(record: dict) -> str:
    """Markdown: pass@k of sampled answers, and what answers are worth on a GPU, as far as the record goes."""
    lines = ["| sampled answers | pass@1 | pass@k | k | first allowed is right |", "|---|---|---|---|---|"]
    for name, found in record.items():
        if name.startswith("pass_at_k "):
            most = found["attempts"]
            cells = [name.removeprefix("pass_at_k "), *(f"{found[f'pass@{k}']:.1%}" for k in (1, most)), str(most)]
            lines.append(f"| {' | '.join([*cells, format(found['first allowed'], '.1%')])} |".replace("%", " %"))
    timed = record.get("timed", {})
    names = ("AS e2e", "AS device", "speedup_where_right e2e", "speedup_where_right device")
    lines += ["", f"| author | variants of {timed.get('tasks', 0)} tasks | right | {' | '.join(names)} |"]
    lines.append("|---|" + "---|" * (2 + len(names)))
    for author, found in timed.items():
        if author != "tasks":
            cells = [author, str(found["variants"]), str(found["right"])]
            lines.append(f"| {' | '.join([*cells, *(_cell(found[name], '{:.2f}') for name in names)])} |")
    return "\n".join(lines)


def _cell(number: float | None, form: str) -> str:
    return "–" if number is None else form.format(number).replace("%", " %")


def draw(record: dict, path: Path) -> None:
    """The shares along training, and after the round of expert iteration."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    points = [point for point in record["points"] if "steps" in point]
    asked = record["tasks"] - record.get("validation_tasks", 0)
    figure, axes = pyplot.subplots(figsize=(6.4, 3.6))
    for name in STAGES:
        axes.plot([p["steps"] for p in points], [100 * p[name] for p in points], marker="o", label=name)
    axes.set(xlabel="steps of training", ylabel=f"% of {asked} held-out tasks", ylim=(-3, 103))
    axes.set_title(f"{record['parameters'] / 1e6:.0f} M parameters, {record['device']}", fontsize=10)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Draw and print."""
    place = Path(sys.argv[1])
    record = json.loads((place / "record.json").read_text())
    draw(record, place / "curve.svg")
    print(f"{table(record)}\n\n{ends(record)}")


if __name__ == "__main__":
    main()

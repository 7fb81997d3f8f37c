"""Tables as text, and the answers of `build`, `evaluate` and `score`. Other answers: `texts.py` of the sub-rooms."""

from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

MOST_FAILURES = 20
"""Models that failed which a build lists one by one; more are listed by cause."""
NO_GPU = (
    "No GPU ran: whether a pass matches and is right is real; times are not meaningful, so there are no scores.\n"
    "Eager on a CPU adds in another order than kernels, so half-precision sums that cancel may not be right at t = -5."
)


def render(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], left: Sequence[str] = ()) -> str:
    """Rows as a table of text, 110 characters wide; the first column and those in `left` are flush left."""
    table = Table(title=title, title_justify="left")
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 or column in left else "right", overflow="fold")
    for row in rows:
        table.add_row(*(cell(value) for value in row))
    console = Console(width=110, force_terminal=False, color_system=None)
    with console.capture() as capture:
        console.print(table)
    return capture.get().rstrip()


def cell(value: Any) -> str:
    """A value as a table shows it."""
    if value is None:
        return "-"
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def build_text(built: dict) -> str:
    """What `build` did, and where the version is."""
    different = built["unique"].get("all", {})
    rows = [
        ("models traced", f"{built['traced']} of {built['models']}"),
        ("graphs", built["graphs"]),
        *((f"variants, {category}", count) for category, count in built["subgraphs"].items()),
        *((f"different by {notion.replace('with_', 'graph and ')}", count) for notion, count in different.items()),
        ("duplicates removed", built["duplicates"]),
        *((f"dropped: {cause}", count) for cause, count in built["dropped"].items()),
        *((f"samples, {split}", count) for split, count in built["samples"].items()),
    ]
    note = "" if built["created"] else "\nNothing new: this version holds it all."
    failed = not_traced_text(built)
    return render(f"Dataset {built['version']}", ("what", "count"), rows) + f"{failed}\n{built['path']}{note}"


def not_traced_text(built: dict) -> str:
    """Models that failed: each where they are few, else by cause, with what would mend it."""
    failed = sum(cause["models"] for cause in built["causes"])
    if failed == len(built["failures"]) <= MOST_FAILURES:
        lines = [f"{model}: {why}" for model, why in built["failures"].items()]
    else:
        lines = [
            f"{cause['models']} x {cause['category']}: {cause['message']} (such as {cause['examples'][0]})\n"
            f"    mended by: {cause['mend']}"
            for cause in built["causes"]
        ]
    return "\nFailed models:" + "".join(f"\n  {line}" for line in lines) if lines else ""


def evaluate_text(done: dict) -> str:
    """What each author's passes did on the samples, and where the version with the results is.

    Scores are shown where a GPU measured them; without one, how many variants matched and are correct, and at which t.
    """
    timed = done["times_meaningful"]
    shown = _scores_of_run if timed else _correctness_of_run
    lines = [
        {"author": r["author"], "samples": r["samples"], "variants": r["variants"], **shown(r)} for r in done["runs"]
    ]
    title = f"Results in {done['version']}, measured on {done['device']}"
    note = "" if timed else f"\n{NO_GPU}"
    failures = "".join(
        f"\n  {run['author']}: {count} x {status}: {reason}"
        for run in done["runs"]
        for status, reason, count in run["failures"]
    )
    failed = f"\nFailures:{failures}" if failures else ""
    table = render(title, tuple(lines[0]), [tuple(line.values()) for line in lines])
    return table + failed + note + f"\n{done['path']}"


def _scores_of_run(run: dict) -> dict[str, Any]:
    scores = {"right at t = -5": run["correct"]["-5"], "ES_-5": run["es"]["-5"], "ES_0": run["es"]["0"]}
    return scores | {f"AS {clock}": value for clock, value in run["aggregate"].items()}


def _correctness_of_run(run: dict) -> dict[str, Any]:
    return {"matched": run["matched"], **{f"right at t = {t}": run["correct"][str(t)] for t in (-5, 0, 1)}}


def score_text(done: dict) -> str:
    """Scores of runs: a line a run, then t-table, fast_p, pass@k and groups of each run and clock, then the notes."""
    settings = f"t = {done['t']}, p = {done['p']:g}, b = {done['b']:g}"
    which = "best attempt a sample" if done["best"] else "every attempt"
    lines = [(_run_name(line), line) for line in done["runs"]]
    blocks = [_score_lines(f"Scores of {done['source']} at {settings}, {which}", "run", lines, done["t"])]
    if done["authors"]:
        authors = [(f"{line['group']} ({line['clock']})", line) for line in done["authors"]]
        blocks.append(_score_lines("By author, runs together", "author", authors, done["t"]))
    for line in done["runs"]:
        blocks += _run_blocks(line, [s for s in done["scores"] if s["run"] == line["run"]], done)
    notes = "".join(f"\nnote: {note}" for note in done["notes"])
    return "\n\n".join(blocks) + ("\n" + notes if notes else "")


def _run_name(line: dict) -> str:
    """A run and its clock; marked where no GPU ran, since its scores say nothing."""
    return f"{line['run']} ({line['clock']}{'' if line['times_meaningful'] else ', no GPU: says nothing'})"


def _run_blocks(line: dict, scores: Sequence[dict], done: dict) -> list[str]:
    """The t-table of one run and clock with the shares below it, and its groups."""
    columns = ("t", "S_t", "ES_t", "alpha", "beta", "lambda", "eta", "gamma", "pi1", "pi2", "pi3")
    cells = [
        [s["t"], *(s[c] for c in ("s_t", "es_t", "alpha", "beta", "lam", "eta", "gamma")), *s["pi"]]
        for s in sorted(scores, key=lambda s: s["t"])
        if s["clock"] == line["clock"]
    ]
    name = _run_name(line)
    text = render(f"{name}: AS {cell(line['aggregate'])}{_interval(line)}, N = {line['n']}", columns, cells)
    text += f"\nfast_p at t = {done['t']}: " + ", ".join(f"{p}x {v:.1%}" for p, v in line["fast_p"].items())
    if line["attempts"] > 1:
        text += f"\npass@k at t = {done['t']}: " + ", ".join(f"k={k} {v:.1%}" for k, v in line["pass_at_k"].items())
    if "groups" not in line:
        return [text]
    groups = [(group["group"], group) for group in line["groups"]]
    return [text, _score_lines(f"{name} by {done['by']}", done["by"], groups, done["t"])]


def _score_lines(title: str, what: str, lines: Iterable[tuple[str, dict]], t: int) -> str:
    columns = (what, "samples", "N", "AS", "95%", f"S_{t}", f"ES_{t}", "speedup", "lambda", "slower")
    rows = [
        (
            name, line["samples"], line["n"], line["aggregate"], _interval(line) or None, line["s_t"], line["es_t"],
            line["geometric_mean_speedup"], line["lam"], None if line["slower"] is None else f"{line['slower']:.1%}",
        )
        for name, line in lines
    ]  # fmt: skip
    return render(title, columns, rows)


def _interval(line: dict) -> str:
    return " [{:.3f}, {:.3f}]".format(*line["interval"]) if line["interval"] else ""

"""The command line's answers as text."""

from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table


def render(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Rows as a table of text, 110 characters wide."""
    table = Table(title=title, title_justify="left")
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 else "right", overflow="fold")
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
    rows = [
        ("models traced", f"{built['traced']} of {built['models']}"),
        ("graphs", built["graphs"]),
        *((f"subgraphs, {category}", count) for category, count in built["subgraphs"].items()),
        ("duplicates removed", built["duplicates"]),
        *((f"dropped: {cause}", count) for cause, count in built["dropped"].items()),
        *((f"samples, {split}", count) for split, count in built["samples"].items()),
    ]
    note = "" if built["created"] else "\nNothing new: this version holds it all."
    failures = "".join(f"\n  {model}: {why}" for model, why in built["failures"].items())
    failed = f"\nFailed models:{failures}" if failures else ""
    return render(f"Dataset {built['version']}", ("what", "count"), rows) + f"{failed}\n{built['path']}{note}"


def evaluate_text(done: dict) -> str:
    """Each author's scores over the samples, and where the version with the results is."""
    columns = ("author", "samples", "variants", "ok", "ES_-5", "ES_0", "AS e2e", "AS device")
    rows = [
        (
            r["author"], r["samples"], r["variants"], r["ok"],
            r["es"]["-5"], r["es"]["0"], r["aggregate"]["e2e"], r["aggregate"]["device"],
        )
        for r in done["runs"]
    ]  # fmt: skip
    title = f"Results in {done['version']}, measured on {done['device']}"
    note = "" if done["times_meaningful"] else "\nNo GPU ran: statuses are real, times and scores are not meaningful."
    failures = "".join(
        f"\n  {run['author']}: {count} x {status}: {reason}"
        for run in done["runs"]
        for status, reason, count in run["failures"]
    )
    failed = f"\nFailures:{failures}" if failures else ""
    return render(title, columns, rows) + failed + note + f"\n{done['path']}"


def quickstart_text(done: dict) -> str:
    """The closing tables of the main job."""
    return build_text(done["build"]) + "\n\n" + evaluate_text(done["evaluate"])


def bench_text(done: dict) -> str:
    """One sample's results by variant."""
    columns = ("variant", "inputs", "status", "t_min", "e2e", "95%", "device", "eager us", "error / eager's", "reason")
    rows = [
        (
            v["id"][:12], v["inputs"], v["status"], v["t_min"], v["speedup_e2e"], _sureness(v["timings"]),
            v["speedup_device"], v["eager_us"], _against_double(v), (v["reason"] or "")[:160],
        )
        for v in done["variants"]
    ]  # fmt: skip
    note = "" if done["times_meaningful"] else "\nNo GPU ran: times are not meaningful."
    note += "".join(f"\nmissing layer: {layer}: {why}" for layer, why in done["layers_missing"].items())
    scores = f"\nAS {cell(done['AS']['e2e'])} (e2e), {cell(done['AS']['device'])} (device)"
    return render(f"{done['sample']} with {done['compiler']} on {done['device']}", columns, rows) + scores + note


def _sureness(timings: Sequence[dict]) -> str:
    """The 95% interval of the end-to-end speedup."""
    found = [t for t in timings if t["clock"] == "e2e"]
    return f"[{found[0]['speedup_low']:.2f}, {found[0]['speedup_high']:.2f}]" if found else ""


def _against_double(variant: dict) -> str:
    """How many times eager's error against double precision the candidate has."""
    eager, candidate = variant["error_eager"], variant["error_candidate"]
    if eager is None or candidate is None:
        return ""
    return f"{candidate / eager:.2f}" if eager else ("1.00" if not candidate else "inf")


def score_text(done: dict) -> str:
    """Scores of runs: a line a run, then t-table, fast_p, pass@k and groups of each run and clock, then the notes."""
    settings = f"t = {done['t']}, p = {done['p']:g}, b = {done['b']:g}"
    which = "best attempt a sample" if done["best"] else "every attempt"
    lines = [(f"{line['run']} ({line['clock']})", line) for line in done["runs"]]
    blocks = [_score_lines(f"Scores of {done['source']} at {settings}, {which}", "run", lines, done["t"])]
    if done["authors"]:
        authors = [(f"{line['group']} ({line['clock']})", line) for line in done["authors"]]
        blocks.append(_score_lines("By author, runs together", "author", authors, done["t"]))
    for line in done["runs"]:
        blocks += _run_blocks(line, [s for s in done["scores"] if s["run"] == line["run"]], done)
    notes = "".join(f"\nnote: {note}" for note in done["notes"])
    return "\n\n".join(blocks) + ("\n" + notes if notes else "")


def _run_blocks(line: dict, scores: Sequence[dict], done: dict) -> list[str]:
    """The t-table of one run and clock with the shares below it, and its groups."""
    columns = ("t", "S_t", "ES_t", "alpha", "beta", "lambda", "eta", "gamma", "pi1", "pi2", "pi3")
    cells = [
        [s["t"], *(s[c] for c in ("s_t", "es_t", "alpha", "beta", "lam", "eta", "gamma")), *s["pi"]]
        for s in sorted(scores, key=lambda s: s["t"])
        if s["clock"] == line["clock"]
    ]
    name = f"{line['run']} ({line['clock']})"
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

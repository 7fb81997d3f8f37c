"""A run as a page: the ES_t curves, the t-table and every variant's result, as HTML, PNG and CSV."""

import base64
import csv
import html
from collections.abc import Sequence
from pathlib import Path

from flows.results import find_runs
from storage.errors import PassNetError
from storage.versions import Version

RESULT_COLUMNS = (
    "run sample category variant_hash author compiler status error_code reason t_min max_abs_error "
    "speedup_e2e speedup_device times_meaningful matches device seconds"
).split()
SCORE_COLUMNS = "run author clock t s_t es_t alpha beta lam eta gamma n aggregate".split()

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 0 auto; padding: 1rem; color: #222 }}
img {{ max-width: 100%; height: auto }}
.wide {{ overflow-x: auto }}
table {{ border-collapse: collapse; font-size: .85rem; white-space: nowrap }}
td, th {{ padding: .2rem .6rem; border-bottom: 1px solid #ddd; text-align: right }}
td:first-child, th:first-child {{ text-align: left }}
.note {{ background: #fff3cd; padding: .5rem .8rem; border-radius: .3rem }}
</style></head><body>
<h1>{title}</h1>
<p>{subtitle}</p>
{note}
<h2>Error-aware Speedup Score</h2>
<img alt="ES_t against t for each run" src="data:image/png;base64,{picture}">
<h2>t-table</h2><div class="wide">{scores}</div>
<h2>Failures</h2><div class="wide">{failures}</div>
<h2>Results by variant</h2><div class="wide">{results}</div>
</body></html>
"""


def write_report(version: Version, run: str, directory: Path) -> Path:
    """Write `index.html` (self-contained), `es_t.png`, `scores.csv`, `results.csv`; returns the page's path.

    Raises PassNetError if the version has no such run or the directory cannot be written.
    """
    runs = find_runs(version, run)
    results = [r for r in version.table("results").to_pylist() if r["run"] in runs]
    scores = [s for s in version.table("scores").to_pylist() if s["run"] in runs]
    results.sort(key=lambda r: (r["run"], r["sample"], r["variant_hash"]))
    scores.sort(key=lambda s: (s["run"], s["clock"], s["t"]))
    failures = _failures(results)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        _write_csv(directory / "results.csv", RESULT_COLUMNS, results)
        _write_csv(directory / "scores.csv", SCORE_COLUMNS, scores)
        picture = _plot(scores, directory / "es_t.png")
        meaningful = all(r["times_meaningful"] for r in results)
        page = PAGE.format(
            title=html.escape(f"PassNet {version.name}: {', '.join(sorted({r['author'] for r in results}))}"),
            subtitle=html.escape(f"{len(results)} results of {len({r['sample'] for r in results})} samples"),
            note=""
            if meaningful
            else '<p class="note">No GPU ran: times and scores are not meaningful here; statuses and t_min are.</p>',
            picture=base64.b64encode(picture).decode(),
            scores=_table(SCORE_COLUMNS, scores),
            failures=_table(("author", "status", "reason", "variants"), failures),
            results=_table(RESULT_COLUMNS[1:], results),
        )
        (directory / "index.html").write_text(page, encoding="utf-8")
    except OSError as error:
        raise PassNetError(f"cannot write the report to {directory}: {error.strerror}; choose another --out") from error
    return directory / "index.html"


def _failures(results: Sequence[dict]) -> list[dict]:
    counts: dict[tuple[str, str, str], int] = {}
    for r in results:
        if r["status"] != "ok":
            key = (r["author"], r["status"], (r["reason"] or "").splitlines()[0][:120] if r["reason"] else "")
            counts[key] = counts.get(key, 0) + 1
    return [
        {"author": a, "status": s, "reason": why, "variants": n}
        for (a, s, why), n in sorted(counts.items(), key=lambda item: -item[1])
    ]


def _write_csv(path: Path, columns: Sequence[str], rows: Sequence[dict]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)


def _plot(scores: Sequence[dict], path: Path) -> bytes:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for run, clock in sorted({(s["run"], s["clock"]) for s in scores}):
        line = [s for s in scores if (s["run"], s["clock"]) == (run, clock)]
        style = "-" if clock == "e2e" else "--"
        axes.plot([s["t"] for s in line], [s["es_t"] for s in line], style, label=f"{line[0]['author']} ({clock})")
    axes.axhline(1.0, color="grey", linewidth=0.8)
    axes.set(xlabel="tolerance level t", ylabel="ES_t (eager = 1)", yscale="log")
    if scores:
        axes.legend()
    figure.savefig(path, dpi=150)
    return path.read_bytes()


def _table(columns: Sequence[str], rows: Sequence[dict]) -> str:
    head = "".join(f"<th>{c}</th>" for c in columns)
    body = "".join("<tr>" + "".join(f"<td>{_cell(r.get(c))}</td>" for c in columns) + "</tr>" for r in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else html.escape(str(value)[:160])

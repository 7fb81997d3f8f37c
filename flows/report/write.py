"""Runs as one page: who is fastest, where TorchInductor loses, the best and worst samples, what failed.

The page is one HTML file that loads nothing; its pictures and tables lie beside it as PNG and CSV.
"""

import csv
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from markupsafe import Markup
from matplotlib.figure import Figure

from flows.report import figures, graph_drawing, page, tables
from flows.report.page import folded, grid, joined, paragraph, picture, subheading, table
from flows.report.rows import Material, drawn, gather, labels
from passbench.conditions import Conditions
from storage.disk import disk_error, filling

RESULT_COLUMNS = (
    "run label sample category dtype size elements variant_hash author model attempt status error_code t_min "
    "speedup_e2e speedup_device times_meaningful device protocol reason"
).split()
SCORE_COLUMNS = "run author clock t s_t es_t alpha beta lam eta gamma n aggregate".split()
CONDITION_COLUMNS = Conditions._fields
OPS_SHOWN = 16
"""Ops in the list of those on which TorchInductor loses; the CSV has all."""


def write_report(
    names: Sequence[str],
    directory: Path,
    data: Path,
    version: str | None = None,
    *,
    kernels_only: bool = False,
    without_capture: bool = False,
) -> Path:
    """Write `index.html` and, beside it, its pictures (PNG) and tables (CSV); returns the page's path.

    `names` (ids, authors, "latest", or paths of results) `kernels_only` and `without_capture` are as
    `results.load_results` takes them.
    Raises PassNetError if there is no such run, nothing can be scored, or the directory cannot be
    written. The directory is as it was before then.
    """
    material = gather(names, data, version, kernels_only=kernels_only, without_capture=without_capture)
    try:
        with filling(directory) as place:
            (place / "index.html").write_text(_page(material, _ReportWriter(place)), encoding="utf-8")
    except OSError as error:
        raise disk_error(error, directory, "another --out") from error
    return directory / "index.html"


class _ReportWriter:
    """Writes pictures and tables beside the page."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def png(self, name: str, figure: Figure) -> bytes:
        data = figures.png(figure)
        (self.directory / f"{_of_a_file(name)}.png").write_bytes(data)
        return data

    def csv(self, name: str, rows: Sequence[Mapping], columns: Sequence[str]) -> None:
        with (self.directory / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, columns, extrasaction="ignore")
            writer.writeheader()
            writer.writerows(rows)


def _of_a_file(name: str) -> str:
    """A name as a file may have it: samples of a results file may be called anything."""
    return re.sub(r"[^\w.\-]", "_", name)[:100]


def _page(material: Material, writer: _ReportWriter) -> str:
    rows = material.rows
    writer.csv("results", rows, RESULT_COLUMNS)
    authors = ", ".join(dict.fromkeys(r["label"] for r in rows))
    devices = ", ".join(sorted({r["device"] for r in rows}))
    protocols = ", ".join(sorted({r["protocol"] for r in rows}))
    where = f" of version {material.version.name}" if material.version else ""
    return page.page(
        f"PassNet: {authors}",
        f"{len(rows)} results on {len({r['sample'] for r in rows})} samples{where}, from {material.scored['source']}; "
        f"measured on {devices}, protocol {protocols}.",
        material.scored["notes"],
        [
            ("Leaderboard", _leaderboard(material, writer)),
            ("ES_t by tolerance", _curves(material, writer)),
            ("Speedups", _speedups(material, writer)),
            ("Where TorchInductor loses", _losses(material, writer)),
            ("Best and worst samples", _extremes(material, writer)),
            ("Failures", _failures(material, writer)),
            ("Whole models", _whole_models(material, writer)),
            ("Tracing", _tracing(material, writer)),
        ],
    )


def _leaderboard(material: Material, writer: _ReportWriter) -> Markup:
    lines = tables.leaderboard(material.scored, labels(material.rows))
    columns = [
        "author",
        "AS e2e",
        "low",
        "high",
        "AS device",
        "speedup",
        "correct",
        "slower",
        "fast_1",
        "samples",
        "variants",
    ]
    writer.csv("leaderboard", lines, ["run", "device", *columns])
    text = (
        "AS is the aggregate error-aware speedup over eager (1 is as fast as eager), end to end and on the device; low "
        "and high bound its 95% interval over samples. Correct is the share of variants that agree with eager at level "
        f"{material.scored['t']}, speedup their geometric mean; slower: the share of timed variants that lose against "
        "eager; fast_1: correct and faster than eager."
    )
    parts = [table(lines, columns, ("correct", "slower", "fast_1")), paragraph(text)]
    shared = tables.common_leaderboard(material.rows)
    if shared:
        writer.csv("leaderboard_common", shared, list(shared[0]))
        parts.append(subheading(f"On the {shared[0]['variants']} variants that all of them have"))
        parts.append(table(shared, list(shared[0]), ("correct", "slower")))
    return joined(parts)


def _curves(material: Material, writer: _ReportWriter) -> Markup:
    scores, named = material.scored["scores"], labels(material.rows)
    writer.csv("scores", scores, [*SCORE_COLUMNS, *CONDITION_COLUMNS])
    image = writer.png("es_t", figures.es_t_curves(scores, named))
    tables = []
    for run, clock in dict.fromkeys((s["run"], s["clock"]) for s in scores):
        mine = [s for s in scores if (s["run"], s["clock"]) == (run, clock)]
        where = Conditions(*(mine[0][column] for column in CONDITION_COLUMNS))
        tables.append(folded(f"t-table of {named[run]}, {clock}: {where}", table(mine, SCORE_COLUMNS[3:-2])))
    return grid([picture(image, "ES_t against t for each run"), Markup("<div>{}</div>").format(joined(tables))])


def _speedups(material: Material, writer: _ReportWriter) -> Markup:
    parts = []
    for by in ("dtype", "category"):
        figure = figures.violins(material.rows, by)
        if figure is not None:
            parts.append(picture(writer.png(f"speedups_by_{by}", figure), f"speedups of each run by {by}", f"By {by}."))
    return grid(parts) if parts else paragraph("No variant is correct and has a time.")


def _losses(material: Material, writer: _ReportWriter) -> Markup:
    lost = tables.losers(material.rows)
    if not lost:
        return paragraph(
            "No correct results of TorchInductor are among these runs: run `passnet evaluate --author inductor`."
        )
    groups, ops = tables.losses_by_group(lost), tables.losses_by_op(lost)
    worst = tables.worst_variants(lost, material.rows)
    counted = ["variants", "speedup", "on the device", "slower", "hidden"]
    writer.csv("inductor_by_group", groups, ["by", "group", *counted])
    writer.csv("inductor_by_op", ops, ["op", *counted])
    writer.csv("inductor_worst", worst, list(worst[0]))
    everything = groups[0]
    text = (
        f"{lost[0]['label']} is slower than eager on {everything['slower']:.0%} of {len(lost)} correct variants. "
        "Hidden: faster on the device, slower end to end, so that what loses is the host's part of the call."
    )
    parts = []
    if ops:
        image = writer.png("inductor_by_op", figures.bars(ops[:OPS_SHOWN], "op"))
        caption = "By op in the subgraph, slowest first; in brackets the variants."
        parts.append(picture(image, "speedup of TorchInductor by op", caption))
    parts.append(table(groups, ["by", "group", *counted], ("slower", "hidden")))
    return joined([paragraph(text), *parts, subheading("Its slowest variants"), table(worst, list(worst[0]))])


def _extremes(material: Material, writer: _ReportWriter) -> Markup:
    lines = tables.by_sample(material.rows)
    columns = ["author", "sample", "AS", "variants", "ok", "dtypes", "ops", "sequence"]
    writer.csv("samples", lines, columns)
    chosen = tables.extremes(lines, 3 if len({line["author"] for line in lines}) < 3 else 2)
    graphs = drawn(material.version, material.rows, {line["sample"] for line in chosen})
    images = {}
    for sample, found in sorted(graphs.items()):
        images[sample] = writer.png(f"graph_{sample}", graph_drawing.draw(found.graph, found.inputs))
    said: dict[str, list[str]] = {}
    for line in chosen:
        place = f"{line['place']} of {line['author']}: AS {line['AS']:.2f}, {line['ok']} of {line['variants']} ok"
        said.setdefault(line["sample"], []).append(place)
    parts = []
    for sample, places in said.items():
        if sample in images:
            caption = f"{sample}; {'; '.join(places)}"
            parts.append(picture(images[sample], f"graph of {sample}", caption, tall=True))
        else:
            parts.append(paragraph(f"{sample}; {'; '.join(places)}; no version at hand holds its graph"))
    return grid(parts) + folded("All samples", table(lines, columns, long=("sequence",)))


def _failures(material: Material, writer: _ReportWriter) -> Markup:
    lines = tables.failures(material.rows)
    columns = ["author", "status", "variants", "reason"]
    writer.csv("failures", lines, columns)
    return table(lines, columns, long=("reason",))


def _whole_models(material: Material, writer: _ReportWriter) -> Markup:
    if not material.whole_models:
        return paragraph("No whole model was measured: run `passnet evaluate-models`.")
    lines = tables.whole_models(material.whole_models)
    groups = tables.whole_models_by_kind(material.whole_models)
    writer.csv("whole_models", lines, list(lines[0]))
    text = (
        "Speedups are of whole calls, host included: eager's time over ours, and the time of the fastest mode of "
        "torch.compile over ours. Error is the relative error against double precision; covered: the share of the "
        "model's operators that passes of the library serve; covered time: the share of eager's time that these take."
    )
    parts = [paragraph(text), table(groups, list(groups[0])) if groups else paragraph("None was measured.")]
    return joined([*parts, table(lines, list(lines[0]), ("covered", "covered time"), long=("reason",))])


def _tracing(material: Material, writer: _ReportWriter) -> Markup:
    lines = tables.trace_failures(material.models)
    columns = ["category", "models", "example", "message"]
    writer.csv("trace_failures", lines, columns)
    if not material.models:
        return paragraph("No version at hand says what was traced.")
    traced = len(material.models) - sum(line["models"] for line in lines)
    return paragraph(f"{traced} of {len(material.models)} models were traced.") + table(
        lines, columns, long=("message",)
    )

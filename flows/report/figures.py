"""The figures of a report. Narrow, with large letters, so that they can be read on a phone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import cycle
from math import ceil, floor, log2
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from passbench.names import CLOCKS

WIDTH = 5.6  # inches
DPI = 144
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999933")
"""Okabe and Ito's palette, which the colour-blind tell apart (2008); the last one is Tol's."""

PLAIN_TEXT = matplotlib.rc_context({"text.parse_math": False})
"""Decorates what draws: names hold any character, dollars too."""

_FEWEST = 8
"""Speedups below which points are drawn, no violin."""


@dataclass(frozen=True)
class Picture:
    """A PNG file that a notebook shows."""

    data: bytes

    def _repr_png_(self) -> bytes:
        return self.data


def png(figure: Figure) -> bytes:
    """The figure as a PNG file."""

    FigureCanvasAgg(figure)
    file = BytesIO()
    figure.savefig(file, dpi=DPI, format="png", metadata={"Software": None})
    return file.getvalue()


@PLAIN_TEXT
def es_t_curves(scores: Sequence[Mapping[str, Any]], labels: Mapping[str, str]) -> Figure:
    """ES_t against t, a panel a clock, a line a run; `scores` as rows of `storage.schema.SCORES`."""

    clocks = [clock for clock in CLOCKS if any(s["clock"] == clock for s in scores)]
    runs = sorted({s["run"] for s in scores}, key=labels.__getitem__)
    figure = Figure(figsize=(WIDTH, 0.5 + 2.7 * len(clocks) + 0.2 * len(runs)), layout="constrained")
    for row, clock in enumerate(clocks, 1):
        axes = figure.add_subplot(len(clocks), 1, row)
        for number, run in enumerate(runs):
            line = sorted((s["t"], s["es_t"]) for s in scores if (s["run"], s["clock"]) == (run, clock))
            if line:
                style = {"color": COLOURS[number % len(COLOURS)], "marker": ".", "label": labels[run]}
                axes.plot(*zip(*line, strict=True), **style)
        axes.axhline(1.0, color="#888", linewidth=1, linestyle=":")
        axes.set_title({"e2e": "end to end", "device": "on the device"}[clock], fontsize=11)
        axes.set_ylabel("ES_t (eager = 1)")
        _log_ticks(axes)
    axes.set_xlabel("tolerance level t: strict to lenient")
    handles, names = figure.axes[0].get_legend_handles_labels()
    figure.legend(
        handles, names, loc="outside lower center", fontsize=9, frameon=False, ncols=1 if len(runs) < 3 else 2
    )
    return figure


@PLAIN_TEXT
def violins(rows: Sequence[Mapping[str, Any]], by: str) -> Figure | None:
    """End-to-end speedups of correct variants, a panel a group, a violin a run, its median marked.

    `by` is a column of the rows, such as "dtype"; groups are in the order of their names. None without a speedup.
    """

    timed = [r for r in rows if r["status"] == "ok" and r["speedup_e2e"]]
    colours = dict(zip(sorted({r["label"] for r in timed}), cycle(COLOURS), strict=False))
    if not timed:
        return None
    panels: dict[str, dict[str, list[float]]] = {}
    for r in sorted(timed, key=lambda r: (r[by], r["label"])):
        panels.setdefault(r[by], {}).setdefault(r["label"], []).append(log2(r["speedup_e2e"]))
    heights = [0.5 + 0.42 * len(panel) for panel in panels.values()]
    figure = Figure(figsize=(WIDTH, 0.6 + sum(heights)), layout="constrained")
    several = figure.subplots(len(panels), 1, sharex=True, squeeze=False, gridspec_kw={"height_ratios": heights})[:, 0]
    for axes, (group, panel) in zip(several, panels.items(), strict=True):
        for place, (name, values) in enumerate(panel.items()):
            _violin(axes, values, place, colours[name])
        axes.set_yticks(range(len(panel)), [f"{name} ({len(values)})" for name, values in panel.items()], fontsize=9)
        axes.set_ylim(len(panel) - 0.4, -0.6)
        axes.axvline(0, color="#888", linewidth=1, linestyle=":")
        axes.set_title(group, fontsize=11)
        axes.grid(axis="x", alpha=0.3)
    low, high = floor(min(log2(r["speedup_e2e"]) for r in timed)), ceil(max(log2(r["speedup_e2e"]) for r in timed))
    ticks = range(low, high + 1, 1 + (high - low) // 8)
    axes.set_xticks(ticks, [f"{2**t}×" if t >= 0 else f"1/{2**-t}" for t in ticks])
    axes.set_xlabel("speedup over eager, end to end (variants)")
    return figure


@PLAIN_TEXT
def bars(lines: Sequence[Mapping[str, Any]], name: str) -> Figure:
    """Geometric mean speedups, a pair of bars a line: end to end, and on the device where known; slowest on top."""

    figure = Figure(figsize=(WIDTH, 0.9 + 0.36 * len(lines)), layout="constrained")
    axes = figure.add_subplot()
    clocks = [("speedup", COLOURS[1], "end to end"), ("on the device", COLOURS[5], "on the device")]
    timed = [clock for clock in clocks if any(line[clock[0]] is not None for line in lines)]
    for (key, colour, label), shift in zip(timed, (0,) if len(timed) == 1 else (-0.2, 0.2), strict=True):
        known = [(i + shift, line[key] - 1) for i, line in enumerate(lines) if line[key] is not None]
        places, lengths = zip(*known, strict=True)
        axes.barh(places, lengths, height=0.38, left=1, color=colour, label=label)
    texts = [f"{_short(line[name])} ({line['variants']})" for line in lines]
    axes.set_yticks(range(len(lines)), texts, fontsize=9)
    axes.invert_yaxis()
    axes.axvline(1, color="#444", linewidth=1)
    axes.set_xlabel("speedup over eager (geometric mean)")
    axes.legend(fontsize=9, frameon=False)
    return figure


def _violin(axes: Axes, values: Sequence[float], place: int, colour: str) -> None:
    if len(values) < _FEWEST or max(values) - min(values) < 1e-3:  # too few or too alike for a density
        axes.plot(values, [place] * len(values), "o", color=colour, markersize=4, alpha=0.6)
        return
    drawn = axes.violinplot(
        [values], [place], orientation="horizontal", widths=0.85, showextrema=False, showmedians=True
    )
    drawn["bodies"][0].set(facecolor=colour, alpha=0.55)
    drawn["cmedians"].set(color="#000", linewidth=1.5)


def _log_ticks(axes: Axes) -> None:

    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(base=10, subs=(1, 1.5, 2, 3, 5, 7)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:.3g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.grid(alpha=0.3)


def _short(name: str) -> str:
    for prefix in ("torch.", "nn.functional.", "_C._nn.", "operator."):
        name = name.removeprefix(prefix)
    return name if len(name) <= 32 else f"{name[:31]}…"

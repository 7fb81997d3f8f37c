"""A table in Markdown of each kind of file that a call on a GPU host leaves."""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median

import pandas as pd

from benchmarks.passbench.compared import text_of
from benchmarks.passbench.kept_passes.__main__ import table_of as table_of_things
from passbench.names import CLOCKS
from passbench.score import geometric_mean
from storage.parquet import read_rows
from storage.schema import CATEGORIES, RESULTS

_LEVEL = -5
_SLOW = 0.97
_OF_TESTS = re.compile(
    r"^(E  |exit |no time was left)|(^|\s)(FAILED|ERROR)(\s|$)|(passed|failed|skipped|error).* in [\d.]+s"
)
"""A test that failed is named in the line of its end, too: a run that is killed has no list of failures."""


def line(*cells: object) -> str:
    """A row of a table."""
    return "| " + " | ".join(map(str, cells)) + " |"


def head(*titles: str) -> list[str]:
    """The first two rows of a table."""
    return [line(*titles), "|---" * len(titles) + "|"]


def log(file: Path) -> str:
    """What a log of tests or attacks says in the end, and each failure."""
    text = file.read_text("utf-8", "replace").splitlines()
    passed = sum(" PASSED" in one for one in text)
    kept = [one[:200] for one in text if _OF_TESTS.search(one) or " EXPECTED " in one or " verdicts, " in one]
    return "\n".join([f"{passed} passed" if passed else "", *kept[-30:]]).strip()


def whole_log(file: Path) -> str:
    """All of a short log."""
    return "```\n" + file.read_text("utf-8", "replace").strip()[-4000:] + "\n```"


def results(directory: Path) -> str:
    """The tables of `baselines_table`."""
    files = [directory / f"{name}.parquet" for name in ("results", "full")]
    return text_of(*([*read_rows(file, RESULTS)] if file.exists() else [] for file in files))


def both_ways(file: Path) -> str:
    """Microseconds of a call in shared rounds and by whole trials, and the mean of their speedups' ratios."""
    by_sample: dict[str, dict[str, dict]] = defaultdict(dict)
    for row in read_rows(file, RESULTS):
        by_sample[row["sample"]][row["run"]] = row
    runs = ("shared-eager", "shared-distill", "passnet-distill")
    lines = head("sample", "clock", "eager, shared", "again as candidate", "pass", "eager, whole", "pass")
    for sample, rows in by_sample.items():
        for clock in CLOCKS:
            found = [
                next((t for t in rows[run]["timings"] if t["clock"] == clock), None) for run in runs if run in rows
            ]
            if len(found) == len(runs) and None not in found:
                beside, shared, whole = found
                times = (shared["eager_us"], beside["candidate_us"], shared["candidate_us"])
                times += (whole["eager_us"], whole["candidate_us"])
                lines.append(line(sample, clock, *(f"{us:.2f}" for us in times)))
    lines.append("")
    for clock in CLOCKS:
        pairs = [[rows.get(run, {}).get(f"speedup_{clock}") for run in runs[1:]] for rows in by_sample.values()]
        if ratios := [shared / whole for shared, whole in pairs if shared and whole]:
            lines.append(f"{clock}: shared over whole {geometric_mean(ratios):.3f}, {len(ratios)} passes")
    return "\n".join(lines)


def things(file: Path) -> str:
    """What each thing that a process has done adds to a call."""
    return "```\n" + "\n".join(table_of_things([json.loads(text) for text in file.read_text().splitlines()])) + "\n```"


def variants(file: Path) -> str:
    """Passes on all variants of their samples, or on others, by category."""
    lines = head("category", "samples", "variants", "right at t = -5", "median e2e", "median device", "device < 0.97")
    rows = read_rows(file, RESULTS)
    for category in CATEGORIES:
        some = [row for row in rows if row["category"] == category]
        right = [row for row in some if row["status"] == "ok" and row["t_min"] is not None and row["t_min"] <= _LEVEL]
        speeds = [[row[f"speedup_{clock}"] for row in some if row[f"speedup_{clock}"]] for clock in CLOCKS]
        medians = [f"{median(one):.2f}" if one else "" for one in speeds]
        slow = sum(speed < _SLOW for speed in speeds[1])
        if some:
            lines.append(line(category, len({r["sample"] for r in some}), len(some), len(right), *medians, slow))
    return "\n".join(lines)


def verdicts(files: Iterable[Path]) -> str:
    """Attacks and honest passes by part: how many verdicts there are, and which were not as expected."""
    lines, unexpected = head("part", "verdicts", "passes", "with all layers on", "unexpected"), []
    by_part: dict[str, list[pd.DataFrame]] = defaultdict(list)
    for file in files:
        by_part[file.parent.name.rpartition("-")[0] or file.parent.name].append(pd.read_parquet(file))
    for part, tables in sorted(by_part.items()):
        every = pd.concat(tables)
        bad = every[~every["ok"].astype(bool)]
        cells = (len(every), every["name"].nunique(), int((every["off"] == "").sum()), len(bad))
        lines.append(line(part, *cells))
        for row in bad.itertuples():
            reason = " ".join(str(getattr(row, "reason", "")).split())[:160]
            unexpected.append(f"- {row.name} without [{row.off}]: {row.status} {reason}; expected {row.expected}")
    return "\n".join([*lines, "", *unexpected])


def repeats(directory: Path) -> str:
    """AS of runs of the same passes."""
    file = directory / "repeats" / "summary.md"
    return file.read_text("utf-8") if file.exists() else "fewer than two runs ended"


def turns(file: Path) -> str:
    """Eager against itself with all threads and with one."""
    return file.read_text("utf-8", "replace")


def join(titled: Sequence[tuple[str, str]]) -> str:
    """Sections one after another."""
    return "\n\n".join(f"## {title}\n\n{text.strip()}" for title, text in titled if text.strip()) + "\n"

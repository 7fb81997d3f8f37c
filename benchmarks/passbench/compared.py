"""What `baselines_table` writes: a table by author, `distill` beside TorchInductor, shared beside whole trials.

python3 -m benchmarks.passbench.compared DIRECTORY               # its results.parquet and full.parquet
python3 -m benchmarks.passbench.compared DIRECTORY ROWS.parquet  # these rows, too; only samples that have some of them
"""

import math
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from agent.run.summary import summary
from benchmarks.passbench.merge_runs import common
from passbench.names import CLOCKS
from passbench.result import EAGER_FAILED
from passbench.score import aggregate_score, geometric_mean
from storage.parquet import read_rows
from storage.schema import CATEGORIES, RESULTS

LEVEL = -5
STRICT, DEFAULT, TUNED = "inductor-strict-direct", "inductor-direct", "inductor-max-autotune"
AUTHOR, STATIC = "distill", "distill-static"
_SLOW = 0.97
_LEFT = "left to eager"

Rows = Mapping[str, dict]
"""The rows of a sample, by author."""


def text_of(rows: Sequence[dict], full: Sequence[dict]) -> str:
    """All tables. `full` are rows of whole trials of samples that `rows` have, too."""
    by_author: dict[str, list[dict]] = defaultdict(list)
    by_sample: dict[str, dict[str, dict]] = defaultdict(dict)
    for row in rows:
        by_sample[row["sample"]][row["author"]] = row
    if not rows:
        return "There are no rows.\n"
    everything = list(by_sample.values())
    samples = [sample for sample in everything if not _eager_failed(sample)]
    rows = [row for sample in samples for row in sample.values()]
    for row in rows:
        by_author[row["author"]].append(row)
    return "\n".join(
        (
            "## Samples\n",
            *_counted(everything),
            "\n## Variants that all authors have\n",
            summary("Shared rounds", common(list(rows)), {}),
            *_without_tuned(rows),
            *_where_eager_repeats(samples),
            "## All variants of each author\n",
            summary("Shared rounds", by_author, {}),
            "## distill\n",
            *_distill(samples, AUTHOR),
            *_of_static(samples),
            "\n## distill beside TorchInductor by the device's clock\n",
            *_beside(samples),
            "\n## Shared rounds against whole trials of the same variants\n",
            *_shared_and_whole(by_sample, full),
            "",
        )
    )


def _without_tuned(rows: Sequence[dict]) -> list[str]:
    """The same where max-autotune has fewer rows than the others."""
    others = [row for row in rows if row["author"] != TUNED]
    title = f"## Variants that all authors but {TUNED} have\n"
    return [] if len(others) == len(rows) else [title, summary("Shared rounds", common(others), {})]


def _counted(samples: Sequence[Rows]) -> list[str]:
    """How many samples count. Where eager fails, the sample is in no other table; where it does not repeat itself, it
    counts against all, and one table leaves it out."""
    lines = [_line("category", "samples", "eager fails", "eager not right by itself at t = -5"), "|---" * 4 + "|"]
    named = []
    for category in CATEGORIES:
        some = [s for s in samples if next(iter(s.values()))["category"] == category]
        failed = [s for s in some if _eager_failed(s)]
        loose = [s for s in some if not _eager_failed(s) and not _right(s.get("eager"))]
        lines.append(_line(category, len(some), len(failed), len(loose)))
        named += [("eager fails", s) for s in failed] + [("eager is not right by itself", s) for s in loose]
    return [*lines, "", *(f"- {what}: {_named(sample)}" for what, sample in named)]


def _named(sample: Rows) -> str:
    row = sample.get("eager") or next(iter(sample.values()))
    return f"{row['sample']}: t = {row['t_min']}: {(row['reason'] or '')[:120]}"


def _where_eager_repeats(samples: Sequence[Rows]) -> list[str]:
    """The table of all authors but max-autotune on those samples in which eager is right by itself."""
    some = [s for s in samples if _right(s.get("eager"))]
    rows = [row for sample in some for row in sample.values() if row["author"] != TUNED]
    title = f"## The same where eager is right by itself at t = {LEVEL}, without {TUNED}\n"
    return [] if len(some) == len(samples) or not some else [title, summary("Shared rounds", common(rows), {})]


def _of(samples: Sequence[Rows], category: str) -> list[Rows]:
    return [s for s in samples if next(iter(s.values()))["category"] == category]


def _eager_failed(sample: Rows) -> bool:
    row = sample.get("eager")
    return row is not None and row["status"] != "ok" and (row["reason"] or "").startswith(EAGER_FAILED)


def _right(row: Mapping | None) -> bool:
    return row is not None and row["status"] == "ok" and row["t_min"] is not None and row["t_min"] <= LEVEL


def _mean(values: Sequence[float]) -> str:
    return f"{geometric_mean(values):.3f} ({len(values)})" if values else "-"


def _line(*cells: object) -> str:
    return "| " + " | ".join(map(str, cells)) + " |"


def _of_static(samples: Sequence[Rows]) -> list[str]:
    """The same of `distill-static`, where it has rows."""
    return [f"\n## {STATIC}\n", *_distill(samples, STATIC)] if any(STATIC in sample for sample in samples) else []


def _distill(samples: Sequence[Rows], author: str) -> list[str]:
    """AS, rightness and what is left to eager."""
    lines = [
        _line("category", "samples", "left to eager", "right at t = -5", "AS e2e", "AS device", "passes: e2e",
              "passes: device", "passes below 0.97: e2e, device"),
        "|---" * 9 + "|",
    ]  # fmt: skip
    wrong, slow = [], []
    for category in CATEGORIES:
        rows = [s[author] for s in _of(samples, category) if author in s]
        if not rows:
            continue
        passes = [row for row in rows if _LEFT not in (row["reason"] or "")]
        speeds = {clock: [r[f"speedup_{clock}"] for r in passes if r[f"speedup_{clock}"]] for clock in CLOCKS}
        scores = [aggregate_score(rows, clock) for clock in CLOCKS]
        lines.append(
            _line(
                category,
                len(rows),
                f"{len(rows) - len(passes)} ({1 - len(passes) / len(rows):.0%})",
                sum(map(_right, rows)),
                *("-" if score is None else f"{score:.3f}" for score in scores),
                *(_mean(speeds[clock]) for clock in CLOCKS),
                ", ".join(str(sum(s < _SLOW for s in speeds[clock])) for clock in CLOCKS),
            )
        )
        wrong += [row for row in rows if not _right(row)]
        slow += [row for row in passes if any(0 < (row[f"speedup_{clock}"] or 0) < _SLOW for clock in CLOCKS)]
    return [
        *lines,
        "",
        *(
            f"- below {_SLOW}: {r['sample']}: " + ", ".join(f"{r[f'speedup_{c}'] or 0:.3f} {c}" for c in CLOCKS)
            for r in slow
        ),
        *(f"- not right: {r['sample']}: {r['status']}, t = {r['t_min']}: {r['reason'][:150]}" for r in wrong),
    ]


def _beside(samples: Sequence[Rows]) -> list[str]:
    """Ratios of device speedups. Over strict: of all samples in which strict has a time. Over the faster: of those
    in which strict or default has one."""
    lines = [
        _line("category", "samples", "strict right", "distill", "strict", "default", "over strict", "median",
              "over strict where it is right", "over the faster of both", "over the faster that is right"),
        "|---" * 11 + "|",
    ]  # fmt: skip
    for category in CATEGORIES:
        some = [s for s in _of(samples, category) if _device(s, AUTHOR)]
        if not some:
            continue
        timed = {name: [s for s in some if _device(s, name)] for name in (AUTHOR, STRICT, DEFAULT)}
        over = [_over(s, [STRICT]) for s in timed[STRICT]]
        of_right = [_over(s, [STRICT]) for s in timed[STRICT] if _right(s[STRICT])]
        pairs = [(s, [name for name in (STRICT, DEFAULT) if _device(s, name)]) for s in some]
        rights = [(s, [name for name in names if _right(s[name])]) for s, names in pairs]
        lines.append(
            _line(
                category,
                len(some),
                len(of_right),
                *(_mean([_device(s, name) for s in timed[name]]) for name in (AUTHOR, STRICT, DEFAULT)),
                _mean(over),
                f"{median(over):.3f}" if over else "-",
                _mean(of_right),
                _mean([_over(s, names) for s, names in pairs if names]),
                _mean([_over(s, names) for s, names in rights if names]),
            )
        )
    return lines


def _device(sample: Rows, name: str) -> float | None:
    """The speedup by the device's clock, None where it was not timed."""
    return sample[name]["speedup_device"] if name in sample else None


def _over(sample: Rows, names: Sequence[str]) -> float:
    """How many times as fast as the fastest of these `distill` is."""
    return _device(sample, AUTHOR) / max(_device(sample, name) for name in names)


def _shared_and_whole(by_sample: Mapping[str, Rows], full: Sequence[dict]) -> list[str]:
    """How far the speedups of both ways of measuring are apart, and whether their levels are the same."""
    lines = [_line("author", "clock", "variants", "shared / whole", "median difference", "largest"), "|---" * 6 + "|"]
    levels: Counter[str] = Counter()
    pairs = [(row, by_sample[row["sample"]].get(row["author"])) for row in full if row["sample"] in by_sample]
    pairs = [(whole, shared) for whole, shared in pairs if shared is not None]
    for whole, shared in pairs:
        levels["the same" if whole["t_min"] == shared["t_min"] else "other"] += 1
    for author in dict.fromkeys(whole["author"] for whole, _ in pairs):
        for clock in CLOCKS:
            column = f"speedup_{clock}"
            ratios = [b[column] / a[column] for a, b in pairs if a["author"] == author and a[column] and b[column]]
            if ratios:
                apart = [abs(math.log(ratio)) for ratio in ratios]
                cells = (f"{geometric_mean(ratios):.4f}", f"{median(apart):.2%}", f"{max(apart):.2%}")
                lines.append(_line(author, clock, len(ratios), *cells))
    return [*lines, "", f"t_min: {dict(levels)}"]


def _rows_of(file: Path) -> list[dict]:
    """The rows of a file that may be missing."""
    return read_rows(file, RESULTS) if file.exists() else []


def main(directory: Path, *others: Path) -> None:
    """Prints the tables of a directory's rows. With `others` they are of the samples in these files alone, and have
    their rows, too."""
    rows, full = (_rows_of(directory / f"{name}.parquet") for name in ("results", "full"))
    if others:
        added = [row for file in others for row in read_rows(file, RESULTS)]
        samples = {row["sample"] for row in added}
        rows = [row for row in rows if row["sample"] in samples] + added
    print(text_of(rows, full))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))

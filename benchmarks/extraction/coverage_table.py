"""How much of the catalogues is traced, and why the rest is not, from the traces in a data directory.

    python -m benchmarks.extraction.coverage_table --catalog timm --data DIR --out tests/benchmarks/coverage

Run it with the libraries that the traces were made with (`benchmarks.extraction.trace_corpus` makes them). Every entry
of a catalogue counts, also one that shares another's spec and one that has no spec. `--earlier` has the models.csv of
another run with the same libraries: what is not tried in DIR counts as it did there. Writes OUT/models.csv, a line an
entry, and OUT/README.md: a table by source (task heads apart), and below it each source's failures by category and
cause.
"""

import argparse
import csv
import platform
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from extraction.failures import CATEGORIES
from extraction.sources.catalog import Entry, read_catalog
from extraction.sources.spec import TRACE_VERSION, Spec, library_versions, specs_of
from extraction.tracing.trace_store import TraceStore

TRACED, MISSING = "traced", "not tried"
_EXAMPLES = 6


@dataclass(frozen=True)
class Line:
    """What came of an entry: `outcome` is "traced", "not tried" or a category of failure."""

    model: str
    source: str
    outcome: str
    graphs: int = 0
    graph_breaks: int = 0
    ops: int = 0
    symbols: str = ""
    seconds: float = 0.0
    message: str = ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--catalog", action="append", required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--earlier", type=Path, action="append", default=[])
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    entries = list(dict.fromkeys(entry for name in arguments.catalog for entry in read_catalog(name, None)))
    earlier = {line.model: line for path in arguments.earlier for line in read_lines(path)}
    lines = [
        earlier.get(line.model, line) if line.outcome == MISSING else line
        for line in outcomes(entries, TraceStore(arguments.data / "traces"))
    ]
    arguments.out.mkdir(parents=True, exist_ok=True)
    with (arguments.out / "models.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Line)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(line) for line in lines)
    (arguments.out / "README.md").write_text(page(lines))
    print(page(lines))


def outcomes(entries: Sequence[Entry], store: TraceStore) -> list[Line]:
    """What came of each entry, in their order. Raises PassNetError if a file of traces is corrupt."""
    specs = specs_of(entries)
    records = store.find({spec.trace_key for spec in specs if isinstance(spec, Spec)})
    lines = []
    for entry, spec in zip(entries, specs, strict=True):
        if not isinstance(spec, Spec):
            lines.append(Line(entry.text, entry.source, spec.category, message=str(spec)))
        elif spec.trace_key not in records:
            lines.append(Line(entry.text, entry.source, MISSING))
        else:
            row = records[spec.trace_key].row
            lines.append(
                Line(
                    entry.text,
                    entry.source,
                    TRACED if row["status"] == "traced" else row["error_category"],
                    row["graphs"],
                    len(row["graph_breaks"]),
                    row["ops"],
                    " ".join(sorted(row["symbols"])),
                    round(row["seconds"], 2),
                    row["message"] if row["status"] != "traced" else "",
                )
            )
    return lines


def read_lines(path: Path) -> list[Line]:
    """The lines of a models.csv."""
    kinds = {field.name: field.type for field in fields(Line)}
    with path.open(newline="") as file:
        return [Line(**{name: kinds[name](value) for name, value in row.items()}) for row in csv.DictReader(file)]


def page(lines: Sequence[Line]) -> str:
    """The tables, as Markdown."""
    by_source: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        heads = " heads" if line.source == "transformers" and "/" in line.model else ""
        by_source[line.source + heads].append(line)
    versions = sorted({each for line in lines for each in library_versions(line.source)})
    said = ", ".join(f"{name} {version}" for name, version in versions)
    parts = [
        f"# Coverage\n\nTrace version {TRACE_VERSION}; {said}; Python {platform.python_version()}. Written by "
        "`benchmarks/extraction/coverage_table.py`, which says how; each model is in `models.csv`.\n",
        "| source | models | traced | share | in one graph | a symbolic size | not tried |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for source, of in sorted(by_source.items()):
        traced = [line for line in of if line.outcome == TRACED]
        whole = sum(not line.graph_breaks for line in traced)
        symbolic, missing = sum(bool(line.symbols) for line in traced), sum(line.outcome == MISSING for line in of)
        share = 100 * len(traced) / max(1, len(of) - missing)
        parts.append(f"| {source} | {len(of)} | {len(traced)} | {share:.1f} % | {whole} | {symbolic} | {missing} |")
    for source, of in sorted(by_source.items()):
        parts += ["", *_failures(source, of)]
    return "\n".join(parts) + "\n"


def _failures(source: str, lines: Iterable[Line]) -> list[str]:
    causes: dict[tuple[str, str], list[str]] = defaultdict(list)
    for line in lines:
        if line.outcome in CATEGORIES:
            causes[line.outcome, cause(line.message)].append(line.model.partition(":")[2])
    if not causes:
        return [f"## {source}: no failures"]
    counts = Counter({category: 0 for category in CATEGORIES})
    for (category, _), models in causes.items():
        counts[category] += len(models)
    total = ", ".join(f"{category} {count}" for category, count in counts.most_common() if count)
    table = [f"## {source}: {total}", "", "| category | models | cause | which |", "|---|---:|---|---|"]
    for (category, why), models in sorted(causes.items(), key=lambda each: (-counts[each[0][0]], -len(each[1]), each)):
        more = ", …" if len(models) > _EXAMPLES else ""
        table.append(f"| {category} | {len(models)} | {why} | {', '.join(models[:_EXAMPLES])}{more} |")
    return table


def cause(message: str) -> str:
    """A failure's message without what differs from model to model: sizes, classes, addresses."""
    text = re.sub(r"0x[0-9a-f]+|\b\w*\d[\w.]*", "#", message)
    text = re.sub(r"'[^']*'", "'…'", text)
    text = re.sub(r"\b[A-Z][a-z]\w*(Model|Config|VQVAE|Processor|Detection)\b", "…", text)
    return " ".join(text.replace("|", "/").split())[:140]


if __name__ == "__main__":
    main()

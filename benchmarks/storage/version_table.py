"""What a version holds, counted in more ways than its card does.

    python -m benchmarks.storage.version_table --version DIR --out OUT

Rows by category and split, by direction, number of ops, dtypes, source and model family, by op, and each notion of
"unique" beside the counts of the published corpus; models that were not traced, by cause. A model family is the name of
a model up to its first digit, dash or underscore, such as `resnet` or `vit`. Writes OUT/version_table.json, with all
counts, and OUT/version_table.md, with the largest of each.
"""

import argparse
import json
import re
from collections import Counter
from pathlib import Path

from dedup.database import Engine, parquet
from storage.schema import CATEGORIES
from storage.versions.manifest import shard_path
from storage.versions.version import Version

PUBLISHED = {"sole_op": 5_939, "fusible": 22_870, "typical": 25_151}
"""Rows of the published corpus; its authors say that 18,000 of them are unique."""
_SHOWN = 40
_SIZES = ((1, 1), (2, 2), (3, 4), (5, 8), (9, 16), (17, 32), (33, 64), (65, 10**9))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    with Engine() as engine:
        found = counts(Version.open(arguments.version), engine)
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "version_table.json").write_text(json.dumps(found, indent=1) + "\n")
    (arguments.out / "version_table.md").write_text(text := markdown(found))
    print(text)


def counts(version: Version, engine: Engine) -> dict:
    """All that the tables show."""
    shards = [s for s in version.manifest.shards if s.config in CATEGORIES and s.rows]
    rows = parquet([shard_path(version.path, s) for s in shards])
    samples = Counter((r["category"], r["split"]) for r in version.table("samples").to_pylist())
    split = Counter()
    for shard in shards:
        split[shard.config, shard.split] += shard.rows
    models = version.table("models", columns=["source", "status", "error_category", "graphs", "ops"]).to_pylist()
    ends = Counter((m["source"], m["error_category"] or "traced") for m in models)
    return {
        "version": version.name,
        "unique": version.manifest.summary["unique"],
        "splits": [[c, s, split[c, s], samples[c, s]] for c in CATEGORIES for s in ("train", "eval")],
        "models": [[*key, count] for key, count in sorted(ends.items())],
        "ops_traced": sum(m["ops"] for m in models),
        "causes": version.manifest.summary["causes"],
        "dropped": version.manifest.summary["dropped"],
        "directions": tallied(engine, f"SELECT direction, category, count(*) FROM {rows} GROUP BY ALL"),
        "sizes": tallied(engine, f"SELECT len(op_sequence), category, count(*) FROM {rows} GROUP BY ALL"),
        "dtypes": tallied(engine, f"""
            SELECT coalesce(list_aggregate(list_sort(list_distinct(list_transform(inputs, lambda i: i.dtype))),
                'string_agg', ' + '), 'no input'), category, count(*) FROM {rows} GROUP BY ALL"""),
        "ops": tallied(engine, f"""
            SELECT op, category, count(*) FROM (SELECT category, unnest(list_distinct(op_sequence)) op FROM {rows})
            GROUP BY ALL"""),
        "families": families(engine, rows),
    }  # fmt: skip


def tallied(engine: Engine, sql: str) -> list[list]:
    """Rows of (what, category, count), the most frequent first."""
    return [list(row) for row in engine.run(f"{sql} ORDER BY 3 DESC, 1, 2")]


def families(engine: Engine, rows: str) -> list[list]:
    """Rows of (model family, category, subgraphs that are found in it)."""
    found: Counter[tuple[str, str]] = Counter()
    sql = (
        f"SELECT list_distinct(list_transform(sources, lambda s: s.model)), category, count(*) FROM {rows} GROUP BY ALL"
    )
    for models, category, count in engine.run(sql):
        for family in {family_of(model) for model in models}:
            found[family, category] += count
    return [[*key, count] for key, count in sorted(found.items(), key=lambda item: (-item[1], item[0]))]


def family_of(model: str) -> str:
    """`timm:resnet18` and `timm:resnet50d#2` are of `timm:resnet`."""
    source, _, name = model.partition(":")
    return f"{source}:{re.match(r'[A-Za-z]*', name)[0]}"


def markdown(found: dict) -> str:
    """The tables."""
    lines = ["| category | split | rows | samples |", "|---|---|---|---|"]
    lines += [f"| {c} | {s} | {rows:,} | {samples:,} |" for c, s, rows, samples in found["splits"]]
    lines += [
        "",
        "| category | text | graph | family | with shapes | published corpus, rows |",
        "|---|---|---|---|---|---|",
    ]
    for name, each in found["unique"].items():
        published = PUBLISHED.get(name, sum(PUBLISHED.values()))
        cells = " | ".join(f"{each[n]:,}" for n in ("text", "graph", "family", "with_shapes"))
        lines.append(f"| {name} | {cells} | {published:,} |")
    lines += [
        "",
        f"{found['ops_traced']:,} ops in all traced graphs.",
        "",
        "| source | end | models |",
        "|---|---|---|",
    ]
    lines += [f"| {source} | {end} | {count:,} |" for source, end, count in found["models"]]
    lines += ["", *table("direction", found["directions"]), *table("ops", sized(found["sizes"]))]
    for title, name in (("dtypes of inputs", "dtypes"), ("model family", "families"), ("op", "ops")):
        known = len({row[0] for row in found[name]})
        lines += [f"{known} different; the most frequent:", "", *table(title, found[name])]
    lines += ["| left out | subgraphs or variants |", "|---|---|"]
    lines += [f"| {cause} | {count:,} |" for cause, count in list(found["dropped"].items())[:_SHOWN]]
    return "\n".join(lines) + "\n"


def sized(sizes: list[list]) -> list[list]:
    """Counts by number of ops as counts by range."""
    totals: Counter[tuple[str, str]] = Counter()
    for low, high in _SIZES:
        for ops, category, count in sizes:
            if low <= ops <= high:
                totals[str(low) if low == high else f"{low} to {high}", category] += count
    return [[*key, count] for key, count in totals.items()]


def table(title: str, rows: list[list]) -> list[str]:
    """Rows of (what, category, count) as a table with a column a category, and an empty line."""
    cells = {(what, category): count for what, category, count in rows}
    names = list(dict.fromkeys(what for what, _, _ in rows))[:_SHOWN]
    lines = [f"| {title} | {' | '.join(CATEGORIES)} |", "|---|" + "---|" * len(CATEGORIES)]
    return [*lines, *(f"| {n} | {' | '.join(f'{cells.get((n, c), 0):,}' for c in CATEGORIES)} |" for n in names), ""]


if __name__ == "__main__":
    main()

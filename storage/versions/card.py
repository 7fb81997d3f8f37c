"""The dataset card, `README.md`: which files make which config for `datasets`, and what a reader wants to know."""

import json
from collections.abc import Iterable
from itertools import groupby
from typing import Any

import pyarrow as pa

from storage.schema import CONFIGS
from storage.versions.manifest import Manifest

LICENCE = "apache-2.0"
UNSPLIT = "all"
SCORE_LEVELS = (-5, -3, -1, 1)
MAX_SCORE_ROWS = 50

ABOUT = {
    "models": "catalogue entries, traced or with the reason why not",
    "sole_op": "subgraphs of one op",
    "fusible": "subgraphs that a compiler runs with no more kernels than their first op needs",
    "typical": "op sequences that repeat across the corpus",
    "samples": "tasks: all variants of one family of subgraphs",
    "results": "one variant under one pass: correctness, times, findings",
    "scores": "one run at one tolerance level",
    "trajectories": "what an author did in one attempt",
}


def render(manifest: Manifest, scores: pa.Table) -> str:
    """The card of a version; `scores` is its `scores` config, empty where there is none."""
    parts = [
        _front_matter(manifest),
        f"# PassNet {manifest.name}",
        "Tensor-computation subgraphs from real models, and how passes written for them score. "
        "Graphs are data: loading this dataset executes nothing from it.",
        _loading(manifest),
        "## Contents",
        _contents(manifest),
        *_scores(scores),
        "## How it was made",
        _provenance(manifest),
        "## Columns",
        *_columns(manifest),
        "## Licence",
        f"The dataset is published under {LICENCE}. Subgraphs are derived from model definitions of other projects "
        "(column `sources`), whose own licences apply to these definitions. No weights are included.",
    ]
    return "\n\n".join(parts) + "\n"


def _splits(manifest: Manifest) -> list[tuple[str, str, int, int, int]]:
    """config, split, rows, shards, bytes of every split, in the manifest's order."""
    found = []
    for (config, split), group in groupby(manifest.shards, lambda shard: (shard.config, shard.split)):
        shards = list(group)
        found.append((config, split, sum(s.rows for s in shards), len(shards), sum(s.bytes for s in shards)))
    return found


def _loaded_as(split: str) -> str:
    """A split's name for `datasets`, which reserves "all" for the union of splits and calls unsplit data "train"."""
    return "train" if split == UNSPLIT else split


def _front_matter(manifest: Manifest) -> str:
    lines = ["---", "pretty_name: PassNet", f"license: {LICENCE}", "tags:", "- compilers", "- code", "- pytorch"]
    # `datasets` fails on a whole config when one of its splits has no rows, so empty splits are not offered to it
    filled = [(config, split) for config, split, rows, *_ in _splits(manifest) if rows]
    if filled:
        lines.append("configs:")
    for config, splits in groupby(filled, lambda pair: pair[0]):
        lines += [f"- config_name: {config}", "  data_files:"]
        for _, split in splits:
            lines += [f"  - split: {_loaded_as(split)}", f"    path: data/{config}/{split}-*.parquet"]
    return "\n".join([*lines, "---"])


def _loading(manifest: Manifest) -> str:
    filled = {config: _loaded_as(split) for config, split, rows, *_ in _splits(manifest) if rows}
    config = next((name for name in ("fusible", "samples") if name in filled), next(iter(filled), None))
    if config is None:
        return "This version has no rows."
    return (
        "```python\nfrom datasets import load_dataset\n\n"
        f'rows = load_dataset("<this repository or directory>", "{config}", split="{filled[config]}")\n```\n\n'
        f'On the Hub every version is a tag: `revision="{manifest.name}"`.'
    )


def _contents(manifest: Manifest) -> str:
    rows = [
        (
            f"`{config}`",
            _loaded_as(split),
            rows or "0 (not offered to `datasets`)",
            shards,
            _size(size),
            ABOUT.get(config, ""),
        )
        for config, split, rows, shards, size in _splits(manifest)
    ]
    return _table(("config", "split", "rows", "shards", "size", "a row is"), rows)


def _scores(scores: pa.Table) -> list[str]:
    if not len(scores):
        return []
    runs: dict[tuple[str, str, str], dict[int, dict[str, Any]]] = {}
    for row in scores.select(["run", "author", "clock", "t", "es_t", "n", "aggregate"]).to_pylist():
        runs.setdefault((row["run"], row["author"], row["clock"]), {})[row["t"]] = row
    lines = []
    for key in sorted(runs, key=lambda key: tuple(map(str, key)))[-MAX_SCORE_ROWS:]:
        levels = runs[key]
        last = levels[max(levels)]
        at = [_number(levels[t]["es_t"]) if t in levels else "" for t in SCORE_LEVELS]
        lines.append((*key, last["n"], _number(last["aggregate"]), *at))
    left_out = len(runs) - len(lines)
    header = ("run", "author", "clock", "N", "AS", *(f"ES at t={t}" for t in SCORE_LEVELS))
    note = f"\n\n{left_out} more in config `scores`." if left_out else ""
    return ["## Scores", "Error-aware speedup over eager; 1.00 is as fast as eager.", _table(header, lines) + note]


def _provenance(manifest: Manifest) -> str:
    commit = manifest.git_commit or "not known"
    if manifest.git_dirty:
        commit += " with local changes"
    facts = [
        ("kind", manifest.kind),
        ("made from", manifest.parent or "nothing earlier"),
        ("created", manifest.created),
        ("code", commit),
        ("flow run", manifest.flow_run or "none"),
        ("libraries", ", ".join(f"{name} {version}" for name, version in manifest.libraries.items())),
    ]
    listed = "\n".join(f"- {name}: {_cell(value)}" for name, value in facts)
    return (
        f"{listed}\n\nParameters:\n\n{_json(manifest.parameters)}\n\nSummary:\n\n{_json(manifest.summary)}\n\n"
        "`manifest.json` has the row count, size and SHA-256 of every file."
    )


def _columns(manifest: Manifest) -> list[str]:
    present = [config for config in dict.fromkeys(shard.config for shard in manifest.shards) if config in CONFIGS]
    parts = []
    for schema, configs in groupby(present, lambda config: CONFIGS[config]):
        names = ", ".join(f"`{config}`" for config in configs)
        parts.append(f"{names}: " + ", ".join(f"`{field.name}` ({_type(field.type)})" for field in schema))
    return parts


def _type(type_: pa.DataType) -> str:
    if pa.types.is_list(type_):
        return f"list of {_type(type_.value_type)}"
    if pa.types.is_struct(type_):
        return "{" + ", ".join(f"{field.name}: {_type(field.type)}" for field in type_) + "}"
    if pa.types.is_map(type_):
        return f"list of {{key: {type_.key_type}, value: {type_.item_type}}}"
    return str(type_)


def _table(header: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    header = tuple(header)
    lines = [header, ("---",) * len(header), *rows]
    return "\n".join("| " + " | ".join(_cell(value) for value in line) + " |" for line in lines)


def _cell(value: object) -> str:
    return " ".join(str(value).split()).replace("|", "\\|").replace("<", "&lt;")


def _json(value: dict[str, Any]) -> str:
    return f"```json\n{json.dumps(value, indent=1, ensure_ascii=False)}\n```"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _size(size: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"

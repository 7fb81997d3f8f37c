"""The dataset card, `README.md`: which files make which config for `datasets`, and what a reader wants to know."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

import pyarrow as pa

from storage.schema import CATEGORIES, CONFIGS, TABLES
from storage.versions.manifest import Manifest

LICENCE = "apache-2.0"
UNSPLIT = "all"
SCORE_LEVELS = (-5, -3, -1, 1)
MAX_SCORE_ROWS = 50
NO_GPU = "no GPU"

ABOUT = {
    "models": "catalogue entries, traced or with the reason why not",
    "sole_op": "subgraphs of one op",
    "fusible": "subgraphs that a compiler runs with no more kernels than their first op needs",
    "typical": "op sequences that repeat across the corpus",
    "samples": "tasks: all variants of one family of subgraphs",
    "results": "one variant under one pass: correctness, times, findings",
    "scores": "one run at one tolerance level",
    "trajectories": "what an author did in one attempt",
    "model_results": "a whole model in all regimes",
}


SIZES = (
    (1_000, "n<1K"),
    (10_000, "1K<n<10K"),
    (100_000, "10K<n<100K"),
    (1_000_000, "100K<n<1M"),
    (10_000_000, "1M<n<10M"),
)
"""Bounds of the Hub's `size_categories`, in rows."""


@dataclass(frozen=True)
class CardExample:
    """A row of a config of subgraphs, as a dictionary, and the id of the sample that has it, if one has."""

    row: dict[str, Any]
    sample: str | None


def render(manifest: Manifest, scores: pa.Table, example: CardExample | None = None) -> str:
    """The card of a version; `scores` is its `scores` config, empty where there is none; `example` a row to show."""
    parts = [
        _front_matter(manifest),
        f"# PassNet {manifest.name}",
        "Tensor-computation subgraphs from real models, and how passes written for them score. "
        "Graphs are data: loading this dataset executes nothing from it.",
        _loading(manifest),
        "## Contents",
        _contents(manifest),
        *_example(example),
        *_running(manifest, example),
        *_unique(manifest),
        *_untraced(manifest),
        *_scores(scores),
        "## How it was made",
        *_provenance(manifest),
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
    size = sum(manifest.rows(category) for category in CATEGORIES)
    lines += ["size_categories:", f"- {next((name for most, name in SIZES if size < most), 'n>10M')}"]
    main = main_config(manifest)
    if filled:
        lines.append("configs:")
    for config, splits in groupby(filled, lambda pair: pair[0]):
        lines += [f"- config_name: {config}", *(["  default: true"] if config == main else [])]
        # `datasets` keeps what it has loaded by a directory's name and this text: without the digest another directory
        # of the same name would give the rows of the first.
        lines += [f"  description: PassNet {manifest.name}, contents {manifest.digest[:16]}", "  data_files:"]
        for _, split in splits:
            lines += [f"  - split: {_loaded_as(split)}", f"    path: data/{config}/{split}-*.parquet"]
    return "\n".join([*lines, "---"])


def main_config(manifest: Manifest) -> str | None:
    """The config that `load_dataset` takes where none is named: `fusible`, or the first that has rows."""
    filled = [config for config in CONFIGS if manifest.rows(config)]
    return next((name for name in ("fusible", *CATEGORIES, "samples") if name in filled), next(iter(filled), None))


def _loading(manifest: Manifest) -> str:
    filled = {config: _loaded_as(split) for config, split, rows, *_ in _splits(manifest) if rows}
    config = main_config(manifest)
    if config is None:
        return "This version has no rows."
    return (
        "```python\nfrom datasets import load_dataset\n\n"
        f'rows = load_dataset("<this repository or directory>", "{config}", split="{filled[config]}")\n```\n\n'
        f"Without a config's name it is `{config}`. "
        f'On the Hub every version is a tag: `revision="{manifest.name}"`.'
    )


def _example(example: CardExample | None) -> list[str]:
    """One row, as people read it."""
    if example is None or not example.row["code"] or not example.row["variant_hash"]:
        return []
    inputs = [
        (f"`{each['name']}`", each["role"], each["dtype"], "×".join(map(str, each["shape"] or ())) or "scalar")
        for each in example.row["inputs"] or ()
        if each
    ]
    sources = ", ".join(f"`{source['model']}`" for source in (example.row["sources"] or ())[:3] if source)
    return [
        "## A row",
        f"Variant `{example.row['variant_hash'][:12]}`" + (f", found in {sources}." if sources else "."),
        f"```python\n{example.row['code'].strip()}\n```",
        _table(("input", "role", "dtype", "shape"), inputs),
    ]


def _running(manifest: Manifest, example: CardExample | None) -> list[str]:
    """How to benchmark a sample of this version, which is a directory or a tag of a repository."""
    if example is None or example.sample is None:
        return []
    return [
        "## How to run it",
        f"""With PassNet installed (`pip install -e .` in its repository), PassBench times a sample under a compiler, or
under a pass of yours:

```python
import passnet
from huggingface_hub import snapshot_download  # or open this directory itself

repository = {{"repo_id": "<this repository>", "repo_type": "dataset", "revision": "{manifest.name}"}}
version = passnet.open_version(snapshot_download(**repository, local_dir="passnet-data"))
for result in passnet.bench("{example.sample}", version=version, compiler="inductor"):
    print(result.variant_hash[:12], result.status, result.t_min, result.speedup_e2e, result.times_meaningful)
```

`correct at t` means everywhere: it ran, and agrees with eager within the tolerances of level t; t = -5 is that of
PyTorch's own tests. Times are meaningful where a GPU ran.""",
    ]


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


def _of_build(manifest: Manifest, name: str) -> Any:
    """A part of the summary of the build that made the dataset; None where it has no such part."""
    built = manifest.built["summary"] if manifest.built else manifest.summary
    return built.get(name)


def _unique(manifest: Manifest) -> list[str]:
    """How many subgraphs there are by each notion of "different"."""
    counts = _of_build(manifest, "unique")
    if not counts:
        return []
    said = """How many subgraphs are different depends on what counts. *text*: the source in `code`, in which sizes may
be constants. *graph*: ops, wiring and all constants. *family*: ops and wiring alone; a sample is one family.
*with shapes*: a graph with the dtypes, shapes and strides of its inputs; a row is one."""
    rows = [(f"`{name}`" if name in CATEGORIES else name, *each.values()) for name, each in counts.items()]
    return ["## What is unique", said, _table(("category", "text", "graph", "family", "with shapes"), rows)]


def _untraced(manifest: Manifest) -> list[str]:
    """What could not be traced, by cause."""
    causes = _of_build(manifest, "causes")
    if not causes:
        return []
    rows = [(c["models"], c["category"], c["message"], ", ".join(c["examples"]), c["mend"]) for c in causes]
    table = _table(("models", "category", "message of the first", "such as", "mended by"), rows)
    return ["## What could not be traced", "Config `models` has every one.", table]


def _scores(scores: pa.Table) -> list[str]:
    if not len(scores):
        return []
    runs: dict[tuple[str, str, str], dict[int, dict[str, Any]]] = {}
    columns = ["run", "author", "clock", "t", "es_t", "n", "aggregate", "times_meaningful"]
    for row in scores.select(columns).to_pylist():
        runs.setdefault((row["run"], row["author"], row["clock"]), {})[row["t"]] = row
    lines = []
    for key in sorted(runs, key=lambda key: tuple(map(str, key)))[-MAX_SCORE_ROWS:]:
        levels = runs[key]
        last = levels[max(levels)]
        if last["times_meaningful"] is False:
            lines.append((*key, last["n"], *[NO_GPU] * (1 + len(SCORE_LEVELS))))
            continue
        at = [_number(levels[t]["es_t"]) if t in levels else "" for t in SCORE_LEVELS]
        lines.append((*key, last["n"], _number(last["aggregate"]), *at))
    left_out = len(runs) - len(lines)
    header = ("run", "author", "clock", "N", "AS", *(f"ES at t={t}" for t in SCORE_LEVELS))
    note = f"\n\n{left_out} more in config `scores`." if left_out else ""
    said = "Error-aware speedup over eager; 1.00 is as fast as eager."
    if any(NO_GPU in line for line in lines):
        said += f" Where it says {NO_GPU}, Triton's interpreter was timed: those runs have statuses and no scores."
    return ["## Scores", said, _table(header, lines) + note]


def _provenance(manifest: Manifest) -> list[str]:
    parts = [_made(asdict(manifest))]
    if manifest.built:
        parts += [f"### How the dataset was built, as {manifest.built['name']}", _made(manifest.built)]
    return [*parts, "`manifest.json` has the row count, size and SHA-256 of every file."]


def _made(about: Mapping[str, Any]) -> str:
    """How a version was made, of the fields of its manifest."""
    commit = about["git_commit"] or "not known"
    if about["git_dirty"]:
        commit += " with local changes"
    facts = [
        ("kind", about["kind"]),
        *([("made from", about["parent"] or "nothing earlier")] if "parent" in about else []),
        ("created", about["created"]),
        ("code", commit),
        ("flow run", about["flow_run"] or "none"),
        ("libraries", ", ".join(f"{name} {version}" for name, version in about["libraries"].items())),
    ]
    listed = "\n".join(f"- {name}: {_cell(value)}" for name, value in facts)
    return f"{listed}\n\nParameters:\n\n{_json(about['parameters'])}\n\nSummary:\n\n{_json(about['summary'])}"


def _columns(manifest: Manifest) -> list[str]:
    present = [config for config in dict.fromkeys(shard.config for shard in manifest.shards) if config in CONFIGS]
    parts = []
    for schema, configs in groupby(present, lambda config: CONFIGS[config]):
        names = ", ".join(f"`{config}`" for config in configs)
        (columns,) = [each for each in TABLES.values() if [name for name, *_ in each] == schema.names]
        rows = [(f"`{name}`", _type(type_), meaning) for name, type_, meaning in columns]
        parts += [names, _table(("column", "type", "meaning"), rows)]
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

"""docs/columns.md from the schemas: `python -m storage.columns` writes it; a test fails where it is out of date."""

from pathlib import Path

import pyarrow as pa

from storage.schema import CATEGORIES, STRUCTS, TABLES, Column

PAGE = Path(__file__).resolve().parents[1] / "docs" / "columns.md"

INTRODUCTION = f"""# The columns of every table

`storage/schema.py` is the source of this page; `python -m storage.columns` writes it. Each table is a config of a
version: `load_dataset(DIRECTORY, "samples", split="eval")`. The table `subgraphs` is three configs, one a category:
{", ".join(f"`{c}`" for c in CATEGORIES)}. `models` and the tables of results have one split, which `load_dataset` calls
`train`. Times are in microseconds where a name ends in `_us`, else in seconds.
"""

ROWS = {
    "models": "A row is a catalogue entry: traced, or with the reason why not.",
    "subgraphs": "A row is a variant: a subgraph with concrete inputs.",
    "samples": "A row is a task: all variants of one family in one category.",
    "results": "A row is one variant under one pass or baseline.",
    "scores": "A row is one run at one tolerance level by one clock. docs/scores.md has the formulas.",
    "trajectories": "A row is one attempt of a language model at one sample.",
    "model_results": "A row is one whole model at one batch size and dtype, in all regimes.",
}


def markdown() -> str:
    """The page."""
    structs = {_type(_arrow(columns)): f"[{name}](#{name})" for name, columns in STRUCTS.items()}
    parts = [INTRODUCTION]
    for table, columns in TABLES.items():
        parts.append(f"## {table}\n\n{ROWS[table]}\n\n{_table(columns, structs)}")
    parts.append("## Structs\n\nColumns that hold a list of records hold these.\n")
    parts += [f"### {name}\n\n{_table(columns, structs)}" for name, columns in STRUCTS.items()]
    return "\n".join(parts)


def _arrow(columns: list[Column]) -> pa.DataType:
    return pa.struct([(name, type_) for name, type_, _ in columns])


def _table(columns: list[Column], structs: dict[str, str]) -> str:
    lines = [f"| `{name}` | {_named(type_, structs)} | {meaning} |" for name, type_, meaning in columns]
    return "\n".join(["| column | type | meaning |", "|---|---|---|", *lines, ""])


def _named(type_: pa.DataType, structs: dict[str, str]) -> str:
    """A type in words; a struct as a link to its table."""
    text = _type(type_)
    for struct, link in structs.items():
        text = text.replace(struct, link)
    return text


def _type(type_: pa.DataType) -> str:
    if pa.types.is_list(type_):
        return f"list of {_type(type_.value_type)}"
    if pa.types.is_map(type_):
        return f"list of {{key: {type_.key_type}, value: {type_.item_type}}}"
    return str(type_)


if __name__ == "__main__":
    PAGE.write_text(markdown(), encoding="utf-8")

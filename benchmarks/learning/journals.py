"""Journals of demonstrations: a directory of files with a line of JSON for each graph that is done."""

import json
import lzma
from pathlib import Path
from typing import Any

from agent.learning.demonstrations import split_of

Line = dict[str, Any]
"""A graph in a journal: `sample`, the `cause` for which it is left out, or the row."""


def as_rows(lines: list[Line]) -> list[Line]:
    """Passes that were written and not checked, as rows to learn from."""
    return [
        {name: line[name] for name in ("sample", "kind", "graph_hash", "family_hash", "task", "answer")}
        | {"split": split_of(line["family_hash"]), "checked": ""}
        | {"op_sequence": line["variants_shown"][0]["op_sequence"]}
        for line in lines
        if not line["cause"]
    ]


def journal(directory: Path) -> list[Line]:
    """All whole lines that are in a journal so far; its files may be compressed by xz."""
    texts = [path.read_text("utf-8") for path in sorted(directory.glob("*.jsonl"))]
    texts += [lzma.decompress(path.read_bytes()).decode("utf-8") for path in sorted(directory.glob("*.jsonl.xz"))]
    return [json.loads(line) for text in texts for line in text.split("\n")[:-1]]

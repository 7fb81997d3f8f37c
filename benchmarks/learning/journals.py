"""Journals of demonstrations: a directory of files with a line of JSON for each graph that is done."""

import json
import lzma
from pathlib import Path
from typing import Any

Line = dict[str, Any]
"""A graph in a journal: `sample`, the `cause` for which it is left out, or the row."""


def journal(directory: Path) -> list[Line]:
    """All whole lines that are in a journal so far; its files may be compressed by xz."""
    texts = [path.read_text("utf-8") for path in sorted(directory.glob("*.jsonl"))]
    texts += [lzma.decompress(path.read_bytes()).decode("utf-8") for path in sorted(directory.glob("*.jsonl.xz"))]
    return [json.loads(line) for text in texts for line in text.split("\n")[:-1]]

"""A library with one pass that needs no Triton: `relu(x + y)` by a clamp."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from dedup.hashes import identify
from passbench.library.pass_library import PassLibrary
from passbench.result import libraries
from storage.records import Variant
from tests.passbench.samples import spec, variant

SOURCE = """
import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


@torch.fx.wrap
def add_relu(x, y):
    return torch.clamp_min(torch.add(x, y), 0)


def replacement_func():
    return add_relu
"""
FILES = {"fuse.py": SOURCE, "sorted_output_pass_rule_names.json": json.dumps(["fuse"])}


def problem(*shape: int) -> Variant:
    """`relu(x + y)` on two tensors of this shape."""
    return identify(variant(lambda x, y: (torch.relu(x + y),), spec("x", *shape), spec("y", *shape)))


def passport(of: Variant, files: Mapping[str, str] = FILES, **changes: Any) -> dict[str, Any]:
    """A row of results for it, as a version has it."""
    row = {
        "sample": "fusible-test",
        "category": "fusible",
        "variant_hash": of.variant_hash,
        "compiler": "pass",
        "status": "ok",
        "t_min": -10,
        "pass_files": [{"path": name, "content": text} for name, text in files.items()],
        "device": "cpu",
        "libraries": list(libraries().items()),
        "speedup_e2e": 2.0,
        "speedup_device": None,
        "times_meaningful": False,
    }
    return row | changes


def library(directory: Path, *shape: int, **changes: Any) -> PassLibrary:
    """A library with the pass, measured on this shape."""
    made, of = PassLibrary(directory), problem(*shape)
    assert made.add([passport(of, **changes)], {of.variant_hash: of})
    return made

"""Whether a written pass matches what it was written for, and nothing else: PassBench's matcher, without running it."""

import importlib.util
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from passbench.contract import NAMES_FILE, PassRule
from passbench.rewrite import apply_pass
from storage.graph import Graph
from storage.graph_fx import to_fx


def mismatches(directory: Path, expected: Sequence[tuple[Graph, Counter[str]]]) -> set[str]:
    """Modules of a pass that match more or less often in some graph than they should.

    `expected` gives for each graph how often each module should match. Imports the pass's modules.
    """
    rules = [_rule(directory, name) for name in json.loads((directory / NAMES_FILE).read_text("utf-8"))]
    wrong: set[str] = set()
    for graph, counts in expected:
        matches = apply_pass(to_fx(graph, "cpu"), rules).matches
        wrong |= {name for name, count in matches.items() if count != counts[name]}
    return wrong


def _rule(directory: Path, name: str) -> PassRule:
    module = _imported(directory / f"{name}.py")
    code = module.pattern.__code__
    parameters = code.co_varnames[: code.co_argcount]
    return PassRule(name, module.pattern, module.replacement_args, module.replacement_func(), parameters)


def _imported(path: Path) -> ModuleType:
    """The module under no name of its own: passes of different samples share file names."""
    spec = importlib.util.spec_from_file_location("distilled_pass", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

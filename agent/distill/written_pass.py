"""What is asked of a written pass, without running it: whether it matches what it was written for and nothing else, by
PassBench's matcher, whether it is short enough, and whether the static policy allows it. One that it refuses scores as
a failure, eager's calls do not."""

import json
import shutil
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from torch import fx

from agent.author import Submission
from passbench.contract import NAMES_FILE, PassRule, loaded_rules
from passbench.matching.rewrite import apply_pass
from passbench.policy.check import check_dir
from storage.graph.as_fx import to_fx
from storage.graph.as_json import to_json
from storage.graph.record import Graph


class Site(NamedTuple):
    """A place in a graph where `module` should match. `inputs` are the numbers of the values that it should get."""

    module: str
    inputs: tuple[int, ...]


_MOST_KEPT = 1_000
"""Answers that are kept."""
_KNOWN: dict[Hashable, frozenset[str]] = {}


def mismatches(directory: Path, expected: Sequence[tuple[Graph, Sequence[Site]]]) -> set[str]:
    """Modules of a pass that match elsewhere than at their sites, miss a site, or get other values at one.

    A pattern with two equal halves, for example, can get their values exchanged. `expected` has each graph with its
    sites.

    What was found for the same patterns is kept: in a search most passes differ in their kernels alone, and their
    modules are not imported, which would take most of the time.
    """
    names = tuple(json.loads((directory / NAMES_FILE).read_text("utf-8")))
    patterns = tuple((name, _rule_of((directory / f"{name}.py").read_text("utf-8"))) for name in names)
    asked = [(patterns, to_json(graph), tuple(sites)) for graph, sites in expected]
    found = [_KNOWN.get(one) for one in asked]
    if None in found:
        with loaded_rules(directory, names) as rules:
            found = [_wrong_in(graph, list(sites), rules) for graph, sites in expected]
        if len(_KNOWN) + len(asked) > _MOST_KEPT:
            _KNOWN.clear()
        _KNOWN.update(zip(asked, found, strict=True))
    return set().union(*found)


def _rule_of(text: str) -> str | tuple[str, ...]:
    """What a module's text says of where it matches: `pattern` and `replacement_args`, as far as the next two empty
    lines. All of the text where these are not found."""
    found = tuple(part for part in text.split("\n\n\n") if part.startswith(("def pattern(", "def replacement_args(")))
    return found if len(found) == 2 else text


def _wrong_in(graph: Graph, left: list[Site], rules: list[PassRule]) -> frozenset[str]:
    """Modules that are wrong in one graph, which should match at these sites."""
    names = {rule.replacement: rule.name for rule in rules}
    wrong: set[str] = set()
    rewritten = to_fx(graph, "cpu")
    numbers = {node: number for number, node in enumerate(rewritten.nodes)}
    for call in apply_pass(rewritten, rules).inserted:
        got = tuple(numbers.get(value) if isinstance(value, fx.Node) else None for value in call.args)
        site = next((site for site in left if site.module == names[call.target] and _is(site.inputs, got)), None)
        if site is None:
            wrong.add(names[call.target])
        else:
            left.remove(site)
    return frozenset(wrong | {site.module for site in left})


def _is(wanted: tuple[int, ...], got: tuple[int | None, ...]) -> bool:
    """Whether the values are those wanted. None stands for a value that another replacement has made: it may be any."""
    return len(wanted) == len(got) and all(b is None or a == b for a, b in zip(wanted, got, strict=True))


def within(
    sizes: Mapping[str, int], gains: Mapping[str, float], most: int, suffice: Callable[[list[str]], bool]
) -> list[str]:
    """Of patterns with these `sizes`, in characters, those that save most for their size, `most` characters in all.
    What is left has to `suffice`; empty if it cannot."""
    kept, total = list(sizes), sum(sizes.values())
    for pattern in sorted(sizes, key=lambda p: gains[p] / sizes[p]):
        rest = [p for p in kept if p != pattern]
        if total > most and suffice(rest):
            kept, total = rest, total - sizes[pattern]
    return kept if total <= most else []


def allowed(submission: Submission, directory: Path) -> Submission:
    """The submission, or one of eager's calls where the policy refuses the pass in `directory`, which is removed
    then. The reason is the policy's first finding."""
    if submission.compiler != "pass" or not (findings := check_dir(directory)):
        return submission
    shutil.rmtree(directory)
    return Submission("eager", reason=f"the policy refuses the pass that was written: {findings[0]}")

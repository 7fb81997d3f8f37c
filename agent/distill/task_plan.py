"""A sample as the offline author sees it: its graphs, what could be replaced in them, and passes of such a choice."""

import json
import shutil
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from agent.author import Submission
from agent.distill.candidates import Candidate, Options, find_candidates, promising
from agent.distill.check_matches import Site, mismatches
from agent.distill.kernels.schedule import KernelBody
from agent.distill.lowered_regions import Sketches
from agent.distill.pass_source import Style, module_source, short_names
from agent.distill.rounding import Rounding
from passbench.contract import NAMES_FILE
from storage.graph.as_json import to_json
from storage.graph.record import Graph
from storage.records import Sample, Variant

FloatDtypes = frozenset[str]
"""The floating dtypes in which a sample has variants of one graph. A pattern is matched against the graph, so it cannot
tell these variants apart. Variants in other dtypes may have another graph, with another dtype in a conversion, say."""


@dataclass(frozen=True)
class GraphCandidates:
    """One graph of a sample: how many variants have it, and which of its regions could be replaced."""

    graph: Graph
    variants: int
    candidates: tuple[Candidate, ...]

    def gain(self, patterns: Collection[str] | None = None) -> float:
        """Microseconds that a call of one variant is expected to save with these patterns, or with all."""
        return sum(c.gain for c in self.candidates if patterns is None or c.pattern in patterns)

    def sites(self, names: Mapping[str, str]) -> list[Site]:
        """Where the modules, given as pattern → name, should match."""
        return [Site(names[c.pattern], c.region.inputs) for c in self.candidates if c.pattern in names]


@dataclass(frozen=True)
class Task:
    """All graphs of a sample with their candidates. `causes` say why there are not more."""

    family: str
    graphs: tuple[GraphCandidates, ...]
    causes: tuple[str, ...]

    @classmethod
    def of(
        cls,
        sample: Sample,
        options: Options,
        sketches: Sketches,
        rounding: Mapping[FloatDtypes, Rounding] | None = None,
    ) -> "Task":
        """Looks for candidates in every graph of the sample, or in none if no graph is promising.

        `rounding` says, by the dtypes of a graph's variants, what they leave to eager to get eager's bits. A graph
        that it does not name gets `options.rounding`.
        """
        groups = list(_by_graph(sample.variants).values())
        if not any(promising(variants, options) for variants in groups):
            return cls(sample.family_hash, (), ("nothing that one kernel could do faster",))
        graphs, causes = [], []
        # The graphs of a family differ in their constants.
        excluded: dict[tuple[Rounding, tuple[str, ...]], frozenset[int]] = {}
        for variants in groups:
            own = replace(options, rounding=(rounding or {}).get(_float_dtypes(variants), options.rounding))
            ops = own.rounding, tuple(variants[0].graph.op_sequence)
            found = find_candidates(variants, own, sketches, excluded.get(ops))
            excluded[ops] = found.excluded
            graphs.append(GraphCandidates(variants[0].graph, len(variants), found.candidates))
            causes += found.causes
        return cls(sample.family_hash, tuple(graphs), tuple(dict.fromkeys(causes)))

    def gains(self) -> dict[str, float]:
        """Every pattern with the microseconds that it is expected to save in a call, the mean over all variants."""
        variants = sum(each.variants for each in self.graphs)
        gains: dict[str, float] = {}
        for each in self.graphs:
            for c in each.candidates:
                gains[c.pattern] = gains.get(c.pattern, 0.0) + c.gain * each.variants / variants
        return dict(sorted(gains.items(), key=lambda item: -item[1]))

    def longest(self) -> float:
        """The least time of the slowest region's kernels, in microseconds."""
        return max((c.device for each in self.graphs for c in each.candidates), default=0.0)

    def kernels(self) -> list[KernelBody]:
        """The kernels of all regions."""
        cases = (case for each in self.graphs for c in each.candidates for case in c.cases)
        return [body for case in cases for body in case.sketch.bodies]

    def covers(self, patterns: Collection[str]) -> bool:
        """Whether every variant has a match of one of these patterns. A variant without a match scores as a failure."""
        return bool(self.graphs) and all(any(c.pattern in patterns for c in each.candidates) for each in self.graphs)

    def likely(self, margin: float) -> tuple[str, ...]:
        """Patterns that are expected to save more than `margin` microseconds a call.

        A graph that has none of these gets its best pattern, since a variant without a match scores as a failure. Empty
        if all chosen patterns together save no more than `margin`.
        """
        gains = self.gains()
        chosen = {pattern for pattern, gain in gains.items() if gain > margin}
        for each in self.graphs:
            if each.candidates and not any(c.pattern in chosen for c in each.candidates):
                chosen.add(max(each.candidates, key=lambda c: c.gain).pattern)
        worth = sum(gains[pattern] for pattern in chosen) > margin
        return tuple(sorted(chosen, key=lambda p: -gains[p])) if worth and self.covers(chosen) else ()

    def write(self, patterns: Collection[str], style: Style, directory: Path) -> Submission:
        """A pass of these patterns in `directory`, which does not exist yet.

        A module that matches elsewhere than it was written for is left out. If a variant is without a match then, the
        submission declines and there is no directory.
        """
        causes = list(self.causes)
        while self.covers(patterns):
            names = self._module_names(patterns)
            self._write(names, style, directory)
            wrong = mismatches(directory, [(each.graph, each.sites(names)) for each in self.graphs])
            if not wrong:
                return Submission("pass", directory)
            shutil.rmtree(directory)
            causes.append(f"patterns that match elsewhere, or not at all: {', '.join(sorted(wrong))}")
            patterns = [p for p, name in names.items() if name not in wrong]
        return Submission("eager", reason="; ".join(dict.fromkeys(causes)) or "nothing to fuse")

    def _module_names(self, patterns: Collection[str]) -> dict[str, str]:
        """Pattern → name of the module that replaces it, those with more ops first: they apply in this order."""
        graphs = {c.pattern: c.region.graph for each in self.graphs for c in each.candidates if c.pattern in patterns}
        taken: Counter[str] = Counter()
        names = {}
        for pattern, graph in sorted(graphs.items(), key=lambda item: -len(item[1].ops)):
            name = "_".join(["fuse", *short_names(graph)])
            taken[name] += 1
            names[pattern] = name if taken[name] == 1 else f"{name}_{taken[name]}"
        return names

    def _write(self, names: Mapping[str, str], style: Style, directory: Path) -> None:
        directory.mkdir(parents=True)
        for pattern, name in names.items():
            cases = [case for each in self.graphs for c in each.candidates if c.pattern == pattern for case in c.cases]
            (directory / f"{name}.py").write_text(module_source(cases, self.family, style), "utf-8")
        (directory / NAMES_FILE).write_text(json.dumps(list(names.values()), indent=2) + "\n", "utf-8")


def float_dtypes(variants: Iterable[Variant]) -> dict[str, FloatDtypes]:
    """The floating dtypes of the variants of each graph; graphs are given as JSON."""
    return {graph: _float_dtypes(group) for graph, group in _by_graph(variants).items()}


def _float_dtypes(variants: Iterable[Variant]) -> FloatDtypes:
    return frozenset(i.dtype for variant in variants for i in variant.inputs if "float" in i.dtype)


def _by_graph(variants: Iterable[Variant]) -> dict[str, list[Variant]]:
    groups: dict[str, list[Variant]] = {}
    for variant in variants:
        groups.setdefault(to_json(variant.graph), []).append(variant)
    return groups

"""A sample as the offline author sees it: its graphs, what could be replaced in them, and passes of such a choice."""

import json
import shutil
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from agent.author import Submission
from agent.distill.candidates import Candidate, Options, candidates, promising
from agent.distill.check_matches import Site, mismatches
from agent.distill.kernels.schedule import KernelBody
from agent.distill.lowered_regions import Sketches
from agent.distill.pass_source import Style, module_source, short_names
from agent.distill.rounding import Rounding
from passbench.contract import NAMES_FILE
from storage.graph.as_json import to_json
from storage.graph.record import Graph
from storage.records import Sample, Variant

Kind = frozenset[str]
"""The floating dtypes of the variants of one graph. A pattern cannot tell such variants apart; those of different kinds
it can, for their graphs differ (in a dtype that they convert to, say)."""


@dataclass(frozen=True)
class Work:
    """The variants of one graph, and the regions of it that could be replaced, by pattern."""

    graph: Graph
    variants: int
    found: tuple[Candidate, ...]

    def gain(self, patterns: Collection[str] | None = None) -> float:
        """Microseconds that a call of one variant is expected to save with these patterns, or with all."""
        return sum(c.gain for c in self.found if patterns is None or c.pattern in patterns)

    def sites(self, names: Mapping[str, str]) -> list[Site]:
        """Where the modules, given as pattern → name, should match."""
        return [Site(names[c.pattern], c.region.inputs) for c in self.found if c.pattern in names]


@dataclass(frozen=True)
class Task:
    """All graphs of a sample; `causes` say why there are not more regions."""

    family: str
    works: tuple[Work, ...]
    causes: tuple[str, ...]

    @classmethod
    def of(
        cls, sample: Sample, options: Options, sketches: Sketches, rounding: Mapping[Kind, Rounding] | None = None
    ) -> "Task":
        """Looks for regions in every graph of the sample; in none, where no graph is promising.

        `rounding` is what the graphs of each kind leave to eager for the sake of the same bits; nothing by default.
        """
        graphs = list(_by_graph(sample.variants).values())
        if not any(promising(variants, options) for variants in graphs):
            return cls(sample.family_hash, (), ("nothing that one kernel could do faster",))
        works, causes = [], []
        # The graphs of a family differ in their constants.
        excluded: dict[tuple[Rounding, tuple[str, ...]], frozenset[int]] = {}
        for variants in graphs:
            own = replace(options, rounding=(rounding or {}).get(_kind(variants), options.rounding))
            ops = own.rounding, tuple(variants[0].graph.op_sequence)
            found = candidates(variants, own, sketches, excluded.get(ops))
            excluded[ops] = found.excluded
            works.append(Work(variants[0].graph, len(variants), found.candidates))
            causes += found.causes
        return cls(sample.family_hash, tuple(works), tuple(dict.fromkeys(causes)))

    def gains(self) -> dict[str, float]:
        """Every pattern with the microseconds that it is expected to save in a call, the mean over all variants."""
        variants = sum(work.variants for work in self.works)
        gains: dict[str, float] = {}
        for work in self.works:
            for c in work.found:
                gains[c.pattern] = gains.get(c.pattern, 0.0) + c.gain * work.variants / variants
        return dict(sorted(gains.items(), key=lambda item: -item[1]))

    def longest(self) -> float:
        """Microseconds that the kernels of one region take at least, where they take longest."""
        return max((c.device for work in self.works for c in work.found), default=0.0)

    def kernels(self) -> list[KernelBody]:
        """The kernels of all regions."""
        cases = (case for work in self.works for c in work.found for case in c.cases)
        return [body for case in cases for body in case.sketch.bodies]

    def covers(self, patterns: Collection[str]) -> bool:
        """Whether every variant has a match of one of these patterns; one without any scores as a failure."""
        return bool(self.works) and all(any(c.pattern in patterns for c in work.found) for work in self.works)

    def likely(self, margin: float) -> tuple[str, ...]:
        """Patterns that are expected to save more than `margin` microseconds, and the least bad one for each graph that
        would have none; empty if all of it together saves no more than `margin` a call."""
        gains = self.gains()
        chosen = {pattern for pattern, gain in gains.items() if gain > margin}
        for work in self.works:
            if work.found and not any(c.pattern in chosen for c in work.found):
                chosen.add(max(work.found, key=lambda c: c.gain).pattern)
        worth = sum(gains[pattern] for pattern in chosen) > margin
        return tuple(sorted(chosen, key=lambda p: -gains[p])) if worth and self.covers(chosen) else ()

    def write(self, patterns: Collection[str], style: Style, directory: Path) -> Submission:
        """A pass of these patterns in `directory`, which does not exist yet.

        Modules that match in other places than they were written for are left out. Declines, and leaves no directory,
        where a variant would be without a match.
        """
        causes = list(self.causes)
        while self.covers(patterns):
            names = self._module_names(patterns)
            self._write(names, style, directory)
            wrong = mismatches(directory, [(work.graph, work.sites(names)) for work in self.works])
            if not wrong:
                return Submission("pass", directory)
            shutil.rmtree(directory)
            causes.append(f"patterns that match elsewhere, or not at all: {', '.join(sorted(wrong))}")
            patterns = [p for p, name in names.items() if name not in wrong]
        return Submission("eager", reason="; ".join(dict.fromkeys(causes)) or "nothing to fuse")

    def _module_names(self, patterns: Collection[str]) -> dict[str, str]:
        """Pattern → name of the module that replaces it, those with more ops first: they apply in this order."""
        graphs = {c.pattern: c.region.graph for work in self.works for c in work.found if c.pattern in patterns}
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
            cases = [case for work in self.works for c in work.found if c.pattern == pattern for case in c.cases]
            (directory / f"{name}.py").write_text(module_source(cases, self.family, style), "utf-8")
        (directory / NAMES_FILE).write_text(json.dumps(list(names.values()), indent=2) + "\n", "utf-8")


def kinds(variants: Iterable[Variant]) -> dict[str, Kind]:
    """The kind of each graph, which is given as JSON."""
    return {graph: _kind(group) for graph, group in _by_graph(variants).items()}


def _kind(variants: Iterable[Variant]) -> Kind:
    return frozenset(i.dtype for variant in variants for i in variant.inputs if "float" in i.dtype)


def _by_graph(variants: Iterable[Variant]) -> dict[str, list[Variant]]:
    groups: dict[str, list[Variant]] = {}
    for variant in variants:
        groups.setdefault(to_json(variant.graph), []).append(variant)
    return groups

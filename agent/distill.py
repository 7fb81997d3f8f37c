"""The offline author: TorchInductor's kernels for the fusible parts of a task, written out as a readable pass.

Every variant is cut into regions that need no library call. A region is lowered by itself and its kernels are written
as Triton source; regions with the same pattern share a module, whose wrapper picks a plan by its inputs.
"""

import json
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agent.author import Submission
from agent.candidates import Candidate, candidates
from agent.check import mismatches
from agent.pass_source import module_source, short_names
from agent.tuning import Limits
from passbench.contract import NAMES_FILE
from storage.graph import Graph
from storage.graph_json import to_json
from storage.records import Sample, Variant


@dataclass(frozen=True)
class _Work:
    """The variants of one graph and the regions of it that could be replaced."""

    graph: Graph
    variants: int
    found: tuple[Candidate, ...]
    causes: tuple[str, ...]

    @classmethod
    def of(cls, variants: Sequence[Variant], limits: Limits) -> "_Work":
        found, causes = candidates(variants, limits)
        return cls(variants[0].graph, len(variants), tuple(found), tuple(causes))

    def matches(self, names: Mapping[str, str]) -> Counter[str]:
        """How often each of the modules, given as pattern → name, should match."""
        return Counter(names[c.pattern] for c in self.found if c.pattern in names)


@dataclass
class Distill:
    """`saving` is how many launches a region must save to be worth a wrapper. A launch through Triton's JIT and the
    wrapper costs the host about as much as two or three eager ops (tests/benchmarks/h200_quickstart), so that pairs of
    small ops fused into one kernel come out slower."""

    name: str = "distill"
    saving: int = 2
    limits: Limits = field(default_factory=Limits)

    def write(self, sample: Sample, directory: Path) -> Submission:
        """A pass for all variants of the sample, or the reason why there is none.

        A variant that no module matches scores as a failure. So either every variant has a match, or the sample is
        declined; it is declined, too, where most variants would gain nothing.
        """
        works = [_Work.of(variants, self.limits) for variants in _by_graph(sample.variants)]
        causes = [cause for work in works for cause in work.causes]
        patterns = self._chosen(works)
        while patterns:
            names = _module_names(works, patterns)
            _write(works, names, sample.family_hash, directory)
            wrong = mismatches(directory, [(work.graph, work.matches(names)) for work in works])
            if not wrong:
                return Submission("pass", directory)
            shutil.rmtree(directory)
            causes.append(f"patterns that match elsewhere, or not at all: {', '.join(sorted(wrong))}")
            kept = {p: name for p, name in names.items() if name not in wrong}
            patterns = list(kept) if all(work.matches(kept) for work in works) else []
        return Submission("eager", reason="; ".join(dict.fromkeys(causes)) or "nothing to fuse")

    def _chosen(self, works: Sequence[_Work]) -> list[str]:
        """Patterns to write, those with more ops first; none if the sample is to be declined."""
        gaining = sum(work.variants for work in works if any(c.saving >= self.saving for c in work.found))
        if not all(work.found for work in works) or 2 * gaining < sum(work.variants for work in works):
            return []
        patterns: dict[str, int] = {}
        for work in works:
            best = max(c.saving for c in work.found)
            for candidate in work.found:
                if candidate.saving >= min(self.saving, best):
                    patterns[candidate.pattern] = len(candidate.region.ops)
        return sorted(patterns, key=lambda pattern: -patterns[pattern])


def _by_graph(variants: Iterable[Variant]) -> list[list[Variant]]:
    groups: dict[str, list[Variant]] = {}
    for variant in variants:
        groups.setdefault(to_json(variant.graph), []).append(variant)
    return list(groups.values())


def _module_names(works: Sequence[_Work], patterns: Sequence[str]) -> dict[str, str]:
    """Pattern → name of the module that replaces it."""
    graphs = {c.pattern: c.region.graph for work in works for c in work.found}
    taken: Counter[str] = Counter()
    names = {}
    for pattern in patterns:
        name = "_".join(["fuse", *short_names(graphs[pattern])])
        taken[name] += 1
        names[pattern] = name if taken[name] == 1 else f"{name}_{taken[name]}"
    return names


def _write(works: Sequence[_Work], names: Mapping[str, str], family: str, directory: Path) -> None:
    directory.mkdir(parents=True)
    for pattern, name in names.items():
        cases = [case for work in works for c in work.found if c.pattern == pattern for case in c.cases]
        (directory / f"{name}.py").write_text(module_source(cases, family), "utf-8")
    (directory / NAMES_FILE).write_text(json.dumps(list(names.values()), indent=2) + "\n", "utf-8")

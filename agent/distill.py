"""The offline author: TorchInductor's kernels for the fusible parts of a task, written out as a readable pass.

Every variant is cut into regions that need no library call. A region is lowered by itself and its kernels are written
as Triton source; regions with the same pattern share a module, whose wrapper picks a plan by its inputs.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agent.author import Submission
from agent.facts import Facts, FactsError, facts
from agent.index import Unsupported
from agent.pass_source import Case, module_source, pattern_source, short_names
from agent.program import program
from agent.regions import Region, region_of, regions
from agent.tuning import Limits
from extraction.lowering import LoweringError, lowered
from passbench.contract import NAMES_FILE
from storage.graph import Graph, refs
from storage.graph_json import to_json
from storage.records import Input, Sample, Variant

_FAILURES = (Unsupported, LoweringError, FactsError)


@dataclass
class Distill:
    """`saving` is how many launches a region must save to be worth a wrapper: a Triton launch costs more host time than
    an eager op, so that replacing one kernel by one kernel loses."""

    name: str = "distill"
    saving: int = 1
    limits: Limits = field(default_factory=Limits)

    def write(self, sample: Sample, directory: Path) -> Submission:
        """A pass for all variants of the sample, or the reason why there is none."""
        cases: list[Case] = []
        causes: list[str] = []
        for variants in _by_graph(sample.variants):
            work = _GraphWork(variants, self.saving, self.limits)
            cases += work.cases()
            causes += work.causes
        if not cases:
            return Submission("eager", reason="; ".join(dict.fromkeys(causes)) or "nothing to fuse")
        directory.mkdir(parents=True)
        names: dict[str, int] = {}
        written = []
        for same in sorted(_by_pattern(cases), key=lambda cases: -len(cases[0].graph.ops)):
            name = "fuse_" + "_".join(short_names(same[0].graph))
            names[name] = names.get(name, 0) + 1
            if names[name] > 1:
                name += f"_{names[name]}"
            (directory / f"{name}.py").write_text(module_source(same, sample.family_hash), "utf-8")
            written.append(name)
        (directory / NAMES_FILE).write_text(json.dumps(written, indent=2) + "\n", "utf-8")
        return Submission("pass", directory)


def _by_graph(variants: Iterable[Variant]) -> list[list[Variant]]:
    groups: dict[str, list[Variant]] = {}
    for variant in variants:
        groups.setdefault(to_json(variant.graph), []).append(variant)
    return list(groups.values())


def _by_pattern(cases: Iterable[Case]) -> list[list[Case]]:
    groups: dict[str, list[Case]] = {}
    for case in cases:
        groups.setdefault(pattern_source(case.graph), []).append(case)
    return list(groups.values())


class _GraphWork:
    """The variants of one graph: they get the same regions, so that whatever a pattern matches has a plan."""

    def __init__(self, variants: Sequence[Variant], saving: int, limits: Limits) -> None:
        self.variants, self.saving, self.limits = variants, saving, limits
        self.graph: Graph = variants[0].graph
        self.causes: list[str] = []

    def cases(self) -> list[Case]:
        """The regions of all variants with their programs; what could not be done is in `causes`."""
        try:
            known = [facts(v.graph, v.inputs) for v in self.variants]
            excluded = self._library_calls()
        except _FAILURES as error:
            self.causes.append(str(error))
            return []
        if excluded:
            self.causes.append("library calls: " + ", ".join(self._names(excluded)))
        while True:
            found = regions(self.graph, known[0], excluded)
            failed: set[int] = set()
            cases = []
            for region in found:
                made, bad = self._region(region, known)
                cases += made
                failed |= bad
            if not failed:
                return cases
            excluded |= failed

    def _library_calls(self) -> set[int]:
        first = self.variants[0]
        with lowered(first.graph, first.inputs) as result:
            return {max(k.ops) for k in result.kernels if k.kind == "extern" and k.ops}

    def _names(self, ops: Iterable[int]) -> list[str]:
        return list(dict.fromkeys(self.graph.op_sequence[op] for op in sorted(ops)))

    def _region(self, region: Region, known: Sequence[Facts]) -> tuple[list[Case], set[int]]:
        """The region's cases, or the ops that stand in the way; neither where it is not worth replacing."""
        cases = []
        for each in known:
            inputs = _inputs(region, each)
            try:
                case = Case(region.graph, program(region.graph, inputs, self.limits))
            except _FAILURES as error:
                return [], self._blame(region, each, error)
            launches = sum(each.launches[op] for op in region.ops)
            if launches - len(case.program.launches) < self.saving:
                names = ", ".join(self._names(region.ops))
                self.causes.append(f"{names}: {launches} launches in eager, {len(case.program.launches)} fused")
                return [], set()
            cases.append(case)
        return cases, set()

    def _blame(self, region: Region, known: Facts, error: Exception) -> set[int]:
        """The ops of a failed region that fail by themselves; all of them where each does well alone."""
        self.causes.append(str(error))
        bad = set()
        for op in region.ops if len(region.ops) > 1 else ():
            alone = region_of(self.graph, [op])
            if alone is None or any(known.values[n] is None for n in alone.inputs):
                continue
            try:
                program(alone.graph, _inputs(alone, known), self.limits)
            except _FAILURES:
                bad.add(op)
        return bad or set(region.ops)


def _inputs(region: Region, known: Facts) -> list[Input]:
    return [known.values[number].as_input(f"in_{n}") for n, number in enumerate(region.inputs)]

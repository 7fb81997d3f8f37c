"""The regions of one graph that could be replaced, with their programs for every variant of the graph."""

import warnings
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from agent.facts import Facts, FactsError, Layout, facts
from agent.index import Unsupported
from agent.pass_source import Case, pattern_source
from agent.program import Program, program
from agent.regions import Region, region_of, regions
from agent.tuning import Limits
from extraction.lowering import LoweringError, lowered
from storage.graph import Graph
from storage.graph_json import to_json
from storage.records import Input, Variant

_FAILURES = (Unsupported, LoweringError, FactsError)


@dataclass(frozen=True)
class Candidate:
    """A region and its programs; `saving` is how many launches the replacement saves, in the worst of the variants."""

    region: Region
    pattern: str
    cases: tuple[Case, ...]
    saving: int


def candidates(variants: Sequence[Variant], limits: Limits) -> tuple[list[Candidate], list[str]]:
    """Candidates of variants that share one graph, and why there are not more.

    A region counts only if every variant has a program for it: its pattern matches in all of them.
    """
    search = _Search(variants, limits)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TorchInductor's advice is for those who compile with it
        return search.run(), search.causes


class _Search:
    def __init__(self, variants: Sequence[Variant], limits: Limits) -> None:
        self.variants, self.limits = variants, limits
        self.graph: Graph = variants[0].graph
        self.causes: list[str] = []
        self.programs: dict[tuple, Program] = {}  # repeated blocks have equal regions

    def run(self) -> list[Candidate]:
        try:
            known = [facts(v.graph, v.inputs) for v in self.variants]
            excluded = self._library_calls()
        except _FAILURES as error:
            self.causes.append(str(error))
            return []
        if excluded:
            self.causes.append("library calls: " + ", ".join(self._names(excluded)))
        done: dict[tuple[int, ...], Candidate] = {}
        while True:
            found = regions(self.graph, known[0], excluded)
            failed: set[int] = set()
            for region in found:
                if region.ops not in done:
                    candidate = self._candidate(region, known)
                    if isinstance(candidate, Candidate):
                        done[region.ops] = candidate
                    else:
                        failed |= candidate
            if not failed:
                return [done[region.ops] for region in found]
            excluded |= failed

    def _library_calls(self) -> set[int]:
        first = self.variants[0]
        with lowered(first.graph, first.inputs) as result:
            return {max(k.ops) for k in result.kernels if k.kind == "extern" and k.ops}

    def _names(self, ops: Iterable[int]) -> list[str]:
        return list(dict.fromkeys(self.graph.op_sequence[op] for op in sorted(ops)))

    def _candidate(self, region: Region, known: Sequence[Facts]) -> Candidate | set[int]:
        """The candidate, or the ops that stand in its way."""
        cases, savings = [], []
        for each in known:
            predicted, *others = self._layouts(region, each)
            try:
                programs = [self._program(region, predicted)]
            except _FAILURES as error:
                self.causes.append(str(error))
                return self._to_blame(region, each)
            for other in others:
                with suppress(*_FAILURES):  # eager does not run the region on this layout either
                    programs.append(self._program(region, other))
            cases += [Case(region.graph, one) for one in programs]
            savings += [one.saving for one in programs]
            worst = min(programs, key=lambda one: one.saving)
            if worst.saving <= 0:
                names = ", ".join(self._names(region.ops))
                self.causes.append(f"{names}: {worst.replaced} launches in eager, {len(worst.launches)} fused")
        return Candidate(region, pattern_source(region.graph), tuple(cases), min(savings))

    def _layouts(self, region: Region, known: Facts) -> list[list[Input]]:
        """The region's inputs, and once more with the layouts that a GPU's library may choose instead.

        Which strides a convolution or an attention gives its result depends on the backend, and what is known here
        is the CPU's choice.
        """
        predicted = _inputs(region, known)
        own = {layout.storage for layout in known.values[: self.graph.inputs] if isinstance(layout, Layout)}
        other = [
            one if known.values[number].storage in own else self._other_layout(one)
            for one, number in zip(predicted, region.inputs, strict=True)
        ]
        return [predicted] if other == predicted else [predicted, other]

    def _other_layout(self, one: Input) -> Input:
        if len(one.shape) != 4:
            return one
        _, heads, length, width = one.shape
        contiguous = (heads * length * width, length * width, width, 1)
        if one.stride != contiguous:
            return replace(one, stride=contiguous)
        if any("scaled_dot_product_attention" in name for name in self.graph.op_sequence):
            return replace(one, stride=(length * heads * width, width, heads * width, 1))
        return one

    def _program(self, region: Region, inputs: list[Input]) -> Program:
        key = (to_json(region.graph), *inputs)
        if key not in self.programs:
            self.programs[key] = program(region.graph, inputs, self.limits)
        return self.programs[key]

    def _to_blame(self, region: Region, known: Facts) -> set[int]:
        """The ops of a failed region that fail by themselves; all of them where each does well alone."""
        bad = set()
        for op in region.ops if len(region.ops) > 1 else ():
            alone = region_of(self.graph, [op])
            if alone is None or any(known.values[n] is None for n in alone.inputs):
                continue
            try:
                self._program(alone, _inputs(alone, known))
            except _FAILURES:
                bad.add(op)
        return bad or set(region.ops)


def _inputs(region: Region, known: Facts) -> list[Input]:
    return [known.values[number].as_input(f"in_{n}") for n, number in enumerate(region.inputs)]

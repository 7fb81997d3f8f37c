"""A sample as the offline author sees it: its graphs, what could be replaced in them, and passes of such a choice."""

import json
import math
import shutil
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from agent.author import Submission
from agent.distill.any_constants import of_any_constants, structure
from agent.distill.candidates import Candidate, Options, find_candidates, promising, sure_gains
from agent.distill.eager.op_effects import find_effects
from agent.distill.eager.part_order import in_part_order
from agent.distill.inductor.whole_source import CompiledGraph, compiled_graph, compiled_source
from agent.distill.kernels.index_expressions import Unsupported
from agent.distill.kernels.schedule import KernelBody
from agent.distill.lowered_regions import Sketches
from agent.distill.rewrites.channels_last import in_channels_last
from agent.distill.rewrites.sample_graphs import FloatDtypes, by_graph, float_dtypes_of
from agent.distill.rewrites.split_biases import LINEAR
from agent.distill.rounding import Rounding
from agent.distill.source.pass_source import module_source
from agent.distill.source.pattern_source import short_names
from agent.distill.source.style import Style
from agent.distill.whole_graphs import WholeGraph, in_branches, whole_graph, whole_graph_instead, whole_source
from agent.distill.written_pass import Site, mismatches, within
from passbench.contract import NAMES_FILE, write_pass_dir
from passbench.policy.check import MAX_SOURCE
from storage.graph.record import Graph, refs
from storage.records import Sample, Variant


@dataclass(frozen=True)
class GraphCandidates:
    """One graph of a sample: how many variants have it, and which of its regions could be replaced, or all of it.

    `eager` has the launches of each op in eager where there are candidates.
    """

    graph: Graph
    variants: int
    candidates: tuple[Candidate, ...]
    whole: WholeGraph | None = None
    eager: tuple[int, ...] = ()

    def gain(self, patterns: Collection[str] | None = None) -> float:
        """Microseconds that a call of one variant is expected to save with these patterns, or with all."""
        return sum(c.gain for c in self.candidates if patterns is None or c.pattern in patterns)

    def launches(self, patterns: Collection[str]) -> int:
        """How many launches the whole graph is with these patterns replaced; 0 if it cannot be replaced as a whole."""
        if self.whole is None:
            return 0
        return self.calls(patterns) + sum(c.cases[0].launches for c in self.candidates if c.pattern in patterns)

    def calls(self, patterns: Collection[str]) -> int:
        """How many of these launches are library calls of ops that no pattern replaces."""
        if self.whole is None:
            return 0
        inside = {op for c in self.candidates if c.pattern in patterns for op in c.region.ops}
        return sum(n for op, n in enumerate(self.whole.known.launches) if op not in inside)

    def feeds_calls(self, patterns: Collection[str]) -> bool:
        """Whether a library call reads what kernels make, with these patterns replaced."""
        chosen = [c for c in self.candidates if c.pattern in patterns]
        inside = {op for c in chosen for op in c.region.ops}
        made = {number for c in chosen for number in c.region.outputs}
        for number, op in enumerate(self.graph.ops):
            if number not in inside and made & {ref.index for ref in refs((op.args, op.kwargs))}:
                if self.eager[number]:
                    return True
                made.add(self.graph.inputs + number)  # a view
        return any(c.cases[0].calls is not None and made.intersection(c.region.inputs) for c in chosen)

    def branches(self, patterns: Collection[str]) -> bool:
        """Whether parts of the whole graph may pay side by side, with these patterns replaced."""
        regions = {f"region_{n}": c.region for n, c in enumerate(self.candidates) if c.pattern in patterns}
        try:
            return self.whole is not None and in_branches(self.whole, regions) is not None
        except Unsupported:
            return False

    def sites(self, names: Mapping[str, str]) -> list[Site]:
        """Where the modules, given as pattern → name, should match."""
        return [Site(names[c.pattern], c.region.inputs) for c in self.candidates if c.pattern in names]


@dataclass(frozen=True)
class Task:
    """All graphs of a sample with their candidates. `causes` say why there are not more. `examples` has a variant of
    each graph that differs from others in more than its constants."""

    family: str
    graphs: tuple[GraphCandidates, ...]
    causes: tuple[str, ...]
    examples: tuple[Variant, ...] = ()
    _general: dict[bool, list[str]] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(
        cls,
        sample: Sample,
        options: Options,
        sketches: Sketches,
        rounding: Mapping[FloatDtypes, Rounding] | None = None,
        whole: bool = False,
    ) -> "Task":
        """Looks for candidates in every graph of the sample, or in none if no graph is promising.

        With `whole`, also for graphs that could be replaced as a whole.

        `rounding` says, by the dtypes of a graph's variants, what they leave to eager to get eager's bits. A graph
        that it does not name gets `options.rounding`.
        """
        groups = [in_part_order(variants) for variants in by_graph(sample.variants).values()]
        other_graph = options.ways.channels_last or options.ways.split_linears or sketches.products
        if not other_graph and not any(promising(variants, options) for variants in groups):
            found = [GraphCandidates(v[0].graph, len(v), (), whole_graph(v)) for v in groups] if whole else []
            kept = tuple(found) if any(each.whole for each in found) else ()
            examples = {structure(v[0].graph): v[0] for v in groups}.values() if kept else ()
            return cls(sample.family_hash, kept, ("nothing that one kernel could do faster",), tuple(examples))
        examples = tuple({structure(variants[0].graph): variants[0] for variants in groups}.values())
        graphs, causes = [], []
        # The graphs of a family differ in their constants.
        excluded: dict[tuple[Rounding, tuple[str, ...]], frozenset[int]] = {}
        for variants in groups:
            graph = variants[0].graph
            own = replace(options, rounding=(rounding or {}).get(float_dtypes_of(variants), options.rounding))
            ops = own.rounding, tuple(own.split(variants).graph.op_sequence)
            instead = in_channels_last(variants) if own.ways.channels_last else None
            as_one = whole_graph(variants) if whole and instead is None else None
            if instead is not None:
                as_one = whole_graph_instead(variants, instead)
                variants = [replace(variant, graph=instead) for variant in variants]
                ops = own.rounding, tuple(own.split(variants).graph.op_sequence)
            found = find_candidates(variants, own, sketches, excluded.get(ops))
            excluded[ops] = found.excluded
            eager = find_effects(graph, variants[0].inputs).launches if found.candidates else ()
            graphs.append(GraphCandidates(graph, len(variants), found.candidates, as_one, eager))
            causes += found.causes
        return cls(sample.family_hash, tuple(graphs), tuple(dict.fromkeys(causes)), examples)

    def gains(self) -> dict[str, float]:
        """Every pattern with the microseconds that it is expected to save in a call, the mean over all variants, the
        best first."""
        return self._saved(lambda candidate: candidate.gain)

    def device_gains(self) -> dict[str, float]:
        """The same of a call in a CUDA graph."""
        return self._saved(lambda candidate: candidate.device)

    def _saved(self, gain: Callable[[Candidate], float]) -> dict[str, float]:
        variants = sum(each.variants for each in self.graphs)
        saved: dict[str, float] = {}
        for each in self.graphs:
            for c in each.candidates:
                saved[c.pattern] = saved.get(c.pattern, 0.0) + gain(c) * each.variants / variants
        return dict(sorted(saved.items(), key=lambda item: -item[1]))

    def kernels(self) -> list[KernelBody]:
        """The kernels of all regions."""
        cases = (case for each in self.graphs for c in each.candidates for case in c.cases)
        return [body for case in cases for body in case.sketch.bodies]

    def covers(self, patterns: Collection[str], whole: bool = False) -> bool:
        """Whether every variant has a match of one of these patterns, or is replaced as a whole if graphs are
        `whole`. A variant without a match scores as a failure."""
        return bool(self.graphs) and all(
            (whole and each.whole is not None) or any(c.pattern in patterns for c in each.candidates)
            for each in self.graphs
        )

    def launches(self, patterns: Collection[str]) -> int:
        """The launches of the graph that has most with these patterns replaced, of those that can be one."""
        return max((each.launches(patterns) for each in self.graphs), default=0)

    def calls(self, patterns: Collection[str]) -> int:
        """The library calls that are left of that graph of these which has most."""
        return max((each.calls(patterns) for each in self.graphs), default=0)

    def feeds_calls(self, patterns: Collection[str]) -> bool:
        """Whether a library call reads what kernels make, with these patterns replaced."""
        return any(each.feeds_calls(patterns) for each in self.graphs)

    def with_linears(self) -> set[str]:
        """The patterns whose kernels add biases of linears."""
        return {
            c.pattern
            for each in self.graphs
            for c in each.candidates
            if c.cases[0].calls is not None and any(op.target == LINEAR for op in c.cases[0].calls.ops)
        }

    def branches(self, patterns: Collection[str]) -> bool:
        """Whether parts of a graph may pay side by side, with these patterns replaced."""
        return any(each.branches(patterns) for each in self.graphs)

    @property
    def any_whole(self) -> bool:
        """Whether a graph can be replaced as a whole."""
        return any(each.whole is not None for each in self.graphs)

    def compiled_configs(self, style: Style) -> int:
        """How many configurations TorchInductor's own code for the graphs has to choose from."""
        return max([1, *(compiled.configs for compiled in self._compiled(style))])

    def compiled_launches(self, style: Style) -> int:
        """How many kernels and library calls TorchInductor's own code for a graph has at most."""
        return max((compiled.launches for compiled in self._compiled(style)), default=0)

    def _compiled(self, style: Style) -> list[CompiledGraph]:
        """TorchInductor's own code for those graphs that it can replace as a whole."""
        found = []
        for each in self.graphs:
            with suppress(Unsupported):
                if each.whole is not None:
                    found.append(compiled_graph(each.whole, style.compiled))
        return found

    def compiled_kernels(self, style: Style) -> tuple[int, ...] | None:
        """The kernels of each graph in TorchInductor's own code, where that is nothing but launches of one plan."""
        found = []
        for each in self.graphs:
            try:
                plans = compiled_graph(each.whole, style.compiled).plans if each.whole is not None else ()
            except Unsupported:
                return None
            if not plans or not all(code.kernels_alone for _, code in plans):
                return None
            found.append(max(len(code.kernels) for _, code in plans))
        return tuple(found)

    def one_plan(self, patterns: Collection[str]) -> tuple[int, ...] | None:
        """The kernels of each graph, where the patterns replace all of it by launches of one plan."""
        found = []
        for each in self.graphs:
            chosen = [c for c in each.candidates if c.pattern in patterns]
            if len(chosen) != 1 or len(chosen[0].region.ops) != len(each.graph.ops) or chosen[0].cases[0].calls:
                return None
            found.append(chosen[0].cases[0].launches)
        return tuple(found)

    def likely(self, margin: float) -> tuple[str, ...]:
        """Patterns that are expected to save more than `margin` microseconds a call, or so much of the device's time at
        no cost to the host.

        A graph that has none of these gets its best pattern, since a variant without a match scores as a failure. Empty
        if all chosen patterns together save no more than `margin`.
        """
        gains, device = self.gains(), self.device_gains()
        chosen = {p for p, gain in gains.items() if gain > margin or (round(gain, 3) >= 0 and device[p] > margin)}
        for each in self.graphs:
            if each.candidates and not any(c.pattern in chosen for c in each.candidates):
                chosen.add(max(each.candidates, key=lambda c: c.gain).pattern)
        worth = sum(gains[pattern] for pattern in chosen) > margin
        return tuple(sorted(chosen, key=lambda p: -gains[p])) if worth and self.covers(chosen) else ()

    def likely_on_device(self, margin: float) -> tuple[str, ...]:
        """As `likely`, of a CUDA graph: also the patterns that save the device time, whatever they cost the host."""
        saved = self.device_gains()
        return tuple(dict.fromkeys((*self.likely(margin), *(p for p, us in saved.items() if us > 0))))

    def sure(self, margin: float) -> tuple[str, ...]:
        """Patterns that save more than `margin` microseconds in every variant, in all places together, however slow
        their kernels turn out. Empty if a graph has none of these: a variant without a match scores as a failure."""
        least: dict[str, float] = {}
        for each in self.graphs:
            for pattern, saved in sure_gains(each.candidates).items():
                least[pattern] = min(saved, least.get(pattern, math.inf))
        chosen = sorted((p for p, gain in least.items() if gain > margin), key=lambda p: -least[p])
        return tuple(chosen) if self.covers(chosen) else ()

    def write(self, patterns: Collection[str], style: Style, directory: Path) -> Submission:
        """A pass of these patterns in `directory`, which does not exist yet.

        A module that matches elsewhere than it was written for is left out, and so are those that save least for their
        length where all together are longer than a pass may be. If a variant is without a match then, the submission
        declines and there is no directory.
        """
        causes, task = list(self.causes), self
        while task.covers(patterns, style.whole):
            names = task.module_names(patterns)
            wholes, files = task._files(names, style)
            if (excess := sum(len(text) for file, text in files.items() if file != NAMES_FILE) - MAX_SOURCE) > 0:
                sizes = {pattern: len(files[f"{name}.py"]) for pattern, name in names.items()}
                most = sum(sizes.values()) - excess
                patterns = within(sizes, task.gains(), most, lambda kept: task.covers(kept, style.whole))  # noqa: B023
                causes.append(f"all kernels together have more than {MAX_SOURCE} characters")
                if not patterns:
                    break
                continue
            write_pass_dir(files, directory)
            sites = [
                (g.graph, g.sites(names) if name is None else [Site(name, g.whole.matched.region.inputs)])
                for g, name in zip(task.graphs, wholes, strict=True)
            ]
            wrong = mismatches(directory, sites) if all(found for _, found in sites) else set()
            if not wrong and all(found for _, found in sites):
                return Submission("pass", directory)
            shutil.rmtree(directory)
            if wrong:
                causes.append(f"patterns that match elsewhere, or not at all: {', '.join(sorted(wrong))}")
            patterns = [p for p, name in names.items() if name not in wrong]
            kept = (
                replace(g, whole=None) if name is None or name in wrong else g
                for g, name in zip(task.graphs, wholes, strict=True)
            )
            task = replace(task, graphs=tuple(kept))
        return Submission("eager", reason="; ".join(dict.fromkeys(causes)) or "nothing to fuse")

    def module_names(self, patterns: Collection[str]) -> dict[str, str]:
        """Pattern → name of the module that replaces it, those with more ops first: they apply in this order."""
        graphs = {c.pattern: c.region.graph for each in self.graphs for c in each.candidates if c.pattern in patterns}
        taken: Counter[str] = Counter()
        names = {}
        for pattern, graph in sorted(graphs.items(), key=lambda item: -len(item[1].ops)):
            name = "_".join(["fuse", *short_names(graph)])
            taken[name] += 1
            names[pattern] = name if taken[name] == 1 else f"{name}_{taken[name]}"
        return names

    def _files(self, names: Mapping[str, str], style: Style) -> tuple[list[str | None], dict[str, str]]:
        """For each graph the name of the module that replaces it as a whole, None for none; and the files of the pass.

        The modules of whole graphs apply first. Those of regions are applied where a graph is not replaced as a whole.
        What is for other constants applies last: to graphs in which nothing else has matched.
        """
        of_wholes = [self._whole_source(each, names, style) if style.whole else None for each in self.graphs]
        wholes = [None if source is None else f"whole_graph_{n}" for n, source in enumerate(of_wholes)]
        sources = {name: source for name, source in zip(wholes, of_wholes, strict=True) if name is not None}
        applied = [
            name
            for pattern, name in names.items()
            if any(
                whole is None and any(c.pattern == pattern for c in each.candidates)
                for each, whole in zip(self.graphs, wholes, strict=True)
            )
        ]
        general = {f"any_constants_{n}": source for n, source in enumerate(self._of_any_constants(style.captured))}
        listed = [*sources, *applied, *general]
        for pattern, name in names.items():
            cases = [case for each in self.graphs for c in each.candidates if c.pattern == pattern for case in c.cases]
            sources[name] = module_source(cases, self.family, style, helper=name not in applied)
        files = {f"{name}.py": source for name, source in (sources | general).items()}
        return wholes, files | {NAMES_FILE: json.dumps(listed, indent=2) + "\n"}

    def _of_any_constants(self, captured: bool) -> list[str]:
        """Modules for graphs of other constants than any variant's."""
        if captured not in self._general:
            sources = (of_any_constants([example], self.family, captured) for example in self.examples)
            self._general[captured] = [source for source in sources if source is not None]
        return self._general[captured]

    def _whole_source(self, graph: GraphCandidates, names: Mapping[str, str], style: Style) -> str | None:
        if graph.whole is None:
            return None
        parts = [(names[c.pattern], c.region) for c in graph.candidates if c.pattern in names]
        try:
            if style.compiled:
                compiled = compiled_graph(graph.whole, style.compiled)
                return compiled_source(compiled, self.family, style.config, style.captured)
            return whole_source(graph.whole, parts, self.family, style.branches, style.captured)
        except Unsupported:
            return None

"""The author `readable`: writes what `distill` would replace, where it can be written generally."""

import json
import math
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from agent.author import Attempt, Author, Submission
from agent.distill.candidates import Candidate, Options, find_candidates
from agent.distill.lowered_regions import FAILURES, Sketches
from agent.distill.static import MARGIN, Distill
from agent.distill.task_plan import Task
from agent.readable.kernel_text import Unreadable
from agent.readable.module_source import ReadableModule, module_of, region_source
from agent.readable.task_names import named_as_in_task
from agent.readable.whole_source import whole_module, whole_of
from passbench.contract import NAMES_FILE, write_pass_dir
from storage.graph.as_json import to_json
from storage.records import Sample, Variant

_SPLITS = 3
"""How often a region that is not readable is cut in halves."""


@dataclass(frozen=True)
class ReadablePass:
    """A pass as files by name, and its modules in order; no files, and the `reason`, where none was written."""

    files: dict[str, str]
    modules: tuple[ReadableModule, ...]
    reason: str = ""


@dataclass
class Readable(Author):
    """Writes one pass for all variants of a sample, or declines. It looks for regions for `seconds` of the processor's
    time. Nothing is measured: what `distill` expects to save time is replaced."""

    name: str = "readable"
    margin: float = MARGIN
    seconds: float = 60.0
    sketches: Sketches = field(default_factory=Sketches, repr=False, compare=False)

    def attempt(self, sample: Sample, directory: Path, attempt: Attempt) -> Submission:
        """A submission for the sample."""
        written = self.write(sample)
        if not written.files:
            return Submission("eager", reason=written.reason)
        write_pass_dir(written.files, directory)
        return Submission("pass", directory)

    def write(self, sample: Sample) -> ReadablePass:
        """A pass whose modules together match in every variant and nowhere else than they should."""
        author = Distill(margin=self.margin, seconds=self.seconds, sketches=self.sketches)
        task = author.task(sample, self.margin)
        wanted = set(task.likely(self.margin))
        graphs = _graphs_of(sample, task, wanted)
        causes: list[str] = []
        modules = self._of_whole_graphs(graphs) or self._of_regions(graphs, causes)
        if not modules:
            return ReadablePass({}, (), "; ".join(dict.fromkeys((*causes, *task.causes))) or "nothing to fuse")
        return _pass_of(modules)

    def replayed(self, sample: Sample) -> ReadablePass:
        """A pass that makes eager's own calls and replays them as CUDA graphs, so that results have eager's bits.

        It has no files where a graph has too few launches for that.
        """
        modules = self._of_whole_graphs(_graphs_of(sample, None, ()))
        if not modules:
            return ReadablePass({}, (), "too few launches")
        return _pass_of(modules)

    def _of_whole_graphs(self, graphs: Sequence["_GraphOfTask"]) -> list[ReadableModule]:
        """A module for each graph as a whole; none where one of them cannot be that."""
        wholes = [whole_of(each.variants, each.candidates) for each in graphs]
        modules: list[ReadableModule] = []
        for each, whole in zip(graphs, wholes, strict=True):
            if None in wholes:
                return []
            regions = [part for one in each.candidates for part in self._readable_parts(each.variants, one, _SPLITS)]
            made = whole_module(whole, regions, self.sketches, [m.name for m in modules])
            if made is None:
                return []
            modules.append(made)
        return modules

    def _readable_parts(self, variants: Sequence[Variant], candidate: Candidate, splits: int) -> list[Candidate]:
        """The region, or what is readable of its halves, of their halves and so on."""
        try:
            region_source(candidate.cases, self.sketches, "fused")
            return [candidate]
        except (Unreadable, *FAILURES):
            halves = self._halves(variants, candidate) if splits else []
            return [part for half in halves for part in self._readable_parts(variants, half, splits - 1)]

    def _of_regions(self, graphs: Sequence["_GraphOfTask"], causes: list[str]) -> list[ReadableModule]:
        """A module for each region, or for the parts of one that is not readable; none where a graph is without."""
        found = [(number, candidate) for number, each in enumerate(graphs) for candidate in each.candidates]
        modules: list[ReadableModule] = []
        covered: set[int] = set()
        for _ in range(_SPLITS + 1):
            by_pattern: dict[str, list[tuple[int, Candidate]]] = {}
            for number, candidate in found:
                by_pattern.setdefault(candidate.pattern, []).append((number, candidate))
            found = []
            for same in sorted(by_pattern.values(), key=lambda same: -len(same[0][1].region.ops)):
                cases = [case for _, candidate in same for case in candidate.cases]
                try:
                    made = module_of(cases, self.sketches, [m.name for m in modules])
                except (Unreadable, *FAILURES) as error:
                    causes.append(str(error))
                    found += [
                        (n, half) for n, candidate in same for half in self._halves(graphs[n].variants, candidate)
                    ]
                    continue
                modules.append(replace(made, source=named_as_in_task(made.source, same[0][1].region)))
                covered |= {number for number, _ in same}
        modules.sort(key=lambda module: -len(module.ops))
        return modules if len(covered) == len(graphs) else []

    def _halves(self, variants: Sequence[Variant], candidate: Candidate) -> list[Candidate]:
        """Regions of the first half of a region's ops, and of the second, that have at least two ops."""
        ops, count = candidate.region.ops, len(variants[0].graph.ops)
        options = Options(-math.inf, time.thread_time() + self.seconds)
        found: list[Candidate] = []
        for part in (ops[: len(ops) // 2], ops[len(ops) // 2 :]):
            if len(part) > 1:
                others = frozenset(range(count)).difference(part)
                found += find_candidates(variants, options, self.sketches, others).candidates
        return [one for one in found if len(one.region.ops) > 1]


@dataclass(frozen=True)
class _GraphOfTask:
    """The variants of one graph of a sample, and its regions that are to be replaced."""

    variants: tuple[Variant, ...]
    candidates: tuple[Candidate, ...]


def _pass_of(modules: Sequence[ReadableModule]) -> ReadablePass:
    files = {f"{m.name}.py": m.source for m in modules}
    files[NAMES_FILE] = json.dumps([m.name for m in modules]) + "\n"
    return ReadablePass(files, tuple(modules))


def _graphs_of(sample: Sample, task: Task | None, wanted: Collection[str]) -> list[_GraphOfTask]:
    """The graphs of a sample; `wanted`: patterns of the regions that are to be replaced."""
    groups: dict[str, list[Variant]] = {}
    for one in sample.variants:
        groups.setdefault(to_json(one.graph), []).append(one)
    candidates = {to_json(each.graph): each.candidates for each in task.graphs} if task else {}
    return [
        _GraphOfTask(tuple(variants), tuple(c for c in candidates.get(graph, ()) if c.pattern in wanted))
        for graph, variants in groups.items()
    ]

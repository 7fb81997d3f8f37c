"""The regions of one graph that could be replaced, lowered for every variant of the graph."""

import math
import time
import warnings
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial, reduce
from itertools import product
from operator import add
from statistics import fmean

from agent.distill.cost import EAGER_LAUNCH, STEP, SureTimes, copying_us, device_gain, gain, most_gain
from agent.distill.eager.copied_operands import copies, with_contiguous
from agent.distill.eager.op_effects import OpEffects, OpEffectsError, TensorLayout, find_effects
from agent.distill.kernels.host_program import Sketch
from agent.distill.kernels.launch_configs import LaunchLimits
from agent.distill.lowered_regions import FAILURES, Sketches
from agent.distill.other_inputs.general_plans import layouts_of_any_size
from agent.distill.other_inputs.kept_plans import Layouts
from agent.distill.other_inputs.library_calls import without_library_call
from agent.distill.regions import Region, find_regions, inputs_of, region_of
from agent.distill.rewrites.split_biases import SplitGraph, linears_apart, linears_within, split_biases
from agent.distill.rounding import Confirms, Rounding, assumed, rounded
from agent.distill.source.pass_source import Case
from agent.distill.source.pattern_source import pattern_source
from agent.distill.ways import PLAIN, Ways
from storage.graph.record import Graph, refs
from storage.records import Input, Variant

MIXED = 3
"""With up to so many inputs whose layout a library chooses, every mixture of layouts gets a plan of its own."""
_LATE = "the time to write a pass was up"


@dataclass(frozen=True)
class Options:
    """How regions are looked for.

    A region must be able to save `margin` microseconds a call. The search ends at `deadline`, a time of
    `time.thread_time`. Regions have no ops that `rounding` leaves to eager. `confirms` says which orders of addition
    are eager's.
    """

    margin: float = 0.0
    deadline: float = math.inf
    rounding: Rounding = Rounding.ANY
    confirms: Confirms = assumed
    ways: Ways = PLAIN

    def split(self, variants: Sequence[Variant]) -> SplitGraph:
        """The graph of these variants, in which regions are looked for."""
        biases = self.ways.biases and self.rounding <= Rounding.EXACT
        any_bits = biases and (self.ways.split_linears or self.rounding is Rounding.ANY)
        within = linears_within(variants) if any_bits else ()
        return split_biases(variants[0].graph, linears_apart(variants), within, biases)


@dataclass(frozen=True)
class Candidate:
    """A region and how it is computed in each variant.

    `gain` is the time that a call is expected to save, the mean over the variants, and `device` what it saves in a CUDA
    graph. `times` are those of each variant of which what it saves at least is told. All are in microseconds.
    """

    region: Region
    pattern: str
    cases: tuple[Case, ...]
    gain: float
    times: tuple[SureTimes, ...]
    device: float

    @property
    def sure(self) -> float:
        """What a call saves at least in the variant that saves least."""
        return min(each.saved for each in self.times)


def sure_gains(candidates: Iterable[Candidate]) -> dict[str, float]:
    """What each pattern saves at least, in all its places of one graph together, in the variant that it saves least in.

    A pattern replaces all of its places or none, and host and device work at a time: what the host saves in one place
    may hide that the device is slower in another.
    """
    places: dict[str, list[tuple[SureTimes, ...]]] = {}
    for candidate in candidates:
        places.setdefault(candidate.pattern, []).append(candidate.times)
    return {p: min(reduce(add, each).saved for each in zip(*times, strict=True)) for p, times in places.items()}


def promising(variants: Sequence[Variant], options: Options) -> bool:
    """Whether a graph might have a region that saves enough, told without lowering anything.

    `variants` share the graph. Asked is the most that any region could save in the variant with the largest inputs.
    """
    largest = max(variants, key=lambda v: sum(math.prod(i.shape) for i in v.inputs))
    try:
        known = find_effects(largest.graph, largest.inputs)
    except OpEffectsError:
        return True  # `find_candidates` will say why not
    return any(most_gain(r, known) > options.margin for r in find_regions(largest.graph, known, ()))


@dataclass(frozen=True)
class FoundRegions:
    """Candidates, `causes` why there are not more, and `excluded`, the ops of the split graph that no kernel can
    compute."""

    candidates: tuple[Candidate, ...]
    causes: tuple[str, ...]
    excluded: frozenset[int]


def find_candidates(
    variants: Sequence[Variant], options: Options, sketches: Sketches, excluded: Collection[int] | None = None
) -> FoundRegions:
    """Candidates of variants that share one graph.

    A region's pattern matches in all of these variants, so it counts only if each has a program for it. Regions that
    cannot save enough are left out. If no others are there, the best of them is tried, since a variant without a match
    scores as a failure. `excluded` are ops that no kernel could compute in a split graph of the same ops. Without it,
    the whole graph is lowered to find its library calls.
    """
    search = _Search(variants, options, sketches)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TorchInductor's advice is for those who compile with it
        return search.run(excluded)


class _Search:
    def __init__(self, variants: Sequence[Variant], options: Options, sketches: Sketches) -> None:
        self.split = options.split(variants)
        self.graph: Graph = self.split.graph
        self.variants = [replace(variant, graph=self.graph) for variant in variants]
        self.options, self.sketches = options, sketches
        self.causes: list[str] = []

    def run(self, known_excluded: Collection[int] | None) -> FoundRegions:
        try:
            known = [find_effects(v.graph, v.inputs) for v in self.variants]
            if known_excluded is None:
                excluded = self._library_calls()
                excluded |= self._not_for_host_code(known[0], excluded)
                excluded |= self._rounded_otherwise(known[0], excluded)
            else:
                excluded = set(known_excluded)
        except FAILURES as error:
            return FoundRegions((), (str(error),), frozenset())
        done: dict[tuple[int, ...], Candidate] = {}
        while True:
            found = self._promising(find_regions(self.graph, known[0], excluded, self.options.ways.joined), known)
            failed: set[int] = set()
            for region in found:
                if region.ops in done or self._out_of_time():
                    continue
                candidate = self._candidate(region, known)
                if isinstance(candidate, Candidate):
                    done[region.ops] = candidate
                else:
                    failed |= candidate
            excluded |= failed
            if not failed or self._out_of_time():
                kept = tuple(done[region.ops] for region in found if region.ops in done)
                return FoundRegions(kept, tuple(self.causes), frozenset(excluded))

    def _promising(self, found: Sequence[Region], known: Sequence[OpEffects]) -> list[Region]:
        """Regions that might save enough, the most promising first."""
        hopes = {r.ops: fmean(most_gain(r, each) for each in known) for r in found}
        found = [r for r in found if not self.split.of_biases_alone(r, known[0], self.options.ways.split_linears)]
        ranked = sorted(found, key=lambda r: -hopes[r.ops])
        return [r for r in ranked if hopes[r.ops] > self.options.margin] or ranked[:1]

    def _out_of_time(self) -> bool:
        late = time.thread_time() > self.options.deadline
        if late and _LATE not in self.causes:
            self.causes.append(_LATE)
        return late

    def _library_calls(self) -> set[int]:
        called = set(self.sketches.library_calls(self.graph, self.variants[0].inputs))
        if called:
            self.causes.append("library calls: " + ", ".join(self._names(called)))
        return called

    def _not_for_host_code(self, known: OpEffects, excluded: Collection[int]) -> set[int]:
        """Ops that a pass cannot compute for inputs of which it has no kernels."""
        found = without_library_call(self.graph, known) - set(excluded)
        if found:
            self.causes.append("no call that a pass may make: " + ", ".join(self._names(found)))
        return found

    def _rounded_otherwise(self, known: OpEffects, excluded: Collection[int]) -> set[int]:
        """Ops that `rounding` leaves to eager."""
        rounding = self.options.rounding
        if rounding is Rounding.ANY:
            return set()
        regions = find_regions(self.graph, known, excluded)
        ops = {op for region in regions if not self._rounds_as_eager(region, known) for op in region.ops}
        alone = {op: self._lowered_alone(op, known) for op in sorted(ops) if known.launches[op]}  # views round nothing
        confirms = self.options.confirms
        found = {op for op, m in alone.items() if isinstance(m, Sketch) and rounded(m, rounding, confirms) is None}
        if found:
            self.causes.append("left to eager, which may round otherwise: " + ", ".join(self._names(found)))
        return found

    def _rounds_as_eager(self, region: Region, known: OpEffects) -> bool:
        """Whether the region as a whole rounds as eager does. It is lowered in any case if it is worth a kernel."""
        try:
            whole = self.sketches.of(region.graph, inputs_of(region, known), self.options.ways.own_schedule)
        except FAILURES:
            return False
        return rounded(whole, self.options.rounding, self.options.confirms) is not None

    def _names(self, ops: Iterable[int]) -> list[str]:
        return list(dict.fromkeys(self.graph.op_sequence[op] for op in sorted(ops)))

    def _candidate(self, region: Region, known: Sequence[OpEffects]) -> Candidate | set[int]:
        """The region as a candidate, or the ops that it must do without."""
        cases: list[Case] = []
        gains: list[float] = []
        device: list[float] = []
        times: list[SureTimes] = []
        without = self.split.without_cost(region)
        joined, calls = self.split.joined(region)
        for each, whole in zip(known, self._known_whole(calls), strict=True):
            predicted, *others = self._layouts(region, each)
            spared = self._spared_copies(region, each)
            try:
                made, first = self._sketched(region, predicted, spared)
            except FAILURES as error:
                self.causes.append(str(error))
                return self._ops_at_fault(region, each)
            spared, sketches = {} if made is region.graph else spared, [first]
            for other in others:
                with suppress(*FAILURES):  # the region cannot have this layout: eager does not run on it either
                    sketches.append(self.sketches.of(made, other, self.options.ways.own_schedule))
            rounding, confirms = self.options.rounding, self.options.confirms
            exact = [one for s in sketches if (one := rounded(s, rounding, confirms)) is not None]
            if len(exact) < len(sketches):
                self.causes.append("a kernel that would add otherwise than eager")
                return self._ops_that_add(region, each)
            given = () if whole is None else tuple(map(tuple, self._layouts(joined, whole)))
            sized = cache(partial(self._of_any_size, region, predicted, sketches[0], spared))
            cases += [Case(joined.graph, one, region.graph, calls, given, sized) for one in exact]
            program = exact[0].program(LaunchLimits())
            copying = copying_us(each, {region.outputs[place]: count for place, count in spared.items()})
            gains.append(gain(region, each, program) + sum(copying) - EAGER_LAUNCH * without)
            device.append(device_gain(region, each, program) + copying[1] - STEP * without)
            times.append(SureTimes.of(region, each, program, copying[1]))
        if max(fmean(gains), fmean(device)) < 0 and (slow := self._slow_alone(region, known[0])):
            self.causes.append(f"left to eager, whose kernels are faster: {', '.join(self._names(slow))}")
            return slow
        if fmean(gains) <= self.options.margin:
            names, one = ", ".join(self._names(region.ops)), cases[0].sketch
            counts = f"{one.replaced} launches in eager, {len(one.bodies)} fused"
            self.causes.append(f"{names}: {counts}, which saves {fmean(gains):.0f} us")
        return Candidate(joined, pattern_source(joined.graph), tuple(cases), fmean(gains), tuple(times), fmean(device))

    def _slow_alone(self, region: Region, known: OpEffects) -> set[int]:
        """Ops whose kernels, each alone, are slower than eager's; none if the region has no launches but theirs."""
        slow, launching = set(), {op for op in region.ops if known.launches[op]}
        for op in launching:
            made, alone = self._lowered_alone(op, known), region_of(self.graph, self._with_makers(op, known))
            made = rounded(made, self.options.rounding, self.options.confirms) if isinstance(made, Sketch) else None
            if made is not None and device_gain(alone, known, made.program(LaunchLimits())) < -STEP:
                slow.add(op)
        return slow if slow < launching else set()

    def _spared_copies(self, region: Region, known: OpEffects) -> dict[int, int]:
        """The outputs of the region, by their places, that the kernels write contiguously, and how many copies that
        spares. None is in the memory of another one."""
        storages = [known.values[value].storage for value in region.outputs]
        counts = (copies(self.graph, known, value) for value in region.outputs)
        return {place: n for place, n in enumerate(counts) if n and storages.count(storages[place]) == 1}

    def _sketched(self, region: Region, inputs: Sequence[Input], spared: Collection[int]) -> tuple[Graph, Sketch]:
        """The region's sketch and the graph that it is of: with the outputs at the places `spared` contiguous, unless
        that takes further kernels. Raises one of `FAILURES`."""
        plain = self.sketches.of(region.graph, inputs, self.options.ways.own_schedule)
        if spared:
            graph = with_contiguous(region.graph, tuple(spared))
            with suppress(*FAILURES):
                found = self.sketches.of(graph, inputs, self.options.ways.own_schedule)
                if len(found.bodies) <= len(plain.bodies):
                    return graph, found
        return region.graph, plain

    def _of_any_size(self, region: Region, inputs: Sequence[Input], sketch: Sketch, spared: Collection[int]) -> Layouts:
        def lower(graph: Graph, others: Sequence[Input]) -> Sketch | None:
            with suppress(*FAILURES):  # eager does not run the graph on another shape either
                return self.sketches.of(graph, others, self.options.ways.own_schedule)
            return None

        if spared:  # the sketch is of another graph
            return Layouts.NONE
        return layouts_of_any_size(region.graph, find_effects(region.graph, inputs), sketch, lower)

    def _known_whole(self, calls: Graph | None) -> list[OpEffects | None]:
        """The effects of each variant's graph as it was, if a region makes these calls ahead of its kernels."""
        whole = self.split.whole
        return [None if calls is None else find_effects(whole, variant.inputs) for variant in self.variants]

    def _layouts(self, region: Region, known: OpEffects) -> list[list[Input]]:
        """The layouts of the region's inputs to write plans for; the predicted one comes first.

        Which strides a convolution or an attention gives its result depends on the backend. The prediction is the CPU's
        choice, and a GPU's library may choose the other layout. Up to `MIXED` such inputs are mixed in every way; of
        more, all have the other layout or none.
        """
        predicted = inputs_of(region, known)
        own = {layout.storage for layout in known.values[: self.graph.inputs] if isinstance(layout, TensorLayout)}
        other = [
            one if known.values[number].storage in own else self._other_layout(one)
            for one, number in zip(predicted, region.inputs, strict=True)
        ]
        if sum(a != b for a, b in zip(predicted, other, strict=True)) > MIXED:
            return [predicted, other]
        choices = [[a] if a == b else [a, b] for a, b in zip(predicted, other, strict=True)]
        return [list(mixture) for mixture in product(*choices)]

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

    def _ops_at_fault(self, region: Region, known: OpEffects) -> set[int]:
        """The ops that a region which cannot be lowered must do without: those that cannot be lowered alone.

        If there are none, its factories, such as `torch.arange`: their values are loaded then. If it has none, the
        first op that cannot be lowered together with those ahead of it.
        """
        ops = region.ops if len(region.ops) > 1 else ()
        bad = {op for op in ops if isinstance(self._lowered_alone(op, known), Exception)}
        return bad or self._factories(region) or self._first_at_fault(region, known)

    def _first_at_fault(self, region: Region, known: OpEffects) -> set[int]:
        """The first op of a region that cannot be lowered together with those ahead of it."""
        good, bad = 1, len(region.ops)  # numbers of leading ops; one alone can be lowered
        while bad - good > 1 and not self._out_of_time():
            tried = (good + bad) // 2
            fails = isinstance(self._lowered(region.ops[:tried], known), Exception)
            good, bad = (good, tried) if fails else (tried, bad)
        return {region.ops[bad - 1]}

    def _ops_that_add(self, region: Region, known: OpEffects) -> set[int]:
        """The ops that a region which adds otherwise than eager must do without: those that add along a dimension.

        If none does so alone, its ops with several results. If it has none, all ops.
        """
        alone = {op: self._lowered_alone(op, known) for op in region.ops}
        found = {op for op, m in alone.items() if isinstance(m, Sketch) and rounded(m, Rounding.SUMS) is None}
        tuples = {op for op in region.ops if isinstance(known.values[self.graph.inputs + op], tuple)}
        return found or tuples or set(region.ops)

    def _lowered_alone(self, op: int, known: OpEffects) -> Sketch | Exception | None:
        """The sketch of an op alone, or the one of `FAILURES` that lowering raises; None if its values are no tensors.

        An op that takes a tuple apart is lowered together with the op that makes the tuple.
        """
        return self._lowered(self._with_makers(op, known), known)

    def _lowered(self, ops: Collection[int], known: OpEffects) -> Sketch | Exception | None:
        """The sketch of these ops, or the one of `FAILURES` that lowering raises; None if there is no region of them
        between tensors."""
        region = region_of(self.graph, ops)
        if region is None or not all(isinstance(known.values[n], TensorLayout) for n in region.inputs + region.outputs):
            return None
        try:
            return self.sketches.of(region.graph, inputs_of(region, known), self.options.ways.own_schedule)
        except FAILURES as error:
            return error

    def _factories(self, region: Region) -> set[int]:
        ops = (self.graph.ops[op] for op in region.ops)
        return {number for number, op in zip(region.ops, ops, strict=True) if not list(refs((op.args, op.kwargs)))}

    def _with_makers(self, op: int, known: OpEffects) -> set[int]:
        ops, new = {op}, {op}
        while new:
            read = {r.index for n in new for r in refs((self.graph.ops[n].args, self.graph.ops[n].kwargs))}
            new = {n - self.graph.inputs for n in read if n >= self.graph.inputs and isinstance(known.values[n], tuple)}
            new -= ops
            ops |= new
        return ops

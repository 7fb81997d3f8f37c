"""A whole graph as one replacement: library calls that stay, kernels between them, all replayed as a CUDA graph.

A task of library calls is bound by the host: each call costs it more than the device. What a region's kernels save is
little there. `passbench.launch.captured` replays all of a graph's launches at once, whichever they are.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from agent.distill.branches import (
    WORTH_BRANCHES,
    WholeSteps,
    branched,
    is_atomic,
    is_divided,
    op_cost,
    region_cost,
    spread_out,
)
from agent.distill.cost import BANDWIDTH, EAGER_LAUNCH, EAGER_VIEW, SURE_SHARE, bytes_of
from agent.distill.eager.op_effects import OpEffects, OpEffectsError, TensorLayout, find_effects
from agent.distill.kernels.index_expressions import Unsupported
from agent.distill.other_inputs.library_calls import LibraryWriter, freed, host_waits, without_library_call
from agent.distill.other_inputs.written_for import LARGER, asks, table
from agent.distill.regions import Region, dependencies, region_of
from agent.distill.source.pattern_source import function_name, pattern_source, short_names
from storage.graph.record import Graph, Ref, map_refs, refs
from storage.graph.render import value_name
from storage.records import Input, Variant

WORTH = 2
"""With fewer launches, copying inputs and outputs costs more than the launches. On an H200 five fusible samples were
captured where this was 1 and not where it was 3: they were 1.2 to 2.5 times as fast end to end. Five sole_op samples
were so, too, at 0.85 to 1.07 times the speed (`benchmarks/agent/h100_graph_launches`)."""
GRAPH_LAUNCH = 4.0
"""Microseconds of the device that a launch costs less in a CUDA graph, which is seldom idle and may have branches: 2 to
5 on an H100, of small and large inputs alike, if copies move `SURE_SHARE` of the bandwidth
(`benchmarks/agent/h100_all_variants`)."""

_WITH_NUMBERS = frozenset(("masked_fill", "masked_fill_", *map("operator.{}".format, ("add", "sub", "mul", "truediv"))))
"""Ops that take a number on the host beside a tensor on the device, and wait for nothing: what fills by a mask takes
its item."""


@dataclass(frozen=True, eq=False)
class WholeGraph:
    """A graph that can be one replacement. `known` are the effects of its ops in one variant, `shapes` all's inputs.

    `region` has all its ops but those that make a returned view of an input: a replay would return a copy. `replaced`
    is the graph that the pattern is of, where that is another one of the same inputs and outputs.
    """

    graph: Graph
    region: Region
    known: OpEffects
    replaced: "WholeGraph | None" = None
    shapes: tuple[tuple[Input, ...], ...] = ()

    @property
    def matched(self) -> "WholeGraph":
        """The graph that the pattern is of."""
        return self.replaced or self

    @property
    def pattern(self) -> str:
        """The function `pattern` for the whole graph."""
        return pattern_source(self.matched.region.graph)

    def all_inputs(self) -> list[tuple[Input, ...]]:
        """The inputs of `region` in each variant."""
        return [self._inputs(find_effects(self.graph, shape)) for shape in self.shapes]

    @cached_property
    def larger(self) -> list[tuple[Input, ...]]:
        """Those of them that take longer to copy for a CUDA graph than the graph saves."""
        known = [find_effects(self.graph, shape) for shape in self.shapes]
        return [self._inputs(each) for each in known if not self._pays_as_graph(each)]

    def _inputs(self, known: OpEffects) -> tuple[Input, ...]:
        return tuple(known.values[value].as_input(f"in_{n}") for n, value in enumerate(self.region.inputs))

    def _pays_as_graph(self, known: OpEffects) -> bool:
        """Whether a CUDA graph saves the host or the device more than it takes to copy all inputs and results.

        Where the device is what a call waits for, the host's work costs nothing.
        """
        launches = sum(known.launches)
        host = EAGER_LAUNCH * launches + EAGER_VIEW * known.launches.count(0)
        device = sum(op_cost(self.graph, known, number) for number in range(len(self.graph.ops)))
        copied = bytes_of(known, (*self.region.inputs, *self.region.outputs))
        return 2 * copied / (SURE_SHARE * BANDWIDTH) <= max(GRAPH_LAUNCH * launches, host - device)


def whole_graph(variants: Sequence[Variant]) -> WholeGraph | None:
    """The graph of these variants as one replacement; None if it cannot be one, or eager launches nothing.

    It cannot if it draws random numbers, changes its inputs, computes on the host, waits for the device, or calls what
    no pass may call.
    """
    graph = variants[0].graph
    try:
        known, *_ = [find_effects(graph, variant.inputs) for variant in variants]
    except OpEffectsError:
        return None
    region = region_of(graph, _without_returned_views(graph, known))
    if region is None or not region.inputs or not any(known.launches) or not _only_numbers_on_host(graph, known):
        return None
    boundary = [known.values[number] for number in region.inputs + region.outputs]
    if not all(isinstance(value, TensorLayout) for value in boundary):
        return None
    given = {known.values[number].storage for number in region.inputs}
    kept = given & {known.values[number].storage for number in region.outputs}
    if kept or given & set().union(*known.writes) or host_waits(graph, known) or without_library_call(graph, known):
        return None
    whole = WholeGraph(graph, region, known, shapes=tuple(variant.inputs for variant in variants))
    try:
        steps(whole, {})
    except Unsupported:
        return None
    return whole


def _only_numbers_on_host(graph: Graph, known: OpEffects) -> bool:
    """Whether what stays on the host are numbers, such as `torch.tensor(64)`, that only `_WITH_NUMBERS` read on the
    device: a launch has these among its parameters. Tensors without elements, such as the `torch.empty(0)` that
    attention gets in place of weights, are in no one's way."""
    numbers = {number for number in known.on_host if not _is_empty(known.values[number])}
    if not all(isinstance(known.values[n], TensorLayout) and not known.values[n].shape for n in numbers):
        return False
    used = (
        op
        for number, op in enumerate(graph.ops, graph.inputs)
        if number not in known.on_host and numbers & {ref.index for ref in refs((op.args, op.kwargs))}
    )
    return all(op.target in _WITH_NUMBERS for op in used) and not known.on_host & {r.index for r in refs(graph.output)}


def _is_empty(value: Any) -> bool:
    return isinstance(value, TensorLayout) and 0 in value.shape


def whole_graph_instead(variants: Sequence[Variant], instead: Graph) -> WholeGraph | None:
    """As `whole_graph`, but computed by `instead`, which has the same inputs and returns the same; None if either
    cannot be one replacement."""
    matched, computed = (whole_graph([replace(v, graph=g) for v in variants]) for g in (variants[0].graph, instead))
    if matched is None or computed is None:
        return None
    one, other = (
        ([_made(each.graph, n) for n in each.region.inputs], [_place(each, n) for n in each.region.outputs])
        for each in (matched, computed)
    )
    return replace(computed, replaced=matched) if one == other else None


def _made(graph: Graph, number: int) -> Any:
    """Which input a value is, or how it is made of inputs: the same in graphs whose ops have other numbers."""
    if number < graph.inputs:
        return Ref(number)
    op = graph.ops[number - graph.inputs]
    return op.kind, op.target, map_refs((op.args, op.kwargs), lambda ref: _made(graph, ref.index))


def _place(whole: WholeGraph, number: int) -> list[int]:
    """Where among what the graph returns a value is."""
    return [place for place, ref in enumerate(refs(whole.graph.output)) if ref.index == number]


def _without_returned_views(graph: Graph, known: OpEffects) -> set[int]:
    """All ops but those that make a returned view of an input, written to or not, and the views that these are of.

    What else these need stays, unless a further op needs them: then they would come both before the others and behind.
    Where a tuple of views is left out, so is whatever takes it apart: only tensors are handed over.
    """
    given = {layout.storage for layout in known.values[: graph.inputs] if isinstance(layout, TensorLayout)}
    before, ops = dependencies(graph, known), set(range(len(graph.ops)))
    returned = {ref.index - graph.inputs for ref in refs(graph.output) if ref.index >= graph.inputs}

    def is_of_input(op: int) -> bool:
        made = known.values[graph.inputs + op]
        return isinstance(made, TensorLayout) and made.storage in given

    left = _with_needed(filter(is_of_input, returned), before, is_of_input)
    behind: set[int] = set()
    for op in range(len(graph.ops)):
        if before[op] & (behind if op not in left else behind | (ops - left)):
            behind.add(op)
    if not behind <= left:
        left = _with_needed(left, before, lambda op: True)
    tuples = {op for op in left if isinstance(known.values[graph.inputs + op], tuple)}
    left |= {op for op in ops - left if is_of_input(op) and before[op] & tuples and before[op] <= left}
    return ops - left


def _with_needed(ops: Iterable[int], before: Sequence[set[int]], wanted: Callable[[int], bool]) -> set[int]:
    """The ops and those that they need, through others of these, which are `wanted`."""
    found: set[int] = set()
    new = list(ops)
    while new:
        op = new.pop()
        if op not in found:
            found.add(op)
            new.extend(filter(wanted, before[op]))
    return found


def whole_source(
    whole: WholeGraph, parts: Sequence[tuple[str, Region]], family: str, branches: bool = False, captured: bool = True
) -> str:
    """The source of the module that replaces the whole graph.

    `parts` are regions with the modules whose wrappers compute them; regions with one pattern have one module. With
    `branches`, what needs nothing of each other is side by side in the CUDA graph where that may pay. Not `captured`,
    it makes its calls one after another, and so it does for what is `larger`. Where these are other calls than eager's,
    all inputs but those of the variants get eager's. A region with ops that the replacement leaves out is computed by
    calls. Raises Unsupported if the calls cannot be put in an order.
    """
    parts = [(module, region) for module, region in parts if set(region.ops) <= set(whole.region.ops)]
    larger = whole.larger if captured else []
    captured = captured and set(larger) != set(whole.all_inputs())
    regions = {f"{module} {number}": region for number, (module, region) in enumerate(parts)}
    names = {value: value_name(value, whole.graph.inputs) for value in whole.region.inputs}
    given = ", ".join(names.values())
    own = ", ".join(value_name(n, len(whole.region.inputs)) for n in range(len(whole.region.inputs)))
    comma = "," if len(names) == 1 else ""
    found = in_branches(whole, regions) if branches and captured else None
    functions, lines = found or ([], steps(whole, regions))
    used = ["branch"] * bool(functions) + ["captured"] * captured
    asked = []
    if whole.replaced is not None or (functions and is_divided(whole.graph)):
        library = "".join(f"    {line}\n" for line in steps(whole.matched, {}))
        asked = [f'def library({given}):\n    """The calls that eager makes."""\n{library}', table(whole.all_inputs())]
        lines = [f"if {asks(given)} is None:", f"    return library({given})", *lines]
    if asked or (captured and larger):
        used = sorted([*used, "PlanTable", "plan_for"])
    body = "".join(f"    {line}\n" for line in lines)
    launching = f"\nfrom passbench.launch import {', '.join(used)}\n" if used else ""
    modules = dict(parts)
    imported = [f"from {module} import {_imported(module, modules[module])}" for module in sorted(modules)]
    function = "whole_" + "_".join(short_names(whole.region.graph))
    kernels = f", {len(regions)} of its parts in kernels" if regions else ""
    how = "a CUDA graph" if captured else "calls"
    wrapped = f"@torch.fx.wrap\ndef {function}({given}):\n{body}"
    blocks = [
        f'"""{", ".join(short_names(whole.region.graph, 12))} as {how}{kernels}.\n\n'
        f'Written by distill for family {family or "unnamed"}.\n"""\n',
        "import torch\n" + "".join(f"{line}\n" for line in imported) + launching,
        whole.pattern,
        f"def replacement_args({own}):\n    return ({own}{comma})\n",
        *functions,
        *asked,
        *(_captured_steps(function, given, body, larger) if captured else [wrapped]),
        f"def replacement_func():\n    return {function}\n",
    ]
    return blocks[0] + "\n" + "\n\n".join(blocks[1:])


def _captured_steps(function: str, given: str, body: str, larger: Sequence[tuple[Input, ...]]) -> list[str]:
    """The function `steps` of this body, and the wrapper that replays it, but calls it for inputs like the `larger`."""
    first, tables = "", []
    if larger:
        first = f"    if {asks(given, LARGER)} is not None:\n        return steps({given})\n"
        tables = [table(larger, LARGER)]
    wrapper = f"@torch.fx.wrap\ndef {function}({given}):\n{first}    return captured(steps, {given})\n"
    return [f"def steps({given}):\n{body}", *tables, wrapper]


def _imported(module: str, region: Region) -> str:
    function, alias = function_name(region.graph), _called(module)
    return function if function == alias else f"{function} as {alias}"


def _called(step: str) -> str:
    """What the wrapper that computes a step is called in the module of the whole graph. The step has the name of the
    wrapper's module, and behind it the number of the region where a module has several."""
    return step.partition(" ")[0].replace("fuse_", "fused_", 1)


def steps(whole: WholeGraph, regions: Mapping[str, Region]) -> list[str]:
    """The body of the function that computes the graph; `regions` are computed by functions of these names. What
    follows a space in a name is no part of the function's.

    Raises Unsupported where there is none.
    """
    lines = _step_lines(whole, regions, _in_order(_needs(whole, regions)))
    return freed([*(line for written in lines.values() for line in written), f"return {_returned(whole)}"])


def in_branches(whole: WholeGraph, regions: Mapping[str, Region]) -> tuple[list[str], list[str]] | None:
    """The functions of all branches, and the body of the function that calls them; None where they would not pay,
    or cannot be.

    Nothing may write in place: the order of reads and writes is that of `steps`.
    """
    if any(whole.known.writes) or whole.known.on_host:
        return None
    needs = _needs(whole, regions)
    order = _in_order(needs)
    costs = {
        step: op_cost(whole.graph, whole.known, step)
        if isinstance(step, int)
        else region_cost(regions[step], whole.known)
        for step in order
    }
    alone = {step for step in order if isinstance(step, int) and is_atomic(whole.graph.ops[step])}
    found = WholeSteps(_step_lines(whole, regions, order), needs, costs, alone)
    found.divide(whole.graph)
    units, before = found.units()
    units, share = spread_out(units)
    if share > WORTH_BRANCHES:
        return None
    tuples = {value_name(n, whole.graph.inputs) for n, v in enumerate(whole.known.values) if isinstance(v, tuple)}
    return branched(units, before, _returned(whole), tuples)


def _returned(whole: WholeGraph) -> str:
    return ", ".join(value_name(n, whole.graph.inputs) for n in whole.region.outputs)


def _step_lines(
    whole: WholeGraph, regions: Mapping[str, Region], order: Sequence[int | str]
) -> dict[int | str, list[str]]:
    """The lines of each step, in order."""
    graph = whole.graph
    writer = LibraryWriter(graph, whole.known, whole.region.inputs[0])
    lines: dict[int | str, list[str]] = {}
    for step in order:
        begin = len(writer.lines)
        if isinstance(step, int):
            writer.add(step)
        else:
            region = regions[step]
            outputs = ", ".join(value_name(n, graph.inputs) for n in region.outputs)
            inputs = ", ".join(value_name(n, graph.inputs) for n in region.inputs)
            writer.lines.append(f"{outputs} = {_called(step)}({inputs})")
        lines[step] = writer.lines[begin:]
    if writer.writes:
        raise Unsupported("writes to memory that is not the graph's own")
    return lines


def _needs(whole: WholeGraph, regions: Mapping[str, Region]) -> dict[int | str, set[int | str]]:
    """Ops outside of the regions and names of regions, with those that each needs, by their first op."""
    member = {op: name for name, region in regions.items() for op in region.ops}
    needs: dict[int | str, set[int | str]] = {}
    inside = set(whole.region.ops)
    for number, before in enumerate(dependencies(whole.graph, whole.known)):
        if number in inside:
            step = member.get(number, number)
            needs.setdefault(step, set()).update(member.get(n, n) for n in before & inside)
    return {step: before - {step} for step, before in needs.items()}


def _in_order(needs: Mapping[int | str, set[int | str]]) -> list[int | str]:
    """The steps such that each comes behind what it needs, otherwise in the order in which they are given."""
    order: list[int | str] = []
    left = dict(needs)
    while left:
        chosen = next((step for step, before in left.items() if not before & left.keys()), None)
        if chosen is None:
            raise Unsupported("regions that need each other's results")
        order.append(chosen)
        del left[chosen]
    return order

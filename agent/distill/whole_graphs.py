"""A whole graph as one replacement: library calls that stay, kernels between them, all replayed as a CUDA graph.

A task of library calls is bound by the host: each call costs it more than the device. What a region's kernels save is
little there. `passbench.launch.captured` replays all of a graph's launches at once, whichever they are.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agent.distill.eager.op_effects import OpEffects, OpEffectsError, TensorLayout, find_effects
from agent.distill.kernels.index_expressions import Unsupported
from agent.distill.library_calls import LibraryWriter, without_library_call
from agent.distill.pass_source import function_name, pattern_source, short_names
from agent.distill.regions import Region, dependencies, region_of
from storage.graph.record import Graph
from storage.graph.render import value_name
from storage.records import Variant

WORTH = 3
"""With fewer launches, copying inputs and outputs costs more than the launches."""


@dataclass(frozen=True, eq=False)
class WholeGraph:
    """A graph that can be one replacement: `region` has all its ops, `known` are their effects in one variant."""

    graph: Graph
    region: Region
    known: OpEffects

    @property
    def pattern(self) -> str:
        """The function `pattern` for the whole graph."""
        return pattern_source(self.region.graph)


def whole_graph(variants: Sequence[Variant]) -> WholeGraph | None:
    """The graph of these variants as one replacement; None if it cannot be one, or eager launches too little.

    It cannot if it draws random numbers, changes its inputs or returns memory of theirs, computes on the host, or calls
    what no pass may call.
    """
    graph, inputs = variants[0].graph, variants[0].inputs
    try:
        known = find_effects(graph, inputs)
    except OpEffectsError:
        return None
    region = region_of(graph, range(len(graph.ops)))
    if region is None or not region.inputs or sum(known.launches) < WORTH or known.on_host:
        return None
    boundary = [known.values[number] for number in region.inputs + region.outputs]
    if not all(isinstance(value, TensorLayout) for value in boundary):
        return None
    given = {known.values[number].storage for number in region.inputs}
    kept = given & {known.values[number].storage for number in region.outputs}
    if kept or given & set().union(*known.writes) or without_library_call(graph, known):
        return None
    whole = WholeGraph(graph, region, known)
    try:
        _steps(whole, {})
    except Unsupported:
        return None
    return whole


def whole_source(whole: WholeGraph, regions: Mapping[str, Region], family: str) -> str:
    """The source of the module that replaces the whole graph.

    `regions` are computed by the wrappers of the modules by whose names they are given. Raises Unsupported if they
    cannot be put in an order.
    """
    names = {value: value_name(value, whole.graph.inputs) for value in whole.region.inputs}
    given = ", ".join(names.values())
    own = ", ".join(value_name(n, len(whole.region.inputs)) for n in range(len(whole.region.inputs)))
    comma = "," if len(names) == 1 else ""
    body = "".join(f"    {line}\n" for line in _steps(whole, regions))
    imported = [f"from {name} import {_imported(name, region)}" for name, region in sorted(regions.items())]
    function = "whole_" + "_".join(short_names(whole.region.graph))
    kernels = f", {len(regions)} of its parts in kernels" if regions else ""
    parts = [
        f'"""{", ".join(short_names(whole.region.graph, 12))} as a CUDA graph{kernels}.\n\n'
        f'Written by distill for family {family or "unnamed"}.\n"""\n',
        "import torch\n" + "".join(f"{line}\n" for line in imported) + "\nfrom passbench.launch import captured\n",
        whole.pattern,
        f"def replacement_args({own}):\n    return ({own}{comma})\n",
        f"def steps({given}):\n{body}",
        f"@torch.fx.wrap\ndef {function}({given}):\n    return captured(steps, {given})\n",
        f"def replacement_func():\n    return {function}\n",
    ]
    return parts[0] + "\n" + "\n\n".join(parts[1:])


def _imported(module: str, region: Region) -> str:
    function, alias = function_name(region.graph), _called(module)
    return function if function == alias else f"{function} as {alias}"


def _called(module: str) -> str:
    """What a region's wrapper is called in the module of the whole graph."""
    return module.replace("fuse_", "fused_", 1)


def _steps(whole: WholeGraph, regions: Mapping[str, Region]) -> list[str]:
    """The body of the function that computes the graph. Raises Unsupported where there is none."""
    graph = whole.graph
    writer = LibraryWriter(graph, whole.known, whole.region.inputs[0])
    for step in _ordered(whole, regions):
        if isinstance(step, int):
            writer.add(step)
        else:
            region = regions[step]
            outputs = ", ".join(value_name(n, graph.inputs) for n in region.outputs)
            inputs = ", ".join(value_name(n, graph.inputs) for n in region.inputs)
            writer.lines.append(f"{outputs} = {_called(step)}({inputs})")
    if writer.writes:
        raise Unsupported("writes to memory that is not the graph's own")
    returned = ", ".join(value_name(n, graph.inputs) for n in whole.region.outputs)
    return [*writer.lines, f"return {returned}"]


def _ordered(whole: WholeGraph, regions: Mapping[str, Region]) -> list[int | str]:
    """Ops outside of the regions and names of regions, such that each comes behind what it needs."""
    member = {op: name for name, region in regions.items() for op in region.ops}
    needs: dict[int | str, set[int | str]] = {}
    first: dict[int | str, int] = {}
    for number, before in enumerate(dependencies(whole.graph, whole.known)):
        step = member.get(number, number)
        first.setdefault(step, number)
        needs.setdefault(step, set()).update(member.get(n, n) for n in before)
    order: list[int | str] = []
    left = dict(needs)
    while left:
        ready = [step for step, before in left.items() if not (before - {step}) & left.keys()]
        if not ready:
            raise Unsupported("regions that need each other's results")
        chosen = min(ready, key=first.__getitem__)
        order.append(chosen)
        del left[chosen]
    return order

"""Source of a module that replaces a whole graph: its library calls and the kernels between them, as one CUDA graph."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from agent.distill.candidates import Candidate
from agent.distill.kernels.index_expressions import Unsupported
from agent.distill.lowered_regions import Sketches
from agent.distill.regions import Region, region_of
from agent.distill.source.pattern_source import pattern_source
from agent.distill.whole_graphs import WholeGraph, steps, whole_graph
from agent.readable.module_source import ReadableModule, RegionSource, free_name, region_source, replaced_by
from agent.readable.task_names import named_as_in_task
from storage.graph.record import Graph, Op, Ref, map_refs, op_name
from storage.graph.render import value_name
from storage.records import Variant

_FEWEST = 3
"""With fewer launches library calls stay as the task has them: who reads a pass learns its kernels."""


def whole_of(variants: Sequence[Variant], candidates: Sequence[Candidate]) -> WholeGraph | None:
    """The graph of these variants, if it is to be replaced as a whole; `candidates` are the regions of it that could
    become kernels.

    None where the graph has no library calls beside its regions, or cannot be replaced as a whole.
    """
    whole = whole_graph(variants)
    if whole is None:
        return None
    inside = {op for candidate in candidates for op in candidate.region.ops}
    if not any(count for op, count in enumerate(whole.known.launches) if op not in inside):
        return None
    return replace(whole, region=_in_order(whole))


def whole_module(
    whole: WholeGraph, candidates: Sequence[Candidate], sketches: Sketches, taken: Sequence[str] = ()
) -> ReadableModule | None:
    """The module for a graph of which these regions become kernels: all are readable.

    None where there are fewer launches than are worth a CUDA graph, and where the regions cannot be put in an order.
    """
    regions: dict[str, Region] = {}
    sources: dict[str, RegionSource] = {}
    for number, candidate in enumerate(sorted(candidates, key=lambda c: c.region.ops), 1):
        name = f"fused_{number}"
        regions[name] = candidate.region
        sources[name] = region_source(candidate.cases, sketches, name)
    inside = {op for region in regions.values() for op in region.ops}
    library = sum(count for op, count in enumerate(whole.known.launches) if op not in inside)
    launches = library + sum(source.launches for source in sources.values())
    if launches < _FEWEST:
        return None
    try:
        lines = steps(whole, regions)
    except Unsupported:
        return None
    ops = tuple(op_name(op) for op in whole.region.graph.ops)
    text = _source(whole, lines, regions, sources)
    return ReadableModule(free_name("fuse", taken), text, ops, sum(whole.known.launches), launches)


def _in_order(whole: WholeGraph) -> Region:
    """The whole graph's region with its inputs in the order in which the task has them."""
    region = region_of(whole.graph, whole.region.ops)
    inputs = sorted(region.inputs)
    new = {old: inputs.index(value) for old, value in enumerate(region.inputs)}

    def renumber(ref: Ref) -> Ref:
        return Ref(new.get(ref.index, ref.index))

    graph = region.graph
    ops = tuple(Op(o.kind, o.target, map_refs(o.args, renumber), map_refs(o.kwargs, renumber)) for o in graph.ops)
    output = tuple(renumber(ref) for ref in graph.output)
    return replace(region, inputs=tuple(inputs), graph=Graph(graph.inputs, ops, output))


def _source(
    whole: WholeGraph, lines: Sequence[str], regions: Mapping[str, Region], sources: Mapping[str, RegionSource]
) -> str:
    given = ", ".join(value_name(number, whole.graph.inputs) for number in whole.region.inputs)
    comma = "," if len(whole.region.inputs) == 1 else ""
    helpers = {name: text for source in sources.values() for name, text in source.helpers.items()}
    imports = "import torch\n"
    if sources:
        imports += "import triton\nimport triton.language as tl\n"
    used = "Launch, captured" if sources else "captured"
    return "\n\n".join(
        [
            f"{imports}\nfrom passbench.launch import {used}\n",
            named_as_in_task(pattern_source(whole.region.graph), whole.region),
            f"def replacement_args({given}):\n    return ({given}{comma})\n",
            *(helpers[name] for name in sorted(helpers)),
            *(
                named_as_in_task(text, regions[name])
                for name, source in sources.items()
                for text in (*source.kernels, source.host)
            ),
            f"def steps({given}):\n" + "".join(f"    {line}\n" for line in lines),
            f"@torch.fx.wrap\ndef fused({given}):\n    return captured(steps, {given})\n",
            replaced_by("fused"),
        ]
    )

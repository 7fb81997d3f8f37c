"""Passes that repeat eager's own calls: the other side of an A/A of passes.

A/A of eager runs both sides in processes that see no pass. What a pass's process has beside that (the observation, the
checks of its outputs' memory, a function around the calls) shows only where the candidate is a pass. One that makes
the same library calls as eager should measure 1.
"""

import json
from pathlib import Path

from agent.distill.eager.op_effects import OpEffectsError, find_effects
from agent.distill.kernels.index_expressions import Unsupported
from agent.distill.other_inputs.library_calls import library_body
from agent.distill.regions import region_of
from agent.distill.source.pattern_source import pattern_source
from passbench.contract import NAMES_FILE, PassFiles, write_pass_dir
from passbench.policy.check import check_files
from storage.graph.render import value_name
from storage.records import Sample, Variant


def write(sample: Sample, directory: Path) -> bool:
    """Write a pass for all variants of the sample into `directory`, which does not exist yet; a module for each graph.

    False, and nothing is written, if a pass may not make one of eager's calls or would need a kernel of its own for it,
    as a write to an input does.
    """
    sources = {_source(variant) for variant in sample.variants}
    if None in sources:
        return False
    modules = {f"repeat_{number}": source for number, source in enumerate(sorted(sources))}
    files = {f"{name}.py": source for name, source in modules.items()} | {NAMES_FILE: json.dumps(list(modules))}
    if check_files(PassFiles(tuple(modules), files, ())):
        return False
    write_pass_dir(files, directory)
    return True


def _source(variant: Variant) -> str | None:
    """The module for a variant's whole graph; None if there is none."""
    region = region_of(variant.graph, range(len(variant.graph.ops)))
    if region is None or not region.inputs:
        return None
    graph = region.graph
    try:
        body = library_body(graph, find_effects(graph, [variant.inputs[number] for number in region.inputs]))
    except (OpEffectsError, Unsupported):
        return None
    if body.writes:
        return None
    given = ", ".join(value_name(number, graph.inputs) for number in range(graph.inputs))
    parts = [
        "import torch\n",
        pattern_source(graph),
        f"def replacement_args({given}):\n    return ({given},)\n",
        f"@torch.fx.wrap\ndef repeated({given}):\n" + "".join(f"    {line}\n" for line in body.lines),
        "def replacement_func():\n    return repeated\n",
    ]
    return "\n\n".join(parts)

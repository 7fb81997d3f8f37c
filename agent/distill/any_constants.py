"""A replacement for graphs of constants that no variant has: its pattern takes the constants as parameters.

A family has graphs that differ in their constants, such as the sizes of a view.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import torch

from agent.distill.eager.op_effects import OpEffectsError, TensorLayout, find_effects
from agent.distill.kernels.index_expressions import Unsupported
from agent.distill.other_inputs.library_calls import WRITE_INTO, library_body
from agent.distill.regions import region_of
from agent.distill.source.pattern_source import pattern_source, short_names
from agent.distill.whole_graphs import whole_graph
from passbench.contract import ContractError, PassFiles
from passbench.matching.trace_pattern import trace_pattern
from passbench.policy.check import check_files
from storage.graph.record import Graph, Op
from storage.graph.render import value_name
from storage.records import Variant


@dataclass(frozen=True)
class _Parameter:
    """A constant of a graph that is a parameter of the pattern, under this name in its source."""

    name: str

    def __repr__(self) -> str:
        return self.name


def of_any_constants(variants: Sequence[Variant], family: str, captured: bool = False) -> str | None:
    """The source of a module that computes graphs like that of the variants, of any constants, by library calls.

    `captured`: as a CUDA graph, where `whole_graph` says that the variants' can be one. None if there are no constants,
    or a call of the graph is not for a pass.
    """
    graph = variants[0].graph
    region = region_of(graph, range(len(graph.ops)))
    if region is None or not region.inputs:
        return None
    given = [variants[0].inputs[number] for number in region.inputs]
    general, parameters = _of_parameters(region.graph)
    if not parameters:
        return None
    try:
        known = find_effects(region.graph, given)
        if not all(isinstance(known.values[ref.index], TensorLayout) for ref in general.output):
            return None
        body = library_body(general, known)
    except (OpEffectsError, Unsupported):
        return None
    names = [value_name(n, general.inputs) for n in range(general.inputs)] + [p.name for p in parameters]
    if captured:
        whole = whole_graph(variants)
        captured = whole is not None and len(whole.region.ops) == len(graph.ops)
    source = _any_source(general, names, body.lines, body.writes, captured, family)
    return source if _is_allowed(source, f"def pattern({', '.join(names)}):\n{_pattern_body(general)}") else None


def structure(graph: Graph) -> str:
    """What graphs have in common that `of_any_constants` makes one module of."""
    return repr(_of_parameters(graph)[0])


def _of_parameters(graph: Graph) -> tuple[Graph, list[_Parameter]]:
    parameters: list[_Parameter] = []
    return replace(graph, ops=tuple(_parametrised(op, parameters) for op in graph.ops)), parameters


def _parametrised(op: Op, parameters: list[_Parameter]) -> Op:
    """The op with its numbers and dtypes as parameters. Switches stay what they are, and zeros where one says that the
    op draws no random numbers."""
    random = "dropout" in op.target or "attention" in op.target

    def change(value: Any) -> Any:
        if isinstance(value, tuple | list):
            return type(value)(map(change, value))
        if isinstance(value, slice):
            return slice(change(value.start), change(value.stop), change(value.step))
        if isinstance(value, dict):
            return {key: change(item) for key, item in value.items()}
        if type(value) in (int, float, torch.dtype) and not (random and value == 0):
            parameters.append(_Parameter(f"number_{len(parameters)}"))
            return parameters[-1]
        return value

    return replace(op, args=change(op.args), kwargs=change(op.kwargs))


def _any_source(
    graph: Graph, names: Sequence[str], lines: Sequence[str], writes: bool, captured: bool, family: str
) -> str:
    given = ", ".join(names)
    body = "".join(f"    {line}\n" for line in lines)
    function = "any_" + "_".join(short_names(graph))
    how = "import torch\n"
    if writes:
        how += "import triton\nimport triton.language as tl\n"
    if captured or writes:
        used = [name for name, needed in (("Launch", writes), ("captured", captured)) if needed]
        how += f"\nfrom passbench.launch import {', '.join(used)}\n"
    calls = (
        [
            f"def steps({given}):\n{body}",
            f"@torch.fx.wrap\ndef {function}({given}):\n    return captured(steps, {given})\n",
        ]
        if captured
        else [f"@torch.fx.wrap\ndef {function}({given}):\n{body}"]
    )
    parts = [
        f'"""{", ".join(short_names(graph, 12))} of any constants, by library calls.\n\n'
        f'Written by distill for family {family or "unnamed"}.\n"""\n',
        how,
        f"def pattern({given}):\n{_pattern_body(graph)}",
        f"def replacement_args({given}):\n    return ({given},)\n",
        *([WRITE_INTO.lstrip("\n")] if writes else ()),
        *calls,
        f"def replacement_func():\n    return {function}\n",
    ]
    return parts[0] + "\n" + "\n\n".join(parts[1:])


def _pattern_body(graph: Graph) -> str:
    return pattern_source(graph).partition("\n")[2]


@lru_cache(maxsize=1000)
def _is_allowed(source: str, pattern: str) -> bool:
    """Whether PassBench takes the module: its pattern can be traced, and the policy finds nothing.

    The latest answers are kept: an author writes the same module for each way of rounding.
    """
    names: dict[str, Any] = {"torch": torch}
    exec(pattern, names)
    try:
        trace_pattern(names["pattern"], "any_constants")
    except ContractError:
        return False
    return not check_files(PassFiles(("rule",), {"rule.py": source}, ()))

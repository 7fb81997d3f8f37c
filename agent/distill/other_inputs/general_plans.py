"""Plans for inputs that are no variant's, whether a region's kernel goes over elements (`any_size.py`) or over rows
(`any_rows.py`)."""

from collections.abc import Sequence

from agent.distill.eager.op_effects import OpEffects
from agent.distill.kernels.host_program import Sketch
from agent.distill.kernels.launch_configs import LaunchLimits
from agent.distill.other_inputs import any_rows, any_size
from agent.distill.other_inputs.any_rows import AnyRows
from agent.distill.other_inputs.any_size import AnySize
from agent.distill.other_inputs.kept_plans import Called, Layouts, Lower, keep_places
from agent.distill.rounding import Confirms
from storage.graph.record import Graph

General = AnySize | AnyRows
"""The kernels of a region for inputs of other shapes than a variant's."""


def general(sketch: Sketch, limits: LaunchLimits, layouts: Layouts) -> General | None:
    """The sketch's kernels for tensors of other shapes in such layouts; None if it has none."""
    return any_size.any_size(sketch, limits, layouts) or any_rows.any_rows(sketch, limits)


def layouts_of_any_size(graph: Graph, known: OpEffects, sketch: Sketch, lower: Lower) -> Layouts:
    """The layouts in which tensors of other shapes have the region's kernel. `known` are the effects of its ops in the
    variant of `sketch`."""
    if not keep_places(graph, known):
        return Layouts.NONE
    if any_rows.is_for_all_rows(graph, sketch, lower):
        return Layouts.CONTIGUOUS
    return any_size.layouts_of_all_sizes(graph, sketch, lower)


def alike(found: Sequence[General]) -> list[General]:
    """The same, if all differ in their dtypes and shapes alone; else none."""
    texts = [(one.key, [kernel.text for kernel in one.kernels]) for one in found]
    by_key = dict(texts)
    same = all(text == by_key[key] for key, text in texts)
    return list(found) if same and len({(type(one), one.form) for one in found}) == 1 else []


def confirmed(found: Sequence[General], confirms: Confirms) -> list[General]:
    """The same, those of rows for the numbers of rows for which `confirms` says that eager adds in their orders."""
    kept = (one.confirmed(confirms) if isinstance(one, AnyRows) else one for one in found)
    return [one for one in kept if one is not None]


def plans_source(found: Sequence[General], called: Called, limits: LaunchLimits) -> str:
    """The functions that make the plan of `alike` kernels for inputs of a new shape: `of_any_size` keeps it."""
    if isinstance(found[0], AnyRows):
        return any_rows.plans_source(found, called)
    return any_size.plans_source(found, called, limits)

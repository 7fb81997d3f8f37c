"""Kernels for any size in the floating dtypes that a sample has no variant in: `new_plan` takes these, too.

They are lowered once, for the pass that is handed in, and have eager's bits wherever a kernel can have them: nothing
is measured in these dtypes. A region of one floating dtype gets the two others. One of a half type beside single
precision, such as a norm whose weights stay in it, gets the other half type.
"""

from collections.abc import Sequence

import torch

from agent.distill.kernels.launch_configs import LaunchLimits
from agent.distill.kernels.value_graph import HALF
from agent.distill.other_inputs.general_plans import General, alike, general
from agent.distill.other_inputs.kept_plans import Lower
from storage.graph.record import Graph
from storage.records import Input, dtype_name

Dtypes = tuple[torch.dtype, ...]
"""The dtype of each input."""


def in_other_dtypes(found: Sequence[General], graph: Graph, lower: Lower, limits: LaunchLimits) -> list[General]:
    """The kernels that the region `graph` has in further dtypes, `alike` those that were `found` in its variants."""
    more: list[General] = []
    for fixed in dict.fromkeys(one.fixed for one in found):
        known = [one for one in found if one.fixed == fixed]
        shapes = [(shape, stride) for _, shape, stride in known[0].sketch.key]
        for dtypes in _others([one.dtypes for one in known]):
            given = zip(dtypes, shapes, strict=True)
            inputs = [Input("x", "input", dtype_name(dtype), shape, stride) for dtype, (shape, stride) in given]
            lowered = lower(graph, inputs)
            made = general(lowered, limits, known[0].layouts) if lowered is not None else None
            if made is not None and alike([*found, made]):
                more.append(made)
    return more


def _others(known: Sequence[Dtypes]) -> list[Dtypes]:
    """The dtypes of inputs with another one in place of the one that all floating inputs have, or that those have
    which are not in single precision."""
    found: dict[Dtypes, None] = {}
    for dtypes in known:
        floats = {dtype for dtype in dtypes if dtype.is_floating_point}
        halves = floats & set(HALF)
        own = halves or floats
        if floats <= {torch.float32, *HALF} and len(own) == 1:
            others = HALF if halves < floats else (torch.float32, *HALF)
            found |= {tuple(other if d in own else d for d in dtypes): None for other in others}
    return [dtypes for dtypes in found if dtypes not in known]

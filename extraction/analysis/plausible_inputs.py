"""Plausible values for the inputs of a traced model: what can be drawn for them so that the model really runs.

What ops need (`extraction.analysis.value_ranges`) comes first: indices inside their tables, positive variances. Then
roles: weights with the spread that keeps activations near 1, scales near 1, biases near 0.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from extraction.analysis.propagate import Invalid, Propagated, TensorValue, propagate
from extraction.analysis.value_ranges import ANY, drawn_from, required
from storage.graph.record import Graph
from storage.records import Input

Hints = dict[str, float | None]


def with_ranges(
    graph: Graph, inputs: Sequence[Input], propagated: Propagated | Invalid | None = None
) -> tuple[Input, ...]:
    """`inputs` with low and high, or mean and std, set by use and role; integers that index nothing are 0 or 1.

    If the graph does not propagate on fake tensors, uses are unknown and roles alone decide. `propagated` is what
    `propagate` says of the graph, where the caller has it.
    """
    propagated = propagated or propagate(graph, inputs)
    needs = [ANY] * len(inputs) if isinstance(propagated, Invalid) else required(graph, propagated.values)
    hinted = []
    for number, each in enumerate(inputs):
        info = TensorValue(each.dtype, each.shape, each.stride, number)
        hints = drawn_from(info, ANY, needs[number])
        if hints["low"] is None and each.role == "parameter":
            hints = _of_parameter(each)
        elif each.role == "buffer" and needs[number].low > 0 and needs[number].high == math.inf:
            hints = {"low": 0.5, "high": 1.5, "mean": None, "std": None}  # a running variance after training
        hinted.append(replace(each, **hints))
    return tuple(hinted)


def _of_parameter(parameter: Input) -> Hints:
    """Mean and deviation as initialisations give them: fan-in is all but the first dimension."""
    name = parameter.name.rpartition(".")[2]
    if "bias" in name:
        mean, std = 0.0, 0.02
    elif len(parameter.shape) < 2:
        mean, std = 1.0, 0.1
    elif "weight" in name:
        mean, std = 0.0, 1 / math.sqrt(max(1, math.prod(parameter.shape[1:])))
    else:
        mean, std = 0.0, 0.02
    return {"low": None, "high": None, "mean": mean, "std": std}

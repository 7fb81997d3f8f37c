"""Convolutions of half types in channels-last memory.

cuDNN's convolutions of half types work in channels-last memory. Contiguous tensors are converted in launches of their
own, and so is the result. Of 41 convolutions without groups that eager calls with contiguous tensors, 39 had the
same bits in channels-last memory on an H200, and were 1.4 to 1.9 times as fast
(`benchmarks/agent/h200_distill_350/conv_layouts.csv`). With groups, and in single precision, many had other bits.

A pattern cannot tell dtypes apart: a graph that has variants in single precision, too, is left as it is.

The conversions that remain are ops of the graph, so that kernels around the convolution make them: a kernel ahead of it
writes channels-last memory, and one behind it reads that. A search measures the pass, and whether it is right.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from agent.distill.eager.op_effects import OpEffects, OpEffectsError, TensorLayout, find_effects
from agent.distill.rewrites.split_biases import argument
from storage.graph.record import Graph, Op, Ref, map_refs
from storage.records import Variant

_TARGETS = ("torch.conv2d", "torch.nn.functional.conv2d")
_HALF = ("float16", "bfloat16")
_INPUT, _WEIGHT, _GROUPS = 0, 1, 6


def in_channels_last(variants: Sequence[Variant]) -> Graph | None:
    """The graph of these variants with its half-type convolutions in channels-last memory; None if it has none that
    all variants call with contiguous tensors."""
    graph = variants[0].graph
    if not any(op.target in _TARGETS for op in graph.ops):
        return None
    try:
        known = [find_effects(graph, variant.inputs) for variant in variants]
    except OpEffectsError:
        return None
    values: list[Ref] = [Ref(number) for number in range(graph.inputs)]
    ops: list[Op] = []
    converted: dict[int, Ref] = {}  # what is in channels-last memory, too

    def append(op: Op) -> Ref:
        ops.append(op)
        return Ref(graph.inputs + len(ops) - 1)

    def channels_last(number: int) -> Ref:
        if number not in converted:
            form = {"memory_format": torch.channels_last}
            converted[number] = append(Op("method", "contiguous", (values[number],), form))
        return converted[number]

    for number, op in enumerate(graph.ops):
        written = {n for each in known for n in _written(graph, each, number)}
        converted = {n: ref for n, ref in converted.items() if n not in written}
        chosen = all(_converts(op, graph.inputs + number, each) for each in known)
        given = dict(enumerate(values))
        if chosen:
            given |= {op.args[n].index: channels_last(op.args[n].index) for n in (_INPUT, _WEIGHT)}
        result = append(_renumbered(op, given))
        values.append(append(Op("method", "contiguous", (result,), {})) if chosen else result)
    if len(ops) == len(graph.ops):
        return None
    return Graph(graph.inputs, tuple(ops), map_refs(graph.output, lambda ref: values[ref.index]))


def _renumbered(op: Op, given: Mapping[int, Ref]) -> Op:
    args, kwargs = (map_refs(part, lambda ref: given[ref.index]) for part in (op.args, op.kwargs))
    return replace(op, args=args, kwargs=kwargs)


def _converts(op: Op, result: int, known: OpEffects) -> bool:
    """Whether the op is such a convolution, of more than one place."""
    if op.target not in _TARGETS or argument(op, _GROUPS, "groups", 1) != 1 or len(op.args) <= _WEIGHT:
        return False
    layouts = [known.values[op.args[n].index] if isinstance(op.args[n], Ref) else None for n in (_INPUT, _WEIGHT)]
    layouts.append(known.values[result])
    if not all(isinstance(x, TensorLayout) and x.dtype in _HALF and len(x.shape) == 4 for x in layouts):
        return False
    return all(_contiguous(x) for x in layouts) and max(layouts[0].shape[2:]) > 1 and layouts[0].shape[1] > 1


def _contiguous(x: TensorLayout) -> bool:
    _, channels, height, width = x.shape
    return x.stride[1:] == (height * width, width, 1) and x.stride[0] in (channels * height * width, 0)


def _written(graph: Graph, known: OpEffects, number: int) -> set[int]:
    """The values whose memory the op writes to."""
    storages = known.writes[number]
    return {n for n, x in enumerate(known.values) if isinstance(x, TensorLayout) and x.storage in storages}

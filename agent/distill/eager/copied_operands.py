"""Which values eager copies into contiguous memory before a product, such as the heads of an attention.

A product of matrices in a batch reshapes its operands to one dimension of matrices. Where the dimensions of the batch
cannot be one, that is a copy. A kernel that writes the value contiguously spares it, and the product is the same call.
"""

from collections.abc import Sequence
from dataclasses import replace

from agent.distill.eager.op_effects import OpEffects, TensorLayout, find_effects
from storage.graph.record import Graph, Op, Ref, map_refs, refs
from storage.records import Input, contiguous_stride

_PRODUCTS = ("operator.matmul", "torch.matmul", "matmul")


def copies(graph: Graph, known: OpEffects, value: int) -> int:
    """How many copies of a value are spared if it is contiguous. 0 where it is, where the graph returns it, or where a
    reader of it is no product or makes no copy: that reader would see other strides."""
    layout = known.values[value]
    if not isinstance(layout, TensorLayout) or layout.stride == contiguous_stride(layout.shape) or 0 in layout.shape:
        return 0
    if any(ref.index == value for ref in refs(graph.output)) or any(layout.storage in each for each in known.writes):
        return 0
    readers = [op for op in graph.ops if any(ref.index == value for ref in refs((op.args, op.kwargs)))]
    spared = [_spared(op, known, value) for op in readers]
    return sum(spared) if all(spared) else 0


def _spared(op: Op, known: OpEffects, value: int) -> int:
    """The launches that a product makes less of a contiguous value."""
    used = list(dict.fromkeys(ref.index for ref in refs((op.args, op.kwargs))))
    layouts = [known.values[number] for number in used]
    if op.target not in _PRODUCTS or not all(isinstance(layout, TensorLayout) for layout in layouts):
        return 0
    places = {number: Ref(place) for place, number in enumerate(used)}
    args, kwargs = (map_refs(each, lambda ref: places[ref.index]) for each in (op.args, op.kwargs))
    alone = Graph(len(used), (replace(op, args=args, kwargs=kwargs),), (Ref(len(used)),))
    inputs = [layout.as_input(f"in_{n}") for n, layout in enumerate(layouts)]
    other = [_contiguous(one) if number == value else one for number, one in zip(used, inputs, strict=True)]
    before, after = (find_effects(alone, each) for each in (inputs, other))
    made = [(each.values[-1].shape, each.values[-1].stride) for each in (before, after)]
    return sum(before.launches) - sum(after.launches) if made[0] == made[1] else 0


def _contiguous(one: Input) -> Input:
    return replace(one, stride=contiguous_stride(one.shape))


def with_contiguous(graph: Graph, places: Sequence[int]) -> Graph:
    """The graph with its outputs at these places contiguous."""
    ops, output = list(graph.ops), list(graph.output)
    for place in places:
        ops.append(Op("method", "contiguous", (output[place],), {}))
        output[place] = Ref(graph.inputs + len(ops) - 1)
    return Graph(graph.inputs, tuple(ops), tuple(output))

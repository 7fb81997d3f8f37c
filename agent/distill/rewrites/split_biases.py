"""The bias of a convolution or a linear as an addition of its own, which a kernel behind the call can make.

Eager's convolutions on a GPU are cuDNN's, and the bias is added in a launch of its own. So a call without the bias and
an addition have the same bits. That is not so where groups have kernels of their own, and on a CPU.

Eager's linears of contiguous inputs have the library add the bias within the product. Without it the library may choose
another way to multiply, often a faster one (`benchmarks/passbench/h200_table`: 14.6 us for 48.7, where TorchInductor
splits it off), with other bits. Whether these are right at t = -5 goes by how many products are added and how large
they are (`benchmarks/passbench/h100_table`), so that only measured passes split linears: where any rounding will do,
and as a choice of its own where all else has eager's bits. In half types the bias is added before the product is
rounded, so that these linears stay whole.

Where the input has three or more dimensions and is not contiguous, eager multiplies without the bias and adds it in a
launch of its own, in any dtype (`OpEffects.apart`). A kernel that adds it has the same bits. `fusible-2e69826910ba` and
`fusible-d1d850d11804` were 0.66 and 0.79 of strict TorchInductor on the device, which adds such biases in the kernel
behind (`benchmarks/passbench/h100_table_276`).
"""

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from agent.distill.eager.op_effects import OpEffects, OpEffectsError, TensorLayout, find_effects
from agent.distill.regions import Region, region_of
from storage.graph.record import Graph, Op, Ref, Value, map_refs, refs
from storage.records import Variant

_DIMS = {
    f"{module}.conv{kind}{dims}d": dims
    for module in ("torch", "torch.nn.functional")
    for kind in ("", "_transpose")
    for dims in (1, 2, 3)
}
LINEAR = "torch.nn.functional.linear"
_BIAS, _GROUPS = 2, 6
"""Positions among the arguments of each of these; a linear has no groups."""
_ADD = "operator.add"


@dataclass(frozen=True)
class SplitGraph:
    """A graph in which a call, a view of its bias and an addition stand for a call with a bias.

    `origin` has, for each op of `graph`, the number of the op of the graph that it was, `whole`. `calls` are the op
    numbers of the calls that were split. The bias of a linear is added as it is, without a view. `within` are those
    calls whose bias eager adds within the product.
    """

    whole: Graph
    graph: Graph
    origin: tuple[int, ...]
    calls: frozenset[int]
    within: frozenset[int] = frozenset()

    def of_biases_alone(self, region: Region, known: OpEffects, but_within: bool = False) -> bool:
        """Whether a region of `graph` does nothing but add biases, views aside: eager's own addition is as good, those
        `within` products aside if so said."""
        split = {self.origin[c] for c in self.calls if not (but_within and c in self.within)}
        return all(self.origin[op] in split or known.launches[op] == 0 for op in region.ops)

    def joined(self, region: Region) -> tuple[Region, Graph | None]:
        """A region of `graph` as one of `whole`, and the split calls that are made ahead of its kernels.

        These are a graph of the joined region's inputs, which returns the inputs of `region`; None if there are none.
        """
        joined = region_of(self.whole, {self.origin[op] for op in region.ops})
        inputs = self.graph.inputs
        calls = [number - inputs for number in region.inputs if number - inputs in self.calls]
        if not calls:
            return joined, None
        place = {number: Ref(position) for position, number in enumerate(joined.inputs)}
        given = {number: place[self._in_whole(number)] for number in region.inputs if number - inputs not in calls}
        given |= {inputs + call: Ref(len(place) + position) for position, call in enumerate(calls)}
        ops = tuple(self._as_call(call, place) for call in calls)
        return joined, Graph(len(place), ops, tuple(given[number] for number in region.inputs))

    def without_cost(self, region: Region) -> int:
        """How many of a region's additions cost eager nothing: those of biases `within` products."""
        return sum(self.graph.ops[op].target == _ADD and op - 1 in self.within for op in region.ops)

    def _in_whole(self, number: int) -> int:
        """The number in `whole` of a value of `graph`; that of a split call's result is the sum's."""
        inputs = self.graph.inputs
        return number if number < inputs else inputs + self.origin[number - inputs]

    def _as_call(self, number: int, place: dict[int, Ref]) -> Op:
        op = self.graph.ops[number]

        def renumber(ref: Ref) -> Ref:
            return place[self._in_whole(ref.index)]

        return replace(op, args=map_refs(op.args, renumber), kwargs=map_refs(op.kwargs, renumber))


def split_biases(
    graph: Graph, apart: Collection[int] = (), within: Collection[int] = (), convolutions: bool = True
) -> SplitGraph:
    """The graph with biases as additions that other ops follow: those of `convolutions` without groups, and those of
    the linears of these numbers, whose biases eager adds `apart` from the product or `within` it."""
    read = {ref.index for op in graph.ops for ref in refs((op.args, op.kwargs))}
    values: list[Ref] = [Ref(number) for number in range(graph.inputs)]
    ops: list[Op] = []
    origin: list[int] = []
    calls: set[int] = set()
    inside: set[int] = set()

    def append(op: Op, number: int) -> Ref:
        ops.append(op)
        origin.append(number)
        return Ref(graph.inputs + len(ops) - 1)

    for number, op in enumerate(graph.ops):
        op = replace(
            op,
            args=map_refs(op.args, lambda ref: values[ref.index]),
            kwargs=map_refs(op.kwargs, lambda ref: values[ref.index]),
        )
        asked = number in apart or number in within if op.target == LINEAR else convolutions
        bias = _bias(op) if asked and graph.inputs + number in read else None
        if bias is None:
            values.append(append(op, number))
            continue
        calls.add(len(ops))
        if op.target == LINEAR and number not in apart:
            inside.add(len(ops))
        call = append(_without_bias(op), number)
        if op.target != LINEAR:
            shape = (-1, *(1,) * _DIMS[op.target])  # also where there is no batch
            bias = append(Op("method", "reshape", (bias, *shape), {}), number)
        values.append(append(Op("function", _ADD, (call, bias), {}), number))
    output = map_refs(graph.output, lambda ref: values[ref.index])
    split = Graph(graph.inputs, tuple(ops), output)
    return SplitGraph(graph, split, tuple(origin), frozenset(calls), frozenset(inside))


def linears_apart(variants: Sequence[Variant]) -> frozenset[int]:
    """The linears of a graph whose biases eager adds in a launch of their own in each of these variants of it."""
    found = []
    for variant in variants:
        try:
            found.append(find_effects(variant.graph, variant.inputs).apart)
        except OpEffectsError:
            return frozenset()
    return frozenset.intersection(*found)


def linears_within(variants: Sequence[Variant]) -> frozenset[int]:
    """The other linears of a graph with biases, where all its products and floating inputs are in single precision."""
    if not all(map(_multiplies_singles, variants)):
        return frozenset()
    ops = variants[0].graph.ops
    biased = {number for number, op in enumerate(ops) if op.target == LINEAR and _bias(op) is not None}
    return frozenset(biased - linears_apart(variants))


def _multiplies_singles(variant: Variant) -> bool:
    graph = variant.graph
    linears = [graph.inputs + number for number, op in enumerate(graph.ops) if op.target == LINEAR]
    if not linears or any(i.dtype != "float32" for i in variant.inputs if "float" in i.dtype):
        return False
    with suppress(OpEffectsError):
        values = find_effects(graph, variant.inputs).values
        return all(isinstance(v := values[n], TensorLayout) and v.dtype == "float32" for n in linears)
    return False


def _bias(op: Op) -> Ref | None:
    """The bias of a convolution without groups, or of a linear. None where it is not the last tensor that is given: the
    parts of the call would read them in another order, which is that of a region's inputs."""
    if op.kind != "function" or not (op.target in _DIMS or op.target == LINEAR):
        return None
    if argument(op, _GROUPS, "groups", 1) != 1:
        return None
    bias = argument(op, _BIAS, "bias", None)
    return bias if bias in list(refs((op.args, op.kwargs)))[-1:] else None


def argument(op: Op, position: int, name: str, default: Value) -> Value:
    """An argument of the op, given by its position or its name."""
    return op.args[position] if len(op.args) > position else op.kwargs.get(name, default)


def _without_bias(op: Op) -> Op:
    if len(op.args) > _BIAS:
        args: Sequence[Value] = op.args
        return replace(op, args=(*args[:_BIAS], None, *args[_BIAS + 1 :]))
    return replace(op, kwargs={name: value for name, value in op.kwargs.items() if name != "bias"})

"""Numbers that a graph compares its integer inputs with, such as the id that fills up a sentence.

Of 32,000 ids hardly any is that one, and of ids that nothing indexes, drawn as 0 or 1, none may be. A pass that leaves
the comparison out would be right. So draws hold such numbers.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import torch

from passbench.inputs.draw import PYTHON_INT, integer_range
from passbench.inputs.ranges import ends
from storage.graph.effects import argument, base_name, operand_in_front
from storage.graph.record import Graph, Op, Ref, Value, refs
from storage.records import Input, dtype_of

_ONE_OF = frozenset("eq ne not_equal isin".split())
_BESIDE = {
    **dict.fromkeys(_ONE_OF, (0,)),
    **dict.fromkeys("lt le gt ge less less_equal greater greater_equal".split(), (-1, 0, 1)),
}
"""Comparisons, and the values that tell them from others of their kind, less the number that is compared with."""
_SAME_VALUES = frozenset(
    """clone contiguous detach expand flatten int long permute reshape squeeze t to transpose unsqueeze view
    _to_copy""".split()
)
_WHOLE = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


@dataclass
class _Uses:
    """What a graph does with an input: the numbers that it is compared with, each with its item of `_BESIDE`; other
    inputs that it may be one of; and whether it is compared with numbers and nothing else is done with it."""

    numbers: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)
    others: set[int] = field(default_factory=set)
    alone: bool = True


def compared_numbers(graph: Graph, specs: Sequence[Input]) -> dict[int, tuple[int, ...]]:
    """For each integer input that the graph compares with numbers: the values around these that a draw may hold, in
    order.

    They lie in its range, which may be that of an index. Only an input that is compared and nothing else may hold
    others, unless its range is one value, which is a promise. What may be one of another input is an end of its range.
    """
    ranges = {n: integer_range(spec, dtype_of(spec.dtype)) for n, spec in enumerate(specs) if _is_whole(spec)}
    if not ranges:  # as of most graphs
        return {}
    found = {}
    for number, uses in _uses(graph, ranges).items():
        numbers = [*uses.numbers, *((end, (0,)) for other in uses.others for end in ranges[other])]
        low, high = ranges[number]
        whole = torch.iinfo(dtype_of(specs[number].dtype))
        kept: set[int] = set()
        for one, steps in numbers:
            within = low <= one <= high or not uses.alone or low == high
            least, most = (low, high) if within else (whole.min, whole.max)
            kept |= {one + step for step in steps if least <= one + step <= most}
        if kept:
            found[number] = tuple(sorted(kept))
    return found


def _is_whole(spec: Input) -> bool:
    """Whether an input is a tensor of whole numbers, with a range that there can be."""
    if spec.dtype == PYTHON_INT or dtype_of(spec.dtype) not in _WHOLE:
        return False
    return spec.low is None or ends(spec)[0] <= ends(spec)[1]


def _uses(graph: Graph, inputs: Collection[int]) -> dict[int, _Uses]:
    """What the graph does with each of these inputs."""
    found = {number: _Uses() for number in inputs}
    origin = {number: number for number in inputs}  # value → the input whose values it has
    for at, op in enumerate(map(operand_in_front, graph.ops), graph.inputs):
        read = [origin[ref.index] for ref in refs((op.args, op.kwargs)) if ref.index in origin]
        if not read:
            continue
        name, sides = base_name(op), _sides(op)
        whole = [side for side in sides if type(side) is int]
        first = sides[0].index if isinstance(sides[0], Ref) else None
        if name in _BESIDE and len(whole) == 1:
            found[read[0]].numbers.append((whole[0], _BESIDE[name]))
        elif name in _SAME_VALUES and first in origin and len(read) == 1:
            origin[at] = read[0]
        else:
            compared = {origin.get(side.index) for side in sides if isinstance(side, Ref)} if name in _ONE_OF else set()
            for number in read:
                found[number].alone = False
                found[number].others |= compared - {number, None}
    return found


def _sides(op: Op) -> tuple[Value, Value]:
    """What a comparison compares; of other calls the first two arguments."""
    return (op.args[0] if op.args else None), argument(op, 1, "other" if "other" in op.kwargs else "test_elements")

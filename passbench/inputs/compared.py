"""Numbers that a graph compares its integer inputs with, such as the id that fills up a sentence.

Of 32,000 ids hardly any is that one, and of ids that nothing indexes, drawn as 0 or 1, none may be. A pass that leaves
the comparison out would be right. So draws hold such numbers.
"""

from collections.abc import Sequence

import torch

from passbench.inputs.draw import PYTHON_INT, integer_range
from passbench.inputs.ranges import ends
from storage.graph.effects import argument, base_name, operand_in_front
from storage.graph.record import Graph, Op, Ref, refs
from storage.records import Input, dtype_of

_BESIDE = {**dict.fromkeys(("eq", "ne"), (0,)), **dict.fromkeys(("lt", "le", "gt", "ge"), (-1, 0, 1))}
"""Comparisons, and the values that tell them from others of their kind, less the number that is compared with."""
_ONE_OF = frozenset(("eq", "ne", "isin"))
_SAME_VALUES = frozenset(
    """clone contiguous detach expand flatten int long permute reshape squeeze t to transpose unsqueeze view
    _to_copy""".split()
)
_WHOLE = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def compared_numbers(graph: Graph, specs: Sequence[Input]) -> dict[int, tuple[int, ...]]:
    """For each integer input that the graph compares with numbers: the values around these that a draw may hold.

    They lie in its range, which may be that of an index. Only an input that is compared and nothing else may hold
    others, unless its range is one value, which is a promise. What may be one of another input is an end of its range.
    """
    found = {}
    for number, spec in enumerate(specs):
        if not _is_whole(spec):
            continue
        numbers, others, alone = _of_input(graph, number)
        dtype = dtype_of(spec.dtype)
        low, high = integer_range(spec, dtype)
        for other in (specs[n] for n in others if _is_whole(specs[n])):
            numbers += [(end, (0,)) for end in integer_range(other, dtype_of(other.dtype))]
        kept: set[int] = set()
        for one, steps in numbers:
            whole = torch.iinfo(dtype)
            least, most = (low, high) if low <= one <= high or not alone or low == high else (whole.min, whole.max)
            kept |= {one + step for step in steps if least <= one + step <= most}
        if kept:
            found[number] = tuple(sorted(kept))
    return found


def _is_whole(spec: Input) -> bool:
    """Whether an input is a tensor of whole numbers, with a range that there can be."""
    if spec.dtype == PYTHON_INT or dtype_of(spec.dtype) not in _WHOLE:
        return False
    return spec.low is None or ends(spec)[0] <= ends(spec)[1]


def _of_input(graph: Graph, number: int) -> tuple[list[tuple[int, tuple[int, ...]]], set[int], bool]:
    """The numbers that an input is compared with, each with its item of `_BESIDE`; other inputs that it may be one of;
    and whether it is compared with numbers and nothing else is done with it."""
    same, numbers, others, alone = {number}, [], set(), True
    for at, op in enumerate(map(operand_in_front, graph.ops), graph.inputs):
        read = [ref.index for ref in refs((op.args, op.kwargs)) if ref.index in same]
        if not read:
            continue
        first, name = op.args[0] if op.args else None, base_name(op)
        if name in _BESIDE and (constant := _constant(op)) is not None:
            numbers.append((constant, _BESIDE[name]))
        elif name in _SAME_VALUES and isinstance(first, Ref) and len(read) == 1 and first.index == read[0]:
            same.add(at)
        else:
            alone = False
            sides = (first, argument(op, 1, "other")) if name in _ONE_OF else ()
            others |= {ref.index for ref in sides if isinstance(ref, Ref) and ref.index < graph.inputs} - {number}
    return numbers, others, alone


def _constant(op: Op) -> int | None:
    """The whole number on one side of a comparison."""
    sides = [op.args[0] if op.args else None, argument(op, 1, "other")]
    whole = [side for side in sides if type(side) is int]
    return whole[0] if len(whole) == 1 else None

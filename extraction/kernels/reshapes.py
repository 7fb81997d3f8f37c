"""Reshapes as arithmetic on indices, with as few divisions as can be.

TorchInductor computes a reshape's index from the flat position in the whole tensor wherever no dimension is a product
of others, such as from (8, 30, 118) to (8, 118, 30). Where reshapes follow one another, as in relative attention, each
repeats all of the one before in every coordinate: one load of a block of XLNet's had an index of 4,000 terms, and the
block took half a minute to lower.
"""

from collections.abc import Callable, Sequence
from math import prod

from sympy import Expr, Integer
from torch._inductor.ir import View
from torch.utils._sympy.functions import FloorDiv, ModularIndexing

from extraction.kernels.digits import join_dimensions

Reindex = Callable[[Sequence[Expr]], Sequence[Expr]]
"""The coordinates in the old shape of coordinates in the new one."""


def dynamic_reshape_indexer(
    cls: type[View], old_size: Sequence[Expr], new_size: Sequence[Expr], dense_dim: int | None = None
) -> Reindex:
    """As `View.dynamic_reshape_indexer`. Where that would flatten the whole tensor, only those neighbouring dimensions
    are flattened whose elements are others than in the old shape."""
    try:
        return cls._dynamic_reshape_indexer(old_size, new_size, dense_dim)
    except (AssertionError, IndexError):  # no dimension is a product of others
        numbers = all(isinstance(size, int | Integer) for size in (*old_size, *new_size))
        if not numbers or not prod(old_size):
            return _INDUCTOR_INDEXER(cls, old_size, new_size, dense_dim)
        return by_groups([int(size) for size in old_size], [int(size) for size in new_size])


def by_groups(old: Sequence[int], new: Sequence[int]) -> Reindex:
    """A reshape between two shapes of as many elements, not none."""
    groups = list(_groups(old, new))

    def reindex(index: Sequence[Expr]) -> Sequence[Expr]:
        found: list[Expr] = []
        for before, after in groups:
            found += _digits(_flat(index[after], new[after]), old[before])
        return tuple(found)

    return reindex


def _groups(old: Sequence[int], new: Sequence[int]) -> list[tuple[slice, slice]]:
    """Neighbouring dimensions of both shapes that have the same elements, as few at a time as can be."""
    groups, first, second = [], 0, 0
    while first < len(old) or second < len(new):
        last, end = first + 1, second + 1
        while (size := prod(old[first:last])) != (other := prod(new[second:end])):
            if size < other:
                last += 1
            else:
                end += 1
        groups.append((slice(first, min(last, len(old))), slice(second, min(end, len(new)))))
        first, second = last, end
    return groups


def _flat(index: Sequence[Expr], sizes: Sequence[int]) -> Expr:
    flat: Expr = Integer(0)
    for coordinate, size in zip(index, sizes, strict=True):
        flat = flat * size + coordinate
    return join_dimensions(flat)


def _digits(flat: Expr, sizes: Sequence[int]) -> list[Expr]:
    """The coordinates of a flat position in a box of these sizes. The first needs no remainder."""
    digits: list[Expr] = []
    divisor = 1
    for place, size in reversed(list(enumerate(sizes))):
        if size == 1:
            digits.append(Integer(0))
        elif prod(sizes[:place]) == 1:
            digits.append(FloorDiv(flat, divisor))
        else:
            digits.append(ModularIndexing(flat, divisor, size))
        divisor *= size
    return digits[::-1]


_INDUCTOR_INDEXER = View.dynamic_reshape_indexer.__func__

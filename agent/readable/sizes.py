"""Which expression over the inputs' shapes gives a number of a kernel, in every variant."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, combinations_with_replacement

Shape = tuple[int, ...]
Inputs = Sequence[tuple[Shape, Shape]]
"""Shape and stride of each input of a region in one variant; inputs are called `in_0…`."""

_LEAST_PRODUCT = 100


@dataclass(frozen=True)
class HostSize:
    """A number as source: `text` over the inputs, and `name`, what a kernel calls it."""

    name: str
    text: str


class HostSizes:
    """The sizes that a module's host code can compute, over all variants of a sample.

    `joins`: the graph joins tensors, so that sums of sizes are looked at before products.
    """

    def __init__(self, variants: Sequence[Inputs], joins: bool = False) -> None:
        self.variants, self.joins = variants, joins
        self._known: dict[tuple[int, ...], HostSize] = {}
        for size, values in self._candidates():
            self._known.setdefault(values, size)

    def of(self, numbers: tuple[int, ...]) -> HostSize | None:
        """The size that has these numbers, one for each variant; None if there is none."""
        return self._known.get(numbers)

    def text(self, numbers: tuple[int, ...]) -> str | None:
        """Source of these numbers: an expression, or the number itself where it is the same in all variants."""
        if (known := self.of(numbers)) is not None:
            return known.text
        return str(numbers[0]) if len(set(numbers)) == 1 else None

    def shape(self, shapes: Sequence[Shape]) -> str | None:
        """Source of a shape, given for each variant; None if a dimension has no expression."""
        for number in range(len(self.variants[0])):
            if all(v[number][0] == shape for v, shape in zip(self.variants, shapes, strict=True)):
                return f"in_{number}.shape"
        if len({len(shape) for shape in shapes}) > 1:
            return None
        sizes = [self.text(numbers) for numbers in zip(*shapes, strict=True)]
        if None in sizes:
            return None
        return f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"

    def _candidates(self) -> Iterator[tuple[HostSize, tuple[int, ...]]]:
        """Simple ones first. Numbers below 2 are no sizes: nothing says which of them they would be."""
        ranks = [len(shape) for shape, _ in self.variants[0]]
        if any([len(shape) for shape, _ in variant] != ranks for variant in self.variants):
            return
        plain = [(n, ("shape", d, d + 1)) for n, rank in enumerate(ranks) for d in range(rank)]
        yield from self._valued(plain, ranks)
        if self.joins:
            yield from self._joined(ranks)
        yield from self._valued(self._all(ranks), ranks)
        yield from self._products(ranks)

    def _valued(
        self, sizes: Iterable[tuple[int, tuple]], ranks: Sequence[int]
    ) -> Iterator[tuple[HostSize, tuple[int, ...]]]:
        for number, size in sizes:
            values = tuple(_value(size, variant[number]) for variant in self.variants)
            if max(values) > 1:
                yield _named(number, size, ranks[number]), values

    def _joined(self, ranks: Sequence[int]) -> Iterator[tuple[HostSize, tuple[int, ...]]]:
        """Sums of one dimension's sizes, of two inputs of equal rank and of all of them."""
        groups = {rank: [n for n, each in enumerate(ranks) if each == rank] for rank in sorted(set(ranks))}
        for rank, numbers in groups.items():
            together = dict.fromkeys([*combinations(numbers, 2), tuple(numbers)])
            for dim in range(rank):
                for place, each in enumerate(inputs for inputs in together if len(inputs) > 1):
                    values = tuple(sum(variant[n][0][dim] for n in each) for variant in self.variants)
                    text = " + ".join(f"in_{n}.shape[{dim}]" for n in each)
                    yield HostSize(f"joined_size_{dim}" + (f"_{rank}_{place}" if place else ""), text), values

    def _products(self, ranks: Sequence[int]) -> Iterator[tuple[HostSize, tuple[int, ...]]]:
        """Products of two sizes, of different inputs or the same one twice. Small ones are left out: many a product is
        8."""
        plain = [(n, d) for n, rank in enumerate(ranks) for d in range(rank)]
        for (n, d), (m, e) in combinations_with_replacement(plain, 2):
            values = tuple(variant[n][0][d] * variant[m][0][e] for variant in self.variants)
            if min(values) >= _LEAST_PRODUCT:
                name = f"in_{n}_size_{d}_squared" if (n, d) == (m, e) else f"in_{n}_size_{d}_by_in_{m}_size_{e}"
                yield HostSize(name, f"in_{n}.shape[{d}] * in_{m}.shape[{e}]"), values

    @staticmethod
    def _all(ranks: Sequence[int]) -> Iterator[tuple[int, tuple]]:
        for number, rank in enumerate(ranks):
            yield number, ("shape", 0, rank)
        for number, rank in enumerate(ranks):
            yield from ((number, ("shape", d, rank)) for d in range(1, rank - 1))
            yield from ((number, ("shape", 0, d)) for d in range(2, rank))
        for number, rank in enumerate(ranks):
            yield from ((number, ("shape", a, b)) for a in range(1, rank) for b in range(a + 2, rank))
            yield from ((number, ("stride", d, d + 1)) for d in range(rank))
            yield from ((number, ("without", d, d + 1)) for d in range(1, rank - 1))


def _value(size: tuple, layout: tuple[Shape, Shape]) -> int:
    kind, first, end = size
    shape, stride = layout
    if kind == "without":
        return math.prod(shape[:first] + shape[end:])
    return math.prod((shape if kind == "shape" else stride)[first:end])


def _named(number: int, size: tuple, rank: int) -> HostSize:
    kind, first, end = size
    one = f"in_{number}"
    if kind == "stride":
        return HostSize(f"{one}_stride_{first}", f"{one}.stride({first})")
    if kind == "without":
        return HostSize(f"{one}_without_{first}", f"{one}.numel() // {one}.shape[{first}]")
    if end == first + 1:
        return HostSize(f"{one}_size_{first}", f"{one}.shape[{first}]")
    if (first, end) == (0, rank):
        return HostSize(f"{one}_numel", f"{one}.numel()")
    factors = " * ".join(f"{one}.shape[{d}]" for d in range(first, end))
    return HostSize(f"{one}_sizes_{first}_to_{end - 1}", factors)

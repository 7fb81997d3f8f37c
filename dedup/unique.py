"""Each variant once: duplicates merge, and the row says how often and where it stood."""

from bisect import insort
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from storage.records import Source, Variant
from storage.schema import CATEGORIES

MAX_SOURCES = 16
"""Sources that a variant keeps: the first in order of model, start and end. `occurrences` counts them all."""


@dataclass(frozen=True)
class UniqueResult:
    """Variants by category and hash; `duplicates` counts by category the variants that merged into another."""

    variants: tuple[Variant, ...]
    duplicates: Counter[str]


def unique(variants: Iterable[Variant]) -> UniqueResult:
    """Merges variants of one category with the same variant hash; the order in which they come does not matter.

    What the hash leaves out (roles, ranges, kernels) is taken from the variant with the first source. One pass; memory
    is that of the unique variants. Raises ValueError on a variant without hash (`dedup.hashes.identify` sets it).
    """
    groups: dict[tuple[str, str], _Group] = {}
    duplicates: Counter[str] = Counter()
    for variant in variants:
        if not variant.variant_hash:
            raise ValueError("a variant has no hash; identify it first")
        key = (variant.category, variant.variant_hash)
        group = groups.get(key)
        if group is None:
            groups[key] = group = _Group(variant)
        else:
            duplicates[variant.category] += 1
        group.add(variant)
    rank = {category: number for number, category in enumerate(CATEGORIES)}
    ordered = sorted(groups, key=lambda key: (rank[key[0]], key[1]))
    return UniqueResult(tuple(groups[key].merged() for key in ordered), duplicates)


@dataclass
class _Group:
    first: Variant
    sources: list[tuple[str, int, int]] = field(default_factory=list)
    occurrences: int = 0

    def add(self, variant: Variant) -> None:
        if _place(variant) < _place(self.first):
            self.first = variant
        self.occurrences += variant.occurrences
        for source in variant.sources:
            key = (source.model, source.start, source.end)
            if key not in self.sources:
                insort(self.sources, key)
        del self.sources[MAX_SOURCES:]

    def merged(self) -> Variant:
        sources = tuple(Source(*key) for key in self.sources)
        return self.first.with_changes(sources=sources, occurrences=self.occurrences)


def _place(variant: Variant) -> tuple:
    """Orders the variants of a group; where the sources are the same, what the hash leaves out decides."""
    hints = tuple(str((i.role, i.low, i.high, i.mean, i.std)) for i in variant.inputs)
    return min(((s.model, s.start, s.end) for s in variant.sources), default=("",)), str(variant.kernels), hints

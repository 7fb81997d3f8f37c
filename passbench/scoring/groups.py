"""Groups of variants that scores are compared by: sample, category, dtype, size, author, and category × dtype."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

GROUPINGS = ("sample", "group", "category", "dtype", "size", "author")
"""What scores can be grouped by; "group" is category × dtype."""

UNKNOWN = "unknown"
"""The group of variants of which dtype and size are not known."""

_BOUNDS = (("1K", 2**10), ("16K", 2**14), ("256K", 2**18), ("4M", 2**22))
SIZES = (
    f"below {_BOUNDS[0][0]}",
    *(f"{low} to {high}" for (low, _), (high, _) in pairwise(_BOUNDS)),
    f"{_BOUNDS[-1][0]} and more",
)
"""Bands of a variant's size, K and M binary: the lower bound belongs to a band, the upper one does not."""

_COMPUTED = ("float", "bfloat", "complex")


@dataclass(frozen=True)
class VariantFacts:
    """What the results table does not say of a variant.

    `dtype`: that of the floating or complex input with most elements (of the outputs if no input has one; "int64" and
    the like if nothing has); `elements`: of its largest tensor, inputs and outputs.
    """

    dtype: str
    elements: int

    @classmethod
    def of(cls, inputs: Sequence[Mapping[str, Any]], outputs: Sequence[Mapping[str, Any]]) -> "VariantFacts":
        """From the `inputs` and `outputs` columns of the `subgraphs` table."""
        tensors = [(math.prod(x["shape"] or ()), x["dtype"]) for x in (*inputs, *outputs)]
        of_inputs = tensors[: len(inputs)]
        for candidates in (_computed(of_inputs), _computed(tensors), of_inputs, tensors):
            if candidates:
                dtype = max(candidates, key=lambda x: x[0])[1]
                return cls(dtype, max(elements for elements, _ in tensors))
        return cls(UNKNOWN, 0)

    @property
    def size(self) -> str:
        """Its band of `SIZES`."""
        return SIZES[sum(self.elements >= bound for _, bound in _BOUNDS)]


def _computed(tensors: Sequence[tuple[int, str]]) -> list[tuple[int, str]]:
    return [x for x in tensors if x[1].startswith(_COMPUTED)]


def group_of(row: Mapping[str, Any], by: str, facts: Mapping[str, VariantFacts]) -> str:
    """The group of a row of the results table; each model of an author is one.

    `facts` by variant hash; needed for dtype, size and group alone.
    """
    if by in ("sample", "category"):
        return row[by]
    if by == "author":
        return f"{row['author']} {row['model'] or ''}".rstrip()
    known = facts.get(row["variant_hash"])
    if by == "size":
        return known.size if known else UNKNOWN
    dtype = known.dtype if known else UNKNOWN
    return dtype if by == "dtype" else f"{row['category']} {dtype}"


def group_order(group: str) -> tuple[int, str]:
    """Sort key of groups: sizes by size, everything else by name."""
    return (SIZES.index(group), "") if group in SIZES else (len(SIZES), group)

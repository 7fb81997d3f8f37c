"""Assignments to parts of tensors: what their indices and values are."""

import math
from typing import Any

from storage.graph.record import Ref
from storage.graph.render import value_name

_LARGEST = 65504
"""The largest number of float16, whose range is the smallest one of the floating dtypes."""


def holds_a_list(places: Any) -> bool:
    """Whether an index has a list of numbers, which torch copies to the device."""
    return isinstance(places, list) or (isinstance(places, tuple) and any(isinstance(n, list) for n in places))


def holds_a_switch(places: Any) -> bool:
    """Whether an index has `True` or `False`."""
    return any(isinstance(n, bool) for n in (places if isinstance(places, tuple) else (places,)))


def dims_of_part(index: Any, dims: int) -> int:
    """How many dimensions a part of a tensor of `dims` dimensions has, by an index of numbers, slices and the like."""
    for one in index if isinstance(index, tuple) else (index,):
        if one is None:
            dims += 1
        elif one is not Ellipsis and not isinstance(one, slice):
            dims -= 1  # a number
    return dims


def text_of(value: Any, inputs: int) -> str:
    """A value or a number as source."""
    if isinstance(value, Ref):
        return value_name(value.index, inputs)
    return f'float("{value}")' if isinstance(value, float) and not math.isfinite(value) else repr(value)


def is_beyond_halves(value: Any) -> bool:
    """Whether a number, or one that only a call knows, may become infinite in a half type."""
    return not isinstance(value, int | float) or _LARGEST < abs(value) < math.inf

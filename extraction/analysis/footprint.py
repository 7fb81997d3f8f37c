"""How much memory a subgraph takes in eager execution, computed from its propagation without running it."""

import math

from extraction.analysis.propagate import Propagated
from extraction.analysis.values import TensorValue
from storage.records import dtype_of


def footprint(propagated: Propagated) -> int:
    """Bytes of all values together: inputs, intermediates and outputs, each piece of memory once.

    An upper bound of the peak, as eager execution under a module keeps or frees intermediates; workspaces of library
    calls are not in it.
    """
    sizes: dict[int, int] = {}
    for value in propagated.values:
        if isinstance(value, TensorValue):
            sizes[value.storage] = max(sizes.get(value.storage, 0), _bytes(value))
    return sum(sizes.values())


def _bytes(value: TensorValue) -> int:
    """Bytes over which a tensor reaches; expanded dimensions take none."""
    if 0 in value.shape:
        return 0
    elements = 1 + sum((size - 1) * step for size, step in zip(value.shape, value.stride, strict=True))
    return math.ceil(elements * dtype_of(value.dtype).itemsize)

"""Floating numbers that TorchInductor would compute while it lowers a graph.

Where an op's operands are known numbers, such as the last element of a `torch.arange`, TorchInductor computes it in
double precision and puts the result in its place. A kernel of eager's rounds each op to the dtype at hand. It also
divides by a tensor's element, where it multiplies by the reciprocal of a number that is an argument of the graph's op.
"""

from typing import Any

import torch
from torch._inductor.index_propagation import IndexPropagation, IndexPropVar

_INDUCTOR_PROPAGATED = IndexPropagation.propagate_sympy


def propagate_sympy(handler: IndexPropagation, name: str, args: Any, kwargs: Any) -> Any:
    """TorchInductor's method of this name, by which floating numbers are known only if they are given, as constants or
    sizes (the divisor of a mean), or computed of such. All others are left to kernels."""
    found = _INDUCTOR_PROPAGATED(handler, name, args, kwargs)
    if not (isinstance(found, IndexPropVar) and found.is_symbolic and found.value.is_constant()):
        return found
    floating = found.value.dtype.is_floating_point
    given = [getattr(a, "is_given", False) for a in args if isinstance(a, IndexPropVar)]
    found.is_given = all(given) if given else name == "constant" or floating
    if found.is_given or not floating:
        return found
    if name not in ("identity", "to_dtype"):
        return handler.fallback(name, args, kwargs)
    return handler.wrap(_converted(handler._inner, int(args[0].value.expr), found.value.dtype))


def _converted(inner: Any, number: int, dtype: torch.dtype) -> Any:
    """A position in a floating dtype, which a half type takes by way of single precision."""
    made = inner.to_dtype(inner.constant(number, torch.int64), torch.promote_types(dtype, torch.float32))
    return made if dtype.itemsize >= torch.float32.itemsize else inner.to_dtype(made, dtype)

"""Numbers as a tensor holds them."""

import math

import torch


def in_dtype(number: float, dtype: torch.dtype) -> float:
    """A positive number rounded to a floating dtype, as the compiler's tensors that have no values cannot tell it."""
    info = torch.finfo(dtype)
    step = max(math.ldexp(0.5, math.frexp(number)[1]), info.smallest_normal) * info.eps
    return round(number / step) * step

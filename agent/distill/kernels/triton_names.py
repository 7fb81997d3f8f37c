"""How Triton source names dtypes and numbers."""

import math

import torch

_DTYPES = {torch.bool: "tl.int1"}


def triton_dtype(dtype: torch.dtype) -> str:
    """`torch.float32` → "tl.float32"."""
    return _DTYPES.get(dtype) or str(dtype).replace("torch.", "tl.")


def literal(number: bool | int | float) -> str:
    """A number as source; infinities and NaN are not literals in Python."""
    if isinstance(number, float) and not math.isfinite(number):
        return f"float('{number}')"
    return repr(number)

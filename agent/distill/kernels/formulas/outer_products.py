"""Products of one column and one row, such as those of frequencies and positions in a rotary embedding.

Each element of the result is one product, rounded once, by whichever library: no call is needed for it.
"""

from typing import Any

import torch


def mm(a: torch.Tensor, b: torch.Tensor, **given: Any) -> torch.Tensor:
    """As `aten.mm` of (M, 1) and (1, N), and `aten.bmm` of (B, M, 1) and (B, 1, N). NotImplemented for others."""
    if a.shape[-1] != 1 or given or not a.dtype.is_floating_point or a.dtype != b.dtype:
        return NotImplemented
    return (a * b).contiguous()

"""Whether outputs agree at a level, told by the device without a wait: the host reads the answers of many draws at
once.

Where several processes use a GPU, each wait for it takes milliseconds: one draw that was compared at once took 11 to
17 ms beside five other processes (`benchmarks/passbench/h100_table`).
"""

from collections.abc import Sequence

import torch

from passbench.checking.tolerance import tolerance


def agree(actual: Sequence[torch.Tensor], expected: Sequence[torch.Tensor], levels: Sequence[int]) -> torch.Tensor:
    """For each of the levels whether all outputs agree at it, as `passbench.checking.tolerance.close` does: booleans on
    the outputs' device."""
    found = [_agree(a, b, levels) for a, b in zip(actual, expected, strict=True)]
    return torch.stack(found).all(0) if found else torch.ones(len(levels), dtype=torch.bool)


def _agree(a: torch.Tensor, b: torch.Tensor, levels: Sequence[int]) -> torch.Tensor:
    dtype = b.dtype
    if not (dtype.is_floating_point or dtype.is_complex):
        return (a == b).all().expand(len(levels))
    wide = torch.complex128 if dtype.is_complex else torch.float64
    a, b = a.to(wide), b.to(wide)
    same = (a == b) | (torch.isnan(a) & torch.isnan(b))
    finite = torch.isfinite(a) & torch.isfinite(b)
    apart, size, found = (a - b).abs(), b.abs(), []
    for level in levels:
        allowed = tolerance(level, dtype)
        near = same if allowed is None else same | (finite & (apart <= allowed.atol + allowed.rtol * size))
        found.append(near.all())
    return torch.stack(found)

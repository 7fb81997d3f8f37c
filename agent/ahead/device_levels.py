"""Whether outputs agree at a level, and how much of what is allowed they take, told by the device without a wait: the
host reads the answers of many draws at once.

Where several processes use a GPU, each wait for it takes milliseconds: one draw that was compared at once took 11 to
17 ms beside five other processes (`benchmarks/passbench/h100_table`).
"""

import math
from collections.abc import Sequence

import torch

from passbench.checking.tolerance import STRICT, tolerance

Outputs = Sequence[torch.Tensor]
"""Those of one call."""


def agree(actual: Sequence[Outputs], expected: Sequence[Outputs], levels: Sequence[int]) -> torch.Tensor:
    """For each draw and each of the levels whether all outputs agree at it, as `passbench.checking.tolerance.close`
    does: booleans of shape (draws, levels) on the outputs' device. Outputs have the same shape in all draws."""
    found = [_agree(a, b, levels) for a, b in _by_output(actual, expected)]
    return torch.stack(found).all(0) if found else torch.ones(len(actual), len(levels), dtype=torch.bool)


def _by_output(actual: Sequence[Outputs], expected: Sequence[Outputs]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Each output's values in all draws, and the expected ones, both of shape (draws, elements)."""
    return [
        (torch.stack(a).unsqueeze(1).flatten(1), torch.stack(b).unsqueeze(1).flatten(1))
        for a, b in zip(zip(*actual, strict=True), zip(*expected, strict=True), strict=True)
    ]


def _agree(a: torch.Tensor, b: torch.Tensor, levels: Sequence[int]) -> torch.Tensor:
    dtype = b.dtype
    if not (dtype.is_floating_point or dtype.is_complex):
        return (a == b).all(1, keepdim=True).expand(-1, len(levels))
    wide = torch.complex128 if dtype.is_complex else torch.float64
    a, b = a.to(wide), b.to(wide)
    same = (a == b) | (torch.isnan(a) & torch.isnan(b))
    finite = torch.isfinite(a) & torch.isfinite(b)
    apart, size, found = (a - b).abs(), b.abs(), []
    for level in levels:
        allowed = tolerance(level, dtype)
        near = same if allowed is None else same | (finite & (apart <= allowed.atol + allowed.rtol * size))
        found.append(near.all(1))
    return torch.stack(found, 1)


def largest_share(actual: Sequence[Outputs], expected: Sequence[Outputs]) -> torch.Tensor:
    """Of what is allowed at t = -5, the largest share that an element's difference takes in each draw, on the outputs'
    device. NaN where an output is in half precision, which has one such share or two for most differences, or none."""
    found = [_largest_share(a, b) for a, b in _by_output(actual, expected)]
    return torch.stack(found).amax(0) if found else torch.zeros(len(actual), dtype=torch.float64)


def _largest_share(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    nothing, dtype = torch.zeros(len(b), dtype=torch.float64, device=b.device), b.dtype
    if not (dtype.is_floating_point or dtype.is_complex) or not b.numel():
        return nothing  # equal where it is right
    if dtype.itemsize < 4:
        return nothing + math.nan
    wide = torch.complex128 if dtype.is_complex else torch.float64
    a, b, allowed = a.to(wide), b.to(wide), tolerance(STRICT, dtype)
    if allowed is None:
        return nothing
    share = (a - b).abs() / (allowed.atol + allowed.rtol * b.abs())
    return torch.where(torch.isfinite(a) & torch.isfinite(b), share, 0.0).amax(1)

"""Scatters without atomics or stores to computed places: each element of the result looks at all places of its row.

That is one kernel, which may share what comes before and behind, where eager copies the tensor and writes to the copy.
"""

import math

import torch

from agent.distill.kernels.formulas.numbers import in_dtype

_MOST = 2**22
"""Places of a row times elements, at most."""
_CHAIN = 8
"""So many places of a row are looked at one after another, more of them as a reduction."""


def scatter(x: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor | float) -> torch.Tensor:
    """As `aten.scatter` of a tensor or a number: `x` with its elements at `index` along `dim` replaced.

    Where a place comes twice, the last element counts; eager leaves open which one does. NotImplemented, and so
    TorchInductor's own way, where `index` has not all rows of `x`, and for more than `_MOST` steps.
    """
    if x.dim() == 0 or index.dim() != x.dim():
        return NotImplemented
    dim %= x.dim()
    rows = [d for d in range(x.dim()) if d != dim]
    if any(index.shape[d] != x.shape[d] for d in rows) or not 0 < index.shape[dim] * x.numel() <= _MOST:
        return NotImplemented
    count, numbers = index.shape[dim], torch.arange(x.shape[dim], device=x.device, dtype=index.dtype)
    along = numbers.view([-1 if d == dim else 1 for d in range(x.dim())])
    if isinstance(source, torch.Tensor):
        for d in range(x.dim()):
            source = source.narrow(d, 0, index.shape[d])
        new = source
    else:
        new = torch.full((), _as_stored(source, x.dtype), dtype=x.dtype, device=x.device).expand(index.shape)
    if count <= _CHAIN:
        for place in range(count):
            x = torch.where(index.narrow(dim, place, 1) == along, new.narrow(dim, place, 1), x)
        return x
    here = index.movedim(dim, -1).unsqueeze(dim) == along.unsqueeze(-1)
    if not isinstance(source, torch.Tensor):
        return torch.where(here.any(-1), new.narrow(dim, 0, 1), x)
    places = torch.arange(count, device=x.device, dtype=torch.int32)
    latest = torch.where(here, places, -1).amax(-1)
    return torch.where(latest >= 0, torch.gather(source, dim, latest.clamp(min=0).long()), x)


def _as_stored(number: float, dtype: torch.dtype) -> float:
    """A number as it is in a tensor of this dtype."""
    if not dtype.is_floating_point or not math.isfinite(number) or number == 0:
        return number
    return math.copysign(in_dtype(abs(number), dtype), number)

"""Writes to places that are computed, as reductions: each element of the result looks at all places.

TorchInductor adds by atomics, in any order and in half types rounded each time. Eager's CUDA kernels
(`index_put_with_sort_kernel` in `Indexing.cu`) sort the places and add what belongs to one in the order in which it is
given. A kernel that goes over all places in this order has the same bits, and is no slower where they are few: eager
launches a dozen kernels for the sort.
"""

import math
from collections.abc import Sequence

import torch

from agent.distill.eager.op_effects import WARP_SLICE

_MOST = 2**25
"""Places times elements, at most, where each element of the result goes over all places."""
_SOUGHT, _TOGETHER, _FEW = 2**21, 128, 8
"""The same where programs look for what belongs to a place (`kernels.place_sums`), so many elements of a slice at a
time, a power of two. They do not where places are few."""
_CHAIN = 8
"""Less places are added without a reduction, which the scheduler would write out without the roundings."""
_FLOATS = (torch.float32, torch.float16, torch.bfloat16)


def index_put(
    x: torch.Tensor, indices: Sequence[torch.Tensor | None], values: torch.Tensor, accumulate: bool = False
) -> torch.Tensor:
    """As `aten.index_put`: `x` with `values` at, or added to, the places that `indices` say.

    Where a place comes twice and nothing is added, the last value counts; eager leaves open which one does.
    NotImplemented, and so TorchInductor's own way, for masks, for dimensions that are no neighbours, for sums in other
    dtypes than floats of up to 32 bits, and for more steps than `_MOST` or `_SOUGHT`.
    """
    if len(indices) == 1 and indices[0] is not None and indices[0].dtype == torch.bool:
        return _filled(x, indices[0], values, accumulate)
    given = [d for d, index in enumerate(indices) if index is not None]
    used = [index for index in indices if index is not None]
    if not used or given[-1] - given[0] >= len(given) or any(i.dtype in (torch.bool, torch.uint8) for i in used):
        return NotImplemented
    shape = torch.broadcast_shapes(*(index.shape for index in used))
    count, first, last = math.prod(shape), given[0], given[-1] + 1
    before, behind = x.shape[:first], x.shape[last:]
    slices = math.prod(behind)
    together = min(slices & -slices, _TOGETHER)
    sought = accumulate and math.prod(x.shape[first:last]) >= _FEW and count * x.numel() <= _SOUGHT * together
    if not (0 < count * x.numel() <= _MOST or sought) or (accumulate and x.dtype not in _FLOATS):
        return NotImplemented
    here = _matches(x, [index.expand(shape).reshape(count) for index in used], first, last)
    added = values.to(x.dtype).expand(*before, *shape, *behind).reshape(*before, count, *behind).movedim(first, -1)
    if not accumulate:
        return _replaced(x, here, added, first, last)
    added = added.reshape(*before, *[1] * len(used), *behind, count)
    steps = torch.where(here, added.float(), 0.0).expand(*x.shape, count)
    wide = x.float()
    if slices <= WARP_SLICE:
        total = _in_turn(torch.zeros_like(wide), steps) if count < _CHAIN else steps.sum(-1)
        return (wide + total).to(x.dtype)
    if count < _CHAIN:
        return _in_turn(wide, steps, x.dtype).to(x.dtype)
    return torch.cat([wide[..., None], steps], -1).sum(-1).to(x.dtype)


def _filled(x: torch.Tensor, mask: torch.Tensor, values: torch.Tensor, accumulate: bool) -> torch.Tensor:
    """One number at all places of a mask of the first dimensions, as a choice that later kernels may compute again.
    TorchInductor writes a buffer, which ends a kernel."""
    if accumulate or values.numel() != 1 or mask.shape != x.shape[: mask.dim()] or x.dim() == 0:
        return NotImplemented
    mask = mask.reshape(*mask.shape, *[1] * (x.dim() - mask.dim()))
    return torch.where(mask, values.reshape(()).to(x.dtype), x)


def _matches(x: torch.Tensor, indices: list[torch.Tensor], first: int, last: int) -> torch.Tensor:
    """Whether each of the places is that of an element, in the last dimension; the others are those of `x`, or 1."""
    found = None
    for d, index in zip(range(first, last), indices, strict=True):
        index = torch.where(index < 0, index + x.shape[d], index)
        numbers = torch.arange(x.shape[d], device=x.device, dtype=index.dtype)
        shape = [x.shape[d] if each == d else 1 for each in range(x.dim())]
        match = numbers.view(*shape, 1) == index
        found = match if found is None else found & match
    return found


def _replaced(x: torch.Tensor, here: torch.Tensor, added: torch.Tensor, first: int, last: int) -> torch.Tensor:
    count = added.shape[-1]
    numbers = torch.arange(count, device=x.device, dtype=torch.int32)
    latest = torch.where(here, numbers, -1).amax(-1).expand(x.shape)
    places = [torch.arange(n, device=x.device).view(-1, *[1] * (x.dim() - d - 1)) for d, n in enumerate(x.shape)]
    taken = [*places[:first], *places[last:], latest.clamp(min=0).long()]
    return torch.where(latest >= 0, torch.ops.aten._unsafe_index.Tensor(added, taken), x)


def _in_turn(total: torch.Tensor, steps: torch.Tensor, rounds: torch.dtype = torch.float32) -> torch.Tensor:
    """The total and what lies along the last dimension, one after another; each sum is rounded to a dtype."""
    for each in steps.unbind(-1):
        total = (total + each).to(rounds).float()
    return total

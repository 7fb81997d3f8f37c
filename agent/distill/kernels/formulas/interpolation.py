"""Bilinear interpolation as eager's CUDA kernels compute it: `UpSampleBilinear2d.cu` and `UpSample.cuh`.

TorchInductor calls a library for it where it schedules for CPU tensors, and on a GPU takes a formula of its own.
"""

from collections.abc import Sequence

import torch
from torch._inductor.inductor_prims import fma
from torch._prims_common import suggest_memory_format

Places = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]
"""Along a dimension, for each place of the result: the two places that it lies between, and the shares of these."""


def _single(number: float) -> float:
    """A number rounded to single precision, as the compiler's tensors that have no values cannot tell it."""
    with torch.utils._python_dispatch._disable_current_modes():
        return torch.tensor(number, dtype=torch.float32).item()


def _places(given: int, made: int, align_corners: bool, scale: float | None, device: torch.device) -> Places:
    """For `made` places of the result, of `given` ones."""
    number = torch.arange(made, device=device, dtype=torch.float32)
    if align_corners:
        source = number * (_single((given - 1) / (made - 1)) if made > 1 else 0.0)
    else:
        step = _single(1.0 / scale if scale is not None and scale > 0 else given / made)
        source = fma(number + 0.5, torch.full_like(number, step), torch.full_like(number, -0.5))
        source = torch.where(source < 0, 0.0, source)
    first = source.to(torch.int64)
    behind = source - first.to(torch.float32)
    return first, torch.where(first < given - 1, first + 1, first), 1 - behind, behind


def upsample_bilinear2d(
    x: torch.Tensor,
    size: Sequence[int],
    align_corners: bool,
    rows_scale: float | None = None,
    columns_scale: float | None = None,
) -> torch.Tensor:
    """As `aten.upsample_bilinear2d`: (N, C, H, W) to (N, C, *size), products and sums contracted as in eager's machine
    code. NotImplemented in double precision."""
    if x.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        return NotImplemented
    height, width = x.shape[2:]
    upper, lower, upper_share, lower_share = _places(height, size[0], align_corners, rows_scale, x.device)
    left, right, left_share, right_share = _places(width, size[1], align_corners, columns_scale, x.device)
    shape = [*x.shape[:2], *size]

    def taken(row: torch.Tensor, column: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten._unsafe_index.Tensor(x, [None, None, row[:, None], column]).float()

    def between(row: torch.Tensor) -> torch.Tensor:
        return fma(left_share.expand(shape), taken(row, left), right_share * taken(row, right))

    found = fma(upper_share[:, None].expand(shape), between(upper), lower_share[:, None] * between(lower))
    return found.to(x.dtype).contiguous(memory_format=suggest_memory_format(x))

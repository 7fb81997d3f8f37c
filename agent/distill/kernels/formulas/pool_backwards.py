"""The backwards of average pools: NotImplemented, and so TorchInductor's own, where that has eager's values."""

from collections.abc import Sequence

import torch
from torch._prims_common import suggest_memory_format

from agent.distill.kernels.index_expressions import Unsupported


def avg_pool2d_backward(
    grad: torch.Tensor,
    x: torch.Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor: int | None,
) -> torch.Tensor:
    """Raises Unsupported where eager rounds otherwise, takes other windows or divides by other numbers."""
    if any(padding) and suggest_memory_format(x) == torch.channels_last:
        raise Unsupported("eager's kernel for channels-last memory takes a gradient's windows without the padding")
    if x.dtype.itemsize < 4:
        raise Unsupported("eager rounds each quotient of an average pool's gradient to the half type")
    return avg_pool3d_backward(grad, x, kernel, stride, padding, ceil_mode, count_include_pad, divisor)


def avg_pool3d_backward(
    grad: torch.Tensor,
    x: torch.Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor: int | None,
) -> torch.Tensor:
    """Raises Unsupported where eager divides by other numbers."""
    if count_include_pad and divisor is None and _reaches_beyond(grad, x, kernel, stride or kernel, padding):
        raise Unsupported("eager divides by what a window has before the padding's end, TorchInductor by all of it")
    return NotImplemented


def _reaches_beyond(
    grad: torch.Tensor, x: torch.Tensor, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int]
) -> bool:
    """Whether the last window ends behind the padding, as `ceil_mode` has it."""
    n = len(kernel)
    places = zip(grad.shape[-n:], x.shape[-n:], kernel, stride, padding, strict=True)
    return any((pooled - 1) * step + width > size + 2 * pad for pooled, size, width, step, pad in places)

"""The backwards of average pools, as eager's CUDA kernels compute them (`AveragePool2d.cu`, `AveragePool3d.cu`).

A place gets a quotient of each window that covers it. In two dimensions the windows of a place are shifted slices of
the gradient, with zeros beyond its borders. Their addresses differ by constants, where TorchInductor's own formula has
a computed address for each.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch._inductor import inductor_prims
from torch._prims_common import suggest_memory_format

from agent.distill.kernels.index_expressions import Unsupported

_ANEW = 2**17
"""Of fewer places a gradient is computed anew in each of their windows: that takes less than another kernel."""
_MOST_WINDOWS = 25
"""So many windows of a place are written out, as in TorchInductor."""


@dataclass(frozen=True)
class _Windows:
    """The windows of a pool along one dimension: `pooled` of them, `width` places wide and `step` apart.

    The first one begins `padding` places before the `size` places of the input. A gradient looks for its windows as if
    it were `shift` places further on. `included`: padding counts.
    """

    size: int
    pooled: int
    width: int
    step: int
    padding: int
    shift: int
    included: bool

    @property
    def most(self) -> int:
        """How many windows cover a place, at most."""
        return -(-self.width // self.step)

    @property
    def before(self) -> int:
        """How many windows that do not exist the first place has before its first one, and so all others at most."""
        return max(0, -(-(self.width - self.shift - self.step) // self.step))

    @property
    def first(self) -> int:
        """Where the first place is among all windows, each repeated `step` times, with those `before`."""
        return self.shift - self.width + self.step + self.before * self.step

    @property
    def behind(self) -> int:
        """How many windows that do not exist the last place has behind its last one."""
        last = (self.first + self.size - 1) // self.step + self.most
        return max(0, last - self.before - self.pooled)

    @property
    def lengths(self) -> set[int]:
        """How many places of windows count."""
        return {self._end(n) - self._start(n) for n in range(self.pooled)}

    def _start(self, window: int) -> int:
        start = window * self.step - self.padding
        return start if self.included else max(start, 0)

    def _end(self, window: int) -> int:
        end = window * self.step - self.padding + self.width
        return min(end, self.size + (self.padding if self.included else 0))

    def length(self, device: torch.device) -> torch.Tensor:
        """How many places of each window count, as float32, also of those that do not exist: at least one."""
        first, last = -self.before, self.pooled + self.behind
        start = torch.arange(first, last, device=device, dtype=torch.int32) * self.step - self.padding
        end = (start + self.width).clamp(max=self.size + (self.padding if self.included else 0))
        start = start if self.included else start.clamp(min=0)
        return (end - start).clamp(min=1).to(torch.float32)

    def of_places(self, values: torch.Tensor, dim: int) -> list[torch.Tensor]:
        """Of values that each window has along `dim`, those that do not exist too: for the first, the second, … window
        of each place its value."""
        if self.step > 1:
            repeated = values.unsqueeze(dim + 1)
            shape = [*repeated.shape]
            shape[dim + 1] = self.step
            values = repeated.expand(shape).flatten(dim, dim + 1)
        return [values.narrow(dim, self.first + n * self.step, self.size) for n in range(self.most)]

    def is_covered(self, device: torch.device) -> torch.Tensor | None:
        """Whether the last of the windows of each place covers it; None if all do."""
        within = self.width - self.step * (self.most - 1)
        if within == self.step:
            return None
        places = torch.arange(self.size, device=device, dtype=torch.int32) + self.shift
        return places % self.step < within


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
    """As `aten.avg_pool2d_backward`. Raises Unsupported where a place has many windows.

    Eager rounds each quotient, and the divisor, to the dtype, and adds quotients in float32. Its kernel for
    channels-last memory looks for windows as if nothing was padded.
    """
    memory = suggest_memory_format(x)
    windows = [
        _Windows(size, pooled, width, step, pad, 0 if memory == torch.channels_last else pad, count_include_pad)
        for size, pooled, width, step, pad in zip(
            x.shape[-2:], grad.shape[-2:], *map(_of_both, (kernel, stride or kernel, padding or (0,))), strict=True
        )
    ]
    rows, columns = windows
    if rows.most * columns.most > _MOST_WINDOWS:
        raise Unsupported("a place in many windows of an average pool")
    if rows.most * columns.most > 1 and x.numel() > _ANEW:
        grad = inductor_prims.force_stride_order(grad, grad.stride())  # TorchInductor keeps what it has computed here
    dim = grad.dim() - 2
    wide = grad.float() if grad.dtype.itemsize < 4 else grad
    edges = [columns.before, columns.behind, rows.before, rows.behind]
    if any(edges):
        wide = torch.ops.aten.constant_pad_nd.default(wide, edges, 0.0)
    parts = [part for row in rows.of_places(wide, dim) for part in columns.of_places(row, dim + 1)]
    quotients = _quotients(parts, grad, rows, columns, divisor)
    below, beside = (one.is_covered(x.device) for one in windows)
    total = torch.zeros((), dtype=wide.dtype, device=x.device)
    for number, quotient in enumerate(quotients):
        quotient = quotient.to(grad.dtype).to(wide.dtype)
        row, column = divmod(number, columns.most)
        if below is not None and row == rows.most - 1:
            quotient = torch.where(below[:, None], quotient, 0.0)
        if beside is not None and column == columns.most - 1:
            quotient = torch.where(beside, quotient, 0.0)
        total = total + quotient
    return total.to(x.dtype).contiguous(memory_format=memory)


def _of_both(numbers: Sequence[int]) -> Sequence[int]:
    """Of rows and of columns; one number is that of both."""
    return numbers if len(numbers) == 2 else (*numbers, *numbers)


def _quotients(
    parts: Sequence[torch.Tensor], grad: torch.Tensor, rows: _Windows, columns: _Windows, divisor: int | None
) -> list[torch.Tensor]:
    """What the windows of a place have, each divided: the first row of windows, then the next ones."""
    numbers = {height * width for height in rows.lengths for width in columns.lengths} if divisor is None else {divisor}
    multiplies = all(_is_by_reciprocal(number, grad.dtype) for number in numbers)
    if len(numbers) == 1:
        (number,) = numbers
        if multiplies:
            return [part * (1.0 / number) for part in parts]
        # Of a number that it knows TorchInductor multiplies by the reciprocal.
        unknown = torch.arange(columns.size, device=grad.device, dtype=torch.int32).clamp(number, number)
        return [part / unknown.to(grad.dtype).to(part.dtype) for part in parts]
    heights, widths = (one.of_places(one.length(grad.device), 0) for one in (rows, columns))
    lengths = [height[:, None] * width for height in heights for width in widths]
    if multiplies:
        return [part * length.reciprocal() for part, length in zip(parts, lengths, strict=True)]
    return [part / length.to(grad.dtype).to(part.dtype) for part, length in zip(parts, lengths, strict=True)]


@cache
def _is_by_reciprocal(number: int, dtype: torch.dtype) -> bool:
    """Whether all quotients by a number are products with its reciprocal in float32, rounded to the dtype. That is so
    for powers of two, and for most numbers in half types, whose values are tried."""
    if dtype.itemsize > 2 or number < 1:
        return math.frexp(number)[0] in (0.5, -0.5)
    with torch.utils._python_dispatch._disable_current_modes():
        values = torch.arange(-(2**15), 2**15, dtype=torch.int16).view(dtype).float()
        quotients = (values / torch.tensor(number).to(dtype).float()).to(dtype)
        products = (values * (1.0 / torch.tensor(number, dtype=torch.float32))).to(dtype)
        return torch.equal(quotients.nan_to_num(7.0), products.nan_to_num(7.0))


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
    """NotImplemented, and so TorchInductor's own. Raises Unsupported where eager divides by other numbers."""
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

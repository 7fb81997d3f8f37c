"""When two outputs agree: the tolerance ladder of docs/design.md, "Compare".

At level t, |a - b| <= atol(t) + rtol(t) * |b| with atol(t) = 10^t and rtol(t) = 10^(k t), k by dtype.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch

LEVELS = range(-10, 2)
"""Levels at which agreement is decided. Scores have higher levels, at which a variant is correct if it is at 1."""

STRICT = -5
"""The level of PyTorch's own tests. A variant that is not right at it says which element differs most, and how well
eager agrees with itself."""

_K = {
    torch.float16: 3 / 5,
    torch.complex32: 3 / 5,
    torch.bfloat16: 1.796 / 5,
    torch.float32: 5.886 / 5,
    torch.complex64: 5.886 / 5,
    torch.float64: 7 / 5,
    torch.complex128: 7 / 5,
    **dict.fromkeys((torch.quint8, torch.qint8, torch.qint32, torch.quint4x2), 5.886 / 5),
}


class Tolerance(NamedTuple):
    """Absolute and relative tolerance."""

    atol: float
    rtol: float


def tolerance(t: int, dtype: torch.dtype) -> Tolerance | None:
    """Tolerances at level t, None for dtypes that must be equal."""
    k = _K.get(dtype)
    if k is None:
        return None
    double = dtype in (torch.float64, torch.complex128)
    return Tolerance(10.0 ** (k * t if double else t), 10.0 ** (k * t))


def close(actual: torch.Tensor, expected: torch.Tensor, t: int) -> bool:
    """Whether `actual` agrees with `expected` (same dtype and shape) at level t; NaN and infinities must be in the
    same places, infinities with the same sign."""
    return _Difference.of(actual, expected).within(t)


_SAFE = 1 - 1e-5
"""The part of a tolerance that `surely_close` uses up. Single precision errs by a few parts in 10^7 of |a - b| and of
|b|, so what it finds within this part is within the tolerance in double precision."""


def surely_close(actual: torch.Tensor, expected: torch.Tensor, t: int) -> bool:
    """True only if `close` is true; told in single precision, at a fraction of the cost.

    False says nothing. NaN, infinities and dtypes that must be equal always get False.
    """
    allowed = tolerance(t, expected.dtype)
    if allowed is None or expected.dtype not in _SINGLE:
        return False
    a, b = actual.to(torch.float32), expected.to(torch.float32)
    limit = b.abs().mul_(allowed.rtol * _SAFE).add_(allowed.atol * _SAFE)
    return bool(((a - b).abs_() < limit).all())  # not <=: both may overflow


_SINGLE = (torch.float16, torch.bfloat16, torch.float32)


class _Difference(NamedTuple):
    """|a - b| and |b| over the elements where both are finite, in double precision; `nonfinite`: whether NaN and
    infinities agree; `equal`: whether everything does."""

    dtype: torch.dtype
    delta: torch.Tensor
    magnitude: torch.Tensor
    nonfinite: bool
    equal: bool

    @classmethod
    def of(cls, actual: torch.Tensor, expected: torch.Tensor) -> "_Difference":
        if torch.equal(_bits(actual), _bits(expected)):
            nothing = torch.zeros(0, dtype=torch.float64, device=actual.device)
            return cls(expected.dtype, nothing, nothing, True, True)
        a, b = _wide(actual), _wide(expected)
        finite = torch.isfinite(b)
        nonfinite = torch.equal(finite, torch.isfinite(a))
        if nonfinite:
            rest_a, rest_b = a[~finite], b[~finite]
            nonfinite = bool(((rest_a == rest_b) | (torch.isnan(rest_a) & torch.isnan(rest_b))).all())
        both = finite & torch.isfinite(a)
        zero = torch.zeros((), dtype=torch.float64, device=b.device)
        delta = torch.where(both, (a - b).abs(), zero)
        return cls(expected.dtype, delta, torch.where(both, b.abs(), zero), nonfinite, False)

    def within(self, t: int) -> bool:
        if self.equal:
            return True
        allowed = tolerance(t, self.dtype)
        if allowed is None:  # integers differ if their bits do; double precision could not tell large ones apart
            return self.dtype.is_floating_point and self.nonfinite and bool((self.delta == 0).all())
        return self.nonfinite and bool((self.delta <= allowed.atol + allowed.rtol * self.magnitude).all())


def _bits(x: torch.Tensor) -> torch.Tensor:
    flat = x.reshape(-1)
    dense = flat.stride(0) == 1  # numbers from several calls are not, nor need one element be
    return (flat if dense else flat.clone(memory_format=torch.contiguous_format)).view(torch.uint8)


def _wide(x: torch.Tensor) -> torch.Tensor:
    if x.is_complex():
        return x.to(torch.complex128)
    return x.to(torch.float64)


@dataclass(frozen=True)
class Worst:
    """The element that agrees least: which call and output it is in, its position, and both values as text. An `output`
    below 0 is an input after the call: -1 the first, -2 the second."""

    draw: int
    output: int
    index: tuple[int, ...]
    expected: str
    actual: str

    def __str__(self) -> str:
        what = f"output {self.output}" if self.output >= 0 else f"input {-1 - self.output}, written in place,"
        place = f"{what}{list(self.index)}" if self.index else what
        return f"{place} of draw {self.draw}: expected {self.expected}, got {self.actual}"


@dataclass
class Comparison:
    """Agreement over outputs and draws as they come in.

    `t_min` is the smallest level at which everything seen so far agrees, None once something does not at any level.
    `levels` has the same of each output whose bits have differed.
    `new_nan` says that a NaN stood where eager has none, which counts as a runtime error, not as inaccuracy.
    """

    t_min: int | None = LEVELS[0]
    max_abs_error: float = 0.0
    new_nan: bool = False
    worst: Worst | None = None
    levels: dict[int, int | None] = field(default_factory=dict)
    _worst_excess: float = field(default=0.0, repr=False)

    def level_of(self, output: int) -> int | None:
        """The smallest level at which all that was seen of an output agrees."""
        return self.levels.get(output, LEVELS[0])

    def add(
        self, actual: torch.Tensor, expected: torch.Tensor, draw: int, output: int, *, of_calls: bool = False
    ) -> None:
        """Take in one output of one draw. Dtypes and shapes must be the same: ValueError otherwise.

        With `of_calls` the first dimension counts calls of the draw, and the place of the worst element is without it.
        """
        if actual.dtype != expected.dtype or actual.shape != expected.shape:
            raise ValueError("only outputs of one dtype and shape can be compared")
        difference = _Difference.of(actual, expected)
        if difference.equal:
            return
        before = self.level_of(output)
        level = self.levels[output] = None if before is None else smallest_level(difference, before)
        self.t_min = None if None in (level, self.t_min) else max(level, self.t_min)
        if difference.delta.numel():
            self.max_abs_error = max(self.max_abs_error, float(difference.delta.max()))
        if actual.is_floating_point() or actual.is_complex():
            self.new_nan |= bool((torch.isnan(actual) & ~torch.isnan(expected)).any())
        self._note_worst(difference, actual, expected, draw, output, of_calls)

    def _note_worst(
        self,
        difference: _Difference,
        actual: torch.Tensor,
        expected: torch.Tensor,
        draw: int,
        output: int,
        of_calls: bool,
    ) -> None:
        reference = tolerance(-5, difference.dtype) or Tolerance(1.0, 0.0)
        excess = difference.delta / (reference.atol + reference.rtol * difference.magnitude)
        if not difference.nonfinite:
            a, b = _wide(actual), _wide(expected)
            differs = (a != b) & ~(torch.isnan(a) & torch.isnan(b))
            excess = torch.where(differs & ~(torch.isfinite(a) & torch.isfinite(b)), torch.inf, excess)
        if not excess.numel():
            return
        flat = int(excess.argmax())
        value = float(excess.flatten()[flat])
        if value > self._worst_excess:
            self._worst_excess = value
            index = tuple(int(i) for i in np.unravel_index(flat, tuple(expected.shape)))
            place = index[1:] if of_calls else index
            self.worst = Worst(draw, output, place, _text(expected[index]), _text(actual[index]))


def smallest_level(difference: _Difference, at_least: int) -> int | None:
    """The smallest level from `at_least` on at which the difference is within tolerance, by bisection: both
    tolerances grow with t, so what passes at a level passes at all above. None if the last level fails."""
    low, high = LEVELS.index(at_least), len(LEVELS)
    while low < high:  # every level below `low` fails or is not asked for, `high` passes or is past the end
        middle = (low + high) // 2
        if difference.within(LEVELS[middle]):
            high = middle
        else:
            low = middle + 1
    return LEVELS[high] if high < len(LEVELS) else None


def t_min(actual: Sequence[torch.Tensor], expected: Iterable[torch.Tensor]) -> int | None:
    """The smallest level in -10..1 at which all outputs of one draw agree, None if they never do."""
    comparison = Comparison()
    for number, (a, b) in enumerate(zip(actual, expected, strict=True)):
        comparison.add(a, b, 0, number)
    return comparison.t_min


def _text(value: torch.Tensor) -> str:
    number = value.item()
    return f"{number:.9g}" if isinstance(number, float) else str(number)

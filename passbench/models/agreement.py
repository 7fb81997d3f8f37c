"""Whether a way of running a graph is right: against eager, and against the same graph in double precision.

A way is right if each of its outputs is about as near to double precision as eager's is: by the norm of the error, and
by the level at which all elements agree. Eager's own distance is the measure, so that a model whose outputs are
sensitive allows more than one whose outputs are not.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import fx

from passbench.checking.tolerance import Comparison
from passbench.double_precision import in_double, relative_error
from storage.errors import in_one_line

ALLOWED = 2.0
"""How many times eager's error against double precision a recipe's may be; rounding elsewhere is no fault by itself."""
LEVELS_MORE = 1
"""How many levels above eager's the recipe's may be, against double precision: what single elements may be further."""
ROUNDING_LEVEL = -4
"""A level that is never too high, however near eager is: a rounding or two elsewhere."""
FEW = 64
"""An output of fewer numbers says little of eager's error, which may be zero by luck: the model's largest counts."""
ROUNDINGS = {torch.float32: 4, torch.float16: 1, torch.bfloat16: 1}
"""Roundings (machine epsilons) that are never too far, however near eager is, by the outputs' dtype."""
ALLOWED_WITHOUT_DOUBLE = {torch.float16: 1e-2, torch.bfloat16: 4e-2, torch.float32: 1e-3}
"""Relative error against eager that a recipe may have where double precision cannot be had, by dtype."""


@dataclass(frozen=True)
class ModelErrors:
    """How near outputs are: `t_min` against eager as PassBench has it; relative errors and levels against double
    precision of eager and of the recipe, None where the graph does not run in it. `equal`: eager's bits, on all draws.
    `reason` says why it is not right, empty if it is."""

    equal: bool
    t_min: int | None
    error_eager: float | None
    error: float | None
    level_eager: int | None
    level: int | None
    reason: str


@dataclass
class Reference:
    """Inputs on which recipes are compared, with eager's outputs and the reference's."""

    draws: list[tuple[torch.Tensor, ...]]
    eager: list[list[torch.Tensor]]
    double: list[list[torch.Tensor]] | None
    why_no_double: str = ""
    _eager_side: "_Distance | None" = field(default=None, repr=False)

    def of(self, function: Callable[..., Sequence[torch.Tensor]], *, strict: bool = False) -> ModelErrors:
        """Errors of a function of the moving inputs. `strict` asks for eager's bits."""
        against = Comparison()
        equal = True
        made = []
        for number, draw in enumerate(self.draws):
            outputs = list(function(*draw))
            problem = _unlike(outputs, self.eager[number])
            if problem:
                return ModelErrors(False, None, None, None, None, None, problem)
            for place, (a, b) in enumerate(zip(outputs, self.eager[number], strict=True)):
                against.add(a, b, number, place)
                equal = equal and same_bits(a, b)
            made.append(outputs)
        if self.double is None:
            error_eager = error = level_eager = level = None
            reason = "" if equal else _too_far(made, self.eager)
        else:
            if self._eager_side is None:
                self._eager_side = _Distance.of(self.eager, self.double)
            side = _Distance.of(made, self.double)
            error_eager, level_eager = self._eager_side.largest, self._eager_side.level
            error, level = side.largest, side.level
            reason = "" if equal else self._further(side)
        if not reason and not equal:
            reason = _whole_numbers(made, self.eager, self.double or self.eager)
        if against.new_nan:
            reason = "NaN where eager has none"
        if strict and not equal:
            reason = f"not eager's bits: {against.worst}"
        return ModelErrors(equal, against.t_min, error_eager, error, level_eager, level, reason)

    def _further(self, side: "_Distance") -> str:
        """Where a recipe is too much further from double precision than eager; empty if nowhere."""
        eager = self._eager_side
        for place, x in enumerate(self.eager[0]):
            base = eager.errors[place] if x.numel() >= FEW else eager.largest
            if side.errors[place] > max(ALLOWED * base, _rounding(x.dtype)):
                return (
                    f"output {place} has error {side.errors[place]:.2e} against double precision, eager's is {base:.2e}"
                )
        if eager.level is None:
            return ""
        highest = max(eager.level + LEVELS_MORE, ROUNDING_LEVEL)
        if side.level is None or side.level > highest:
            return f"an element agrees with double precision at level {side.level}, eager's all do at {eager.level}"
        return ""


def reference(
    module: fx.GraphModule, moving: Sequence[torch.Tensor], held: Sequence[torch.Tensor], *, double: bool = True
) -> Reference:
    """Eager's outputs, and those in double precision if `double`, for the inputs given and for another draw of them.

    Double precision takes the memory of the graph's intermediate values in it, and of one parameter at a time. Where
    that is not there, or an operator has no such form, `double` is None and `why_no_double` says why.
    """
    draws = [tuple(moving), tuple(_other(x) for x in moving)]
    with torch.no_grad():
        eager = [[x.clone() for x in module.forward(*draw, *held)] for draw in draws]
        if not double:
            return Reference(draws, eager, None, "not asked for")
        try:
            precise = in_double(module)
            found = [[x.clone() for x in precise(*draw, *held)] for draw in draws]
        except (RuntimeError, TypeError, NotImplementedError, ValueError) as error:  # memory that is not there, too
            return Reference(draws, eager, None, in_one_line(error))
        return Reference(draws, eager, found)


def _other(x: torch.Tensor) -> torch.Tensor:
    """Another input of the kind: numbers of the same spread, or the same whole numbers and truths in other places."""
    if x.is_floating_point() and x.numel() > 1:
        spread, middle = x.float().std(), x.float().mean()
        new = (torch.randn(x.shape, device=x.device) * spread + middle).to(x.dtype)
    else:
        new = torch.roll(x, 1, -1) if x.dim() else x.clone()
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device).copy_(new)


def _rounding(dtype: torch.dtype) -> float:
    """The relative error that rounding alone makes."""
    return ROUNDINGS[dtype] * torch.finfo(dtype).eps if dtype in ROUNDINGS else 0.0


def _unlike(outputs: Sequence, expected: Sequence[torch.Tensor]) -> str:
    if len(outputs) != len(expected):
        return f"{len(outputs)} outputs, eager has {len(expected)}"
    for number, (a, b) in enumerate(zip(outputs, expected, strict=True)):
        mine = (a.dtype, tuple(a.shape), a.device) if isinstance(a, torch.Tensor) else type(a).__name__
        if mine != (b.dtype, tuple(b.shape), b.device):
            return f"output {number} is {mine}, eager's is {(b.dtype, tuple(b.shape), b.device)}"
    return ""


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors hold the same numbers; NaN is NaN, and zero has no sign."""
    return torch.equal(a, b) or bool(((a == b) | ((a != a) & (b != b))).all())


@dataclass(frozen=True)
class _Distance:
    """How far outputs are from double precision: the relative error of each output, the larger of both draws, and the
    smallest level at which all elements agree."""

    errors: tuple[float, ...]
    level: int | None

    @property
    def largest(self) -> float:
        return max(self.errors, default=0.0)

    @classmethod
    def of(cls, made: Sequence[Sequence[torch.Tensor]], double: Sequence[Sequence[torch.Tensor]]) -> "_Distance":
        errors, comparison = [0.0] * len(made[0]), Comparison()
        for number, (outputs, references) in enumerate(zip(made, double, strict=True)):
            for place, (a, b) in enumerate(zip(outputs, references, strict=True)):
                if a.is_floating_point() or a.is_complex():
                    errors[place] = max(errors[place], relative_error(a, b))
                    comparison.add(a, b.to(a.dtype), number, place)
        return cls(tuple(errors), comparison.t_min)


def _whole_numbers(
    made: Sequence[Sequence[torch.Tensor]],
    eager: Sequence[Sequence[torch.Tensor]],
    double: Sequence[Sequence[torch.Tensor]],
) -> str:
    """Outputs that are no floating-point numbers, such as the place of the largest, must be eager's or those of double
    precision, each element."""
    for outputs, expected, precise in zip(made, eager, double, strict=True):
        for number, (a, b, c) in enumerate(zip(outputs, expected, precise, strict=True)):
            if not a.is_floating_point() and not a.is_complex() and not bool(((a == b) | (a == c)).all()):
                return f"output {number} is not eager's"
    return ""


def _too_far(made: Sequence[Sequence[torch.Tensor]], eager: Sequence[Sequence[torch.Tensor]]) -> str:
    for outputs, expected in zip(made, eager, strict=True):
        for number, (a, b) in enumerate(zip(outputs, expected, strict=True)):
            allowed = ALLOWED_WITHOUT_DOUBLE.get(a.dtype, 0.0)
            if a.is_floating_point() and relative_error(a, b.to(torch.float64)) > allowed:
                return f"output {number} is further than {allowed:g} from eager's, relatively"
    return ""

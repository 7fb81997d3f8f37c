"""Whether a way of running a graph is right: against eager, and against the same graph in double precision."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import fx

from passbench.checking.tolerance import Comparison
from passbench.double_precision import in_double, relative_error

ALLOWED = 2.0
"""How many times eager's error against double precision a recipe's may be; rounding elsewhere is no fault by itself."""
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
    _eager_side: tuple[float, int | None] | None = field(default=None, repr=False)

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
                equal = equal and _same_bits(a, b)
            made.append(outputs)
        if self.double is None:
            error_eager = error = level_eager = level = None
            reason = "" if equal else _too_far(made, self.eager)
        else:
            if self._eager_side is None:
                self._eager_side = _against(self.eager, self.double)
            error_eager, level_eager = self._eager_side
            error, level = _against(made, self.double)
            near = error <= max(ALLOWED * error_eager, _rounding(self.eager))
            text = f"error {error:.2e} against double precision, eager's is {error_eager:.2e}"
            reason = "" if near or equal else text
        if not reason and not equal:
            reason = _whole_numbers(made, self.eager)
        if against.new_nan:
            reason = "NaN where eager has none"
        if strict and not equal:
            reason = f"not eager's bits: {against.worst}"
        return ModelErrors(equal, against.t_min, error_eager, error, level_eager, level, reason)


def reference(
    module: fx.GraphModule, moving: Sequence[torch.Tensor], held: Sequence[torch.Tensor], *, double: bool = True
) -> Reference:
    """Eager's outputs, and those in double precision if `double`, for the inputs given and for another draw of them."""
    draws = [tuple(moving), tuple(_other(x) for x in moving)]
    with torch.no_grad():
        eager = [[x.clone() for x in module.forward(*draw, *held)] for draw in draws]
        if not double:
            return Reference(draws, eager, None, "not asked for")
        try:
            precise = in_double(module)
            found = [[x.clone() for x in precise(*draw, *held)] for draw in draws]
        except (RuntimeError, TypeError, NotImplementedError, ValueError) as error:
            return Reference(draws, eager, None, f"{type(error).__name__}: {str(error).splitlines()[0]}")
        return Reference(draws, eager, found)


def _other(x: torch.Tensor) -> torch.Tensor:
    """Another input of the kind: numbers of the same spread, or the same whole numbers and truths in other places."""
    if x.is_floating_point() and x.numel() > 1:
        spread, middle = x.float().std(), x.float().mean()
        new = (torch.randn(x.shape, device=x.device) * spread + middle).to(x.dtype)
    else:
        new = torch.roll(x, 1, -1) if x.dim() else x.clone()
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device).copy_(new)


def _rounding(outputs: Sequence[Sequence[torch.Tensor]]) -> float:
    """The relative error that rounding alone makes, by the outputs' narrowest dtype."""
    found = [ROUNDINGS[x.dtype] * torch.finfo(x.dtype).eps for made in outputs for x in made if x.dtype in ROUNDINGS]
    return max(found, default=0.0)


def _unlike(outputs: Sequence, expected: Sequence[torch.Tensor]) -> str:
    if len(outputs) != len(expected):
        return f"{len(outputs)} outputs, eager has {len(expected)}"
    for number, (a, b) in enumerate(zip(outputs, expected, strict=True)):
        mine = (a.dtype, tuple(a.shape), a.device) if isinstance(a, torch.Tensor) else type(a).__name__
        if mine != (b.dtype, tuple(b.shape), b.device):
            return f"output {number} is {mine}, eager's is {(b.dtype, tuple(b.shape), b.device)}"
    return ""


def _same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.equal(a, b) or bool(((a == b) | ((a != a) & (b != b))).all())


def _against(
    made: Sequence[Sequence[torch.Tensor]], double: Sequence[Sequence[torch.Tensor]]
) -> tuple[float, int | None]:
    """The largest relative error of all outputs, and the smallest level at which all of them agree."""
    largest, comparison = 0.0, Comparison()
    for number, (outputs, references) in enumerate(zip(made, double, strict=True)):
        for place, (a, b) in enumerate(zip(outputs, references, strict=True)):
            if a.is_floating_point() or a.is_complex():
                largest = max(largest, relative_error(a, b))
                comparison.add(a, b.to(a.dtype), number, place)
    return largest, comparison.t_min


def _whole_numbers(made: Sequence[Sequence[torch.Tensor]], eager: Sequence[Sequence[torch.Tensor]]) -> str:
    """Outputs that are no floating-point numbers must be eager's."""
    for outputs, expected in zip(made, eager, strict=True):
        for number, (a, b) in enumerate(zip(outputs, expected, strict=True)):
            if not a.is_floating_point() and not a.is_complex() and not torch.equal(a, b):
                return f"output {number} is not eager's"
    return ""


def _too_far(made: Sequence[Sequence[torch.Tensor]], eager: Sequence[Sequence[torch.Tensor]]) -> str:
    for outputs, expected in zip(made, eager, strict=True):
        for number, (a, b) in enumerate(zip(outputs, expected, strict=True)):
            allowed = ALLOWED_WITHOUT_DOUBLE.get(a.dtype, 0.0)
            if a.is_floating_point() and relative_error(a, b.to(torch.float64)) > allowed:
                return f"output {number} is further than {allowed:g} from eager's, relatively"
    return ""

"""Which ops a kernel of this author may round otherwise than eager does.

`tests/benchmarks/h200_distill/rounding.txt` compares single operations bit by bit. Arithmetic, square roots and
conversions are the same. A sum depends on its order, and functions such as `exp` are approximations that differ from
CUDA's: a last bit, which a half type or a cancellation behind it may magnify beyond what PassBench tolerates.
"""

from enum import IntEnum

from agent.program import Sketch
from agent.values import Value

_FUNCTIONS = frozenset("exp exp2 expm1 erf erfc log log1p log2 log10 pow sigmoid sin cos tan tanh".split())
_SUMS = ("sum", "prod")


class Rounding(IntEnum):
    """What is left to eager for the sake of the same bits, least first."""

    ANY = 0
    """Nothing."""
    SUMS = 1
    """Ops that add or multiply along a dimension."""
    FUNCTIONS = 2
    """These, and ops that need a transcendental function."""


def may_differ(sketch: Sketch, rounding: Rounding) -> bool:
    """Whether the sketch's kernels do what `rounding` leaves to eager."""
    return any(_differs(value, rounding) for body in sketch.bodies for value in body.values())


def _differs(value: Value, rounding: Rounding) -> bool:
    if not value.dtype.is_floating_point:
        return False
    if value.op == "reduce":
        return rounding >= Rounding.SUMS and value.detail in _SUMS
    return rounding >= Rounding.FUNCTIONS and value.op in _FUNCTIONS

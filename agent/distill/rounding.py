"""Which ops a kernel of this author may round otherwise than eager does, and what to do about it.

`benchmarks/agent/h200_distill/rounding.txt` compares single operations bit by bit. Arithmetic, square roots and
conversions are the same. A sum depends on its order. Functions such as `exp` are approximations that differ from
CUDA's. The difference is a last bit, but a half type or a cancellation behind it may magnify it beyond what PassBench
tolerates.
"""

from collections.abc import Callable
from dataclasses import replace
from enum import IntEnum

from agent.distill.eager.sum_order import SumOrder
from agent.distill.kernels.exact import FUNCTIONS, exact, is_known_power
from agent.distill.kernels.host_program import Sketch
from agent.distill.kernels.schedule import KernelBody
from agent.distill.kernels.value_graph import Value

_OTHERWISE = frozenset("exp2 expm1 erfc log2 log10 tan".split())
"""Functions that no kernel computes with eager's bits."""
_FUNCTIONS = FUNCTIONS | _OTHERWISE | {"log", "pow"}
_SUMS = ("sum", "prod")


class Rounding(IntEnum):
    """What is done to get eager's bits. A higher level leaves more ops to eager."""

    ANY = 0
    """Nothing."""
    EXACT = 1
    """Kernels add in eager's order and use eager's functions, and add biases of convolutions as eager does on a GPU. An
    op whose order or function is not known is left to eager."""
    SUMS = 2
    """All ops that add or multiply along a dimension are left to eager, and so are biases of convolutions. Kernels use
    eager's functions."""
    FUNCTIONS = 3
    """Ops that need a transcendental function are left to eager, too."""


Confirms = Callable[[SumOrder], bool]
"""Whether eager adds in this order on the device that a pass is written for."""


def assumed(order: SumOrder) -> bool:
    """Says yes to the orders that GPUs have confirmed: for passes that are written where there is none to compare with.

    Group norms with weights had other last bits than eager's on an H100 and an H200. What their kernels take for the
    reason since then is confirmed nowhere, nor is the order of sums up to each element, nor that of weight norms, nor
    that of many single elements that belong to places.
    """
    unconfirmed = order.addition is not None and order.addition.op in ("cumsum", "weight_norm")
    return order.kind not in ("welford", "members") and not unconfirmed


def rounded(sketch: Sketch, rounding: Rounding, confirms: Confirms = assumed) -> Sketch | None:
    """The sketch with kernels that round as `rounding` says; None if `rounding` leaves an op of theirs to eager.

    `confirms` is asked last, for each order of addition that a kernel would rely on.
    """
    if rounding is Rounding.ANY:
        return sketch
    bodies = [body.renumbered or body for body in sketch.bodies]
    values = [value for body in bodies for value in body.values()]
    if any(_differs(value, rounding) for value in values):
        return None
    if not all(confirms(value.order) for value in values if value.order is not None and not value.order.free):
        return None
    made: list[KernelBody] = []
    stored: dict[str, Value] = {}
    for body in bodies:
        one = exact(body, stored)
        if one is None:
            return None
        made.append(one)
        stored |= {store.buffer: store.value for store in one.stores}
    return replace(sketch, bodies=tuple(made))


def hides_bits(sketch: Sketch) -> bool:
    """Whether a kernel rounds to a half type, and computes on with it, what may have other bits than eager's.

    Rounding hides nearly all differences of a last bit. The few that are left are a thousand times as large, and
    pointwise ops keep them: of a root mean square of fusible-7c85a370d89f one row in some thousands is wrong.
    """
    stored: set[str] = set()  # buffers of what may have other bits
    for body in sketch.bodies:
        unsure: set[int] = set()
        for value in body.values():
            loaded = value.op == "load" and value.detail[0] in stored
            if not (loaded or _differs(value, Rounding.FUNCTIONS) or any(a.number in unsure for a in value.args)):
                continue
            if value.op == "narrow" or (loaded and value.half is not None):
                return True
            unsure.add(value.number)
        stored |= {store.buffer for store in body.stores if store.value.number in unsure}
    return False


def _differs(value: Value, rounding: Rounding) -> bool:
    if not value.dtype.is_floating_point:
        return False
    if value.op in ("reduce", "scan"):
        return value.detail in _SUMS and (rounding > Rounding.EXACT or value.order is None)
    if rounding >= Rounding.FUNCTIONS:
        return value.op in _FUNCTIONS
    return value.op in _OTHERWISE or (value.op == "pow" and not is_known_power(value))

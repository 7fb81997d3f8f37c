"""A kernel as eager computes it: sums in eager's order, functions as CUDA's, constant divisors as eager's.

TorchInductor adds in an order of its own, and Triton's `tl.exp` is an approximation. The difference is a last bit, but
a half type or a cancellation behind it may magnify it.
"""

import math
from collections.abc import Mapping
from dataclasses import replace

import torch

from agent.distill.eager.sum_order import Deal, Ragged, SumOrder
from agent.distill.kernels import ordered_sums, place_sums
from agent.distill.kernels.schedule import KernelBody
from agent.distill.kernels.value_graph import Value

_PIECES = 8
"""If a kernel has orders with steps of different lengths, the longest may have so many times the columns of the
shortest."""

FUNCTIONS = frozenset("cos erf exp log1p sigmoid sin tanh".split())
"""Functions that an exact kernel computes with eager's bits."""


def is_known_power(value: Value) -> bool:
    """Whether a value is a power that an exact kernel computes with eager's bits. Beside a half type eager rounds a
    constant to that type first."""
    halves = {a.half for a in value.args if a.half is not None}
    constants = [a.detail for a in value.args if a.op == "constant"]
    kept = all(torch.tensor(c, dtype=half).item() == c for c in constants for half in halves)
    return value.op == "pow" and value.dtype == torch.float32 and kept


def exact(body: KernelBody, stored: Mapping[str, Value]) -> KernelBody | None:
    """The kernel with eager's bits, as far as eager's way is known here. `stored` is what exact kernels before it have
    put into each buffer.

    None if it computes a norm in another form than is known here, if its orders have steps of too different lengths or
    deal columns otherwise, or if a scan needs whole rows and a sum parts of them. A scan in eager's order has a column
    in each step.
    """
    done: dict[int, Value] = {}
    steps: set[int] = set()
    deals: set[Deal | Ragged | None] = set()
    for value in body.values():
        made = _as_eager(value, tuple(done[a.number] for a in value.args), stored)
        if made is None:
            return None
        done[value.number] = made
        if made.detail in ordered_sums.DETAILS or (made.op == "scan" and made.order is not None):
            steps.add(made.order.step)
            deals.add(made.order.deal)
    scans = [value.order is not None for value in done.values() if value.op == "scan"]
    whole, single = not all(scans), any(scans) and max(steps) > 1
    if steps and (whole or single or len(deals) > 1 or min(max(steps), body.columns) > _PIECES * min(steps)):
        return None
    stores = tuple(replace(store, value=done[store.value.number]) for store in body.stores)
    if any(value.detail == place_sums.MEMBERS for value in done.values()):
        one = replace(body, stores=stores, step=1)
        return one if place_sums.place_sum(one) is not None else None
    flat = exact(body.flat, stored) if body.flat is not None else None
    return replace(body, stores=stores, flat=flat, step=max(steps, default=None), deal=next(iter(deals), None))


def _as_eager(value: Value, args: tuple[Value, ...], stored: Mapping[str, Value]) -> Value | None:
    """The value computed as eager does. `args` are its operands, computed so. None if eager's way is not known."""
    value = replace(value, args=args, depth=max((a.depth for a in args), default=0) + (value.op == "reduce"))
    if value.dtype != torch.float32:
        return value
    if value.op == "truediv" and args[1].op == "constant":
        return _divided(value, stored)
    if value.op in FUNCTIONS and (value.op != "tanh" or args[0].half is None):
        return replace(value, op=f"exact_{value.op}")
    if is_known_power(value):
        return replace(value, op="exact_pow")
    if value.order is None or value.order.free:
        return replace(value, order=None)
    return _added(value, value.order)


def _divided(value: Value, stored: Mapping[str, Value]) -> Value:
    """A quotient by a constant. Eager multiplies by the reciprocal, except in the moments of norms; for a power of two
    that is the same."""
    dividend, divisor = value.args
    added = stored.get(dividend.detail[0], dividend) if dividend.op == "load" else dividend
    if added.op == "reduce" and added.detail == "mean":
        return dividend
    one = added.order is not None and added.order.kind not in ("sum", "rounded")
    if one and math.frexp(divisor.detail)[0] != 0.5:
        return replace(value, op="div_rn")
    reciprocal = (torch.tensor(1.0) / torch.tensor(divisor.detail)).item()
    # A number of its own, before all others: what is divided by the same constant elsewhere keeps it.
    factor = replace(divisor, number=-1 - divisor.number, detail=reciprocal)
    return replace(value, op="mul", args=(dividend, factor))


def _added(value: Value, order: SumOrder) -> Value | None:
    """A sum in this order; None for a form of sum that is not known here.

    TorchInductor computes moments as two sums. The sum of all elements becomes their mean, and the sum of squared
    distances becomes what Welford's algorithm finds.
    """
    (operand,) = value.args
    value = replace(value, order=order.without_idle())
    if value.op == "scan":
        return value
    if order.kind == "sum":
        return replace(value, detail="ordered_sum")
    if order.kind == "rounded":
        return replace(value, detail="turns")
    if order.kind == "members":
        return replace(value, detail=place_sums.MEMBERS)
    if order.kind == "turns":
        product = operand.op == "fma" and operand.args[2].op == "constant" and operand.args[2].detail == 0.0
        args = operand.args[:2] if product else value.args
        return replace(value, args=args, detail="turns", depth=max(a.depth for a in args) + 1)
    if order.kind in ("squares", "norm"):
        known = operand.op in ("mul", "square") and operand.args[0] is operand.args[-1]
        detail = "squares" if order.kind == "squares" else "ordered_squares"
        return _reduction(value, operand.args[0], detail) if known else None
    if operand.op != "square":
        return _reduction(value, operand, "mean")
    distance = operand.args[0]
    known = distance.op == "sub" and distance.args[1].detail == "mean" and distance.args[1].args[0] is distance.args[0]
    return _reduction(value, distance.args[0], "distances") if known else None


def _reduction(value: Value, operand: Value, detail: str) -> Value:
    return replace(value, args=(operand,), detail=detail, depth=operand.depth + 1)

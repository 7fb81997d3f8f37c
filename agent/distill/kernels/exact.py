"""A kernel as eager computes it: sums in eager's order, functions as CUDA's, constant divisors as eager's.

TorchInductor adds in an order of its own, and Triton's `tl.exp` is an approximation. A last bit is all that differs;
where a half type or a cancellation behind it magnifies that, this kernel is right.
"""

from dataclasses import replace

import torch

from agent.distill.eager.sum_order import SumOrder
from agent.distill.kernels import ordered_sums
from agent.distill.kernels.schedule import KernelBody
from agent.distill.kernels.value_graph import Value

_PIECES = 8
"""Into how many pieces a step may be taken apart for the sake of an order with a shorter one."""

FUNCTIONS = frozenset("cos exp log1p sigmoid sin tanh".split())
"""Functions that are computed as eager does."""


def exact(body: KernelBody) -> KernelBody | None:
    """The kernel with what is known of eager's way; None where it adds a norm otherwise than is known here, or would
    have to add in steps of too different sizes."""
    done: dict[int, Value] = {}
    steps: set[int] = set()
    for value in body.values():
        made = _as_eager(value, tuple(done[a.number] for a in value.args))
        if made is None:
            return None
        done[value.number] = made
        steps |= {made.order.step} if made.detail in ordered_sums.DETAILS else set()
    if steps and max(steps) > _PIECES * min(steps):
        return None
    stores = tuple(replace(store, value=done[store.value.number]) for store in body.stores)
    flat = exact(body.flat) if body.flat is not None else None
    return replace(body, stores=stores, flat=flat, step=max(steps, default=None))


def _as_eager(value: Value, args: tuple[Value, ...]) -> Value | None:
    """The value, given its operands as eager computes them; None where eager's way is not known."""
    value = replace(value, args=args, depth=max((a.depth for a in args), default=0) + (value.op == "reduce"))
    if value.dtype != torch.float32:
        return value
    if value.op == "truediv" and args[1].op == "constant":
        return _divided(value)
    if value.op in FUNCTIONS and (value.op != "tanh" or args[0].half is None):
        return replace(value, op=f"exact_{value.op}")
    return value if value.order is None else _added(value, value.order)


def _divided(value: Value) -> Value:
    """A quotient by a constant, for which eager multiplies by its reciprocal, but for the moments of norms."""
    dividend, divisor = value.args
    if dividend.op == "reduce" and dividend.detail == "mean":
        return dividend
    if dividend.order is not None and dividend.order.kind != "sum":
        return replace(value, op="div_rn")
    reciprocal = (torch.tensor(1.0) / torch.tensor(divisor.detail)).item()
    # A number of its own, before all others: what is divided by the same constant elsewhere keeps it.
    factor = replace(divisor, number=-1 - divisor.number, detail=reciprocal)
    return replace(value, op="mul", args=(dividend, factor))


def _added(value: Value, order: SumOrder) -> Value | None:
    """A sum in this order. Of moments, the sum of all elements stands for their mean, and that of the squared distances
    from it for that sum, as Welford's way finds it; None for other sums."""
    (operand,) = value.args
    if order.kind == "sum":
        return replace(value, detail="ordered_sum")
    if order.kind == "squares":
        known = operand.op in ("mul", "square") and operand.args[0] is operand.args[-1]
        return _reduction(value, operand.args[0], "squares") if known else None
    if operand.op != "square":
        return _reduction(value, operand, "mean")
    distance = operand.args[0]
    known = distance.op == "sub" and distance.args[1].detail == "mean" and distance.args[1].args[0] is distance.args[0]
    return _reduction(value, distance.args[0], "distances") if known else None


def _reduction(value: Value, operand: Value, detail: str) -> Value:
    return replace(value, args=(operand,), detail=detail, depth=operand.depth + 1)

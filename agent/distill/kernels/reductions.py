"""Reductions and scans along the columns of a kernel. Reductions are of a whole row at once, or accumulated over a
sweep; scans are of whole rows."""

from collections.abc import Sequence

import torch

from agent.distill.kernels.schedule import KernelBody
from agent.distill.kernels.text_template import slot
from agent.distill.kernels.triton_ops import triton_dtype
from agent.distill.kernels.value_graph import Value

_PLAIN = {
    "sum": "tl.sum({0}, 1, keep_dims=True)",
    "max": "tl.max({0}, 1, keep_dims=True)",
    "min": "tl.min({0}, 1, keep_dims=True)",
    "prod": "tl.reduce({0}, 1, multiply, keep_dims=True)",
    "xor_sum": "tl.xor_sum({0}, 1, keep_dims=True)",
    "any": "tl.max({0}, 1, keep_dims=True) > 0",
}
_STEP = {
    "sum": "{0} + {1}",
    "max": "tl.maximum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)",
    "min": "tl.minimum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)",
    "prod": "{0} * {1}",
    "xor_sum": "{0} ^ {1}",
    "any": "tl.maximum({0}, {1})",
}
_SCAN = {"sum": "tl.cumsum({0}, 1)", "prod": "tl.cumprod({0}, 1)"}
HELPERS: dict[str, str] = {
    "row_max": '''
@triton.jit
def row_max(x):
    """The maximum of each row; NaN where the row has one."""
    nans = tl.max((x != x).to(tl.int32), 1, keep_dims=True)
    return tl.where(nans > 0, float("nan"), tl.max(x, 1, keep_dims=True))
''',
    "row_min": '''
@triton.jit
def row_min(x):
    """The minimum of each row; NaN where the row has one."""
    nans = tl.max((x != x).to(tl.int32), 1, keep_dims=True)
    return tl.where(nans > 0, float("nan"), tl.min(x, 1, keep_dims=True))
''',
    "row_argmax": '''
@triton.jit
def row_argmax(x, position):
    """The lowest position of each row's maximum."""
    best = tl.max(x, 1, keep_dims=True)
    return tl.min(tl.where(x == best, position, 2147483647), 1, keep_dims=True).to(tl.int64)
''',
    "row_argmin": '''
@triton.jit
def row_argmin(x, position):
    """The lowest position of each row's minimum."""
    best = tl.min(x, 1, keep_dims=True)
    return tl.min(tl.where(x == best, position, 2147483647), 1, keep_dims=True).to(tl.int64)
''',
    "multiply": '''
@triton.jit
def multiply(a, b):
    """Combines two factors of a product."""
    return a * b
''',
}
"""Helper name → source."""


def of_row(value: Value, operand: str, kernel: KernelBody) -> str:
    """Reduces `operand`, a whole row."""
    return _final(value, _filled(value, operand), "column", kernel)


def up_to_each(value: Value, operand: str) -> str:
    """Scans `operand`, a whole row."""
    return _SCAN[value.detail].format(_filled(value, operand))


def in_turn(value: Value, operand: str, name: str) -> list[str]:
    """One more column of a scan in eager's order, of which `name`_part has what came before."""
    added = f"{name}_part + {_filled(value, operand)}"
    if (rounds := value.order.rounds) is not None:
        added = f"({added}).to({slot(triton_dtype(rounds))}).to(tl.float32)"
    return [f"{name}_part = {added}"]


def start(value: Value, name: str, kernel: KernelBody) -> list[str]:
    """Accumulators for a sweep."""
    dtype = torch.int32 if value.detail == "any" else value.args[0].dtype
    full = f"tl.full([ROWS, COLUMNS], {_neutral(value)}, {triton_dtype(dtype)})"
    lines = [f"{name}_part = {full}"]
    if value.detail.startswith("arg"):
        lines.append(f"{name}_at = tl.full([ROWS, COLUMNS], 0, tl.int32)")
    return lines


def step(value: Value, name: str, operands: Sequence[str], kernel: KernelBody, start: str | int) -> list[str]:
    """One step of a sweep, whose columns begin at `start`."""
    filled = _filled(value, *operands)
    if not value.detail.startswith("arg"):
        return [f"{name}_part = {_STEP[value.detail].format(f'{name}_part', filled)}"]
    comparison = ">" if value.detail == "argmax" else "<"
    return [
        f"{name}_next = {filled}",
        f"{name}_at = tl.where({name}_next {comparison} {name}_part, column, {name}_at)",
        f"{name}_part = tl.where({name}_next {comparison} {name}_part, {name}_next, {name}_part)",
    ]


def finish(value: Value, name: str, kernel: KernelBody) -> list[str]:
    """The result, after a sweep."""
    return [f"{name} = {_final(value, f'{name}_part', f'{name}_at', kernel)}"]


def _final(value: Value, operand: str, position: str, kernel: KernelBody) -> str:
    kind = value.detail
    if kind.startswith("arg"):
        return f"row_{kind}({operand}, {position})"
    if kind in ("max", "min") and value.dtype.is_floating_point and not _nan_shows_elsewhere(value, kernel):
        return f"row_{kind}({operand})"
    return _PLAIN[kind].format(operand)


def _nan_shows_elsewhere(value: Value, kernel: KernelBody) -> bool:
    """Whether the result is only subtracted from the reduced values, as in a softmax: a NaN among them stays one."""
    users = [v for v in kernel.values() if value in v.args]
    stored = any(s.value is value for s in kernel.stores)
    return not stored and all(v.op == "sub" and v.args == (value.args[0], value) for v in users)


def _filled(value: Value, operand: str) -> str:
    """The operand with the neutral element outside of the tensor."""
    dtype = value.args[0].dtype
    if value.detail == "any":
        return f"tl.where(inside, {operand} != 0, False).to(tl.int32)"
    if value.detail.startswith("arg") and dtype.is_floating_point:
        # eager takes a NaN for the extreme
        extreme = "float('inf')" if value.detail == "argmax" else "float('-inf')"
        operand = f"tl.where({operand} != {operand}, {extreme}, {operand})"
    return f"tl.where(inside, {operand}, {_neutral(value)})"


def _neutral(value: Value) -> str:
    kind = value.detail.removeprefix("arg")
    dtype = value.args[0].dtype
    if kind in ("sum", "xor_sum", "any"):
        return "0"
    if kind == "prod":
        return "1"
    if dtype.is_floating_point:
        return "float('-inf')" if kind == "max" else "float('inf')"
    limits = torch.iinfo(dtype)
    return str(limits.min if kind == "max" else limits.max)

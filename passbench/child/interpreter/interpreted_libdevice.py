"""libdevice for Triton's interpreter, which has none: a kernel that called such a function got None."""

from collections.abc import Callable
from inspect import isfunction
from typing import Any

import torch

_SAME = """acos acosh asin asinh atan atan2 atanh ceil copysign cos cosh erf erfc erfinv exp exp2 expm1 floor fmod hypot
lgamma log log10 log1p log2 nextafter pow rsqrt sin sinh sqrt tan tanh trunc""".split()
_OTHER = {
    "abs": torch.abs,
    "add_rn": torch.add,
    "div_rn": torch.div,
    "fast_cosf": torch.cos,
    "fast_dividef": torch.div,
    "fast_expf": torch.exp,
    "fast_log2f": torch.log2,
    "fast_logf": torch.log,
    "fast_powf": torch.pow,
    "fast_sinf": torch.sin,
    "fast_tanf": torch.tan,
    "fdim": lambda x, y: torch.where(x <= y, 0.0, x - y),
    "mul_rn": torch.mul,
    "nearbyint": torch.round,
    "rcp_rn": torch.reciprocal,
    "rint": torch.round,
    "rsqrt_rn": torch.rsqrt,
    "sqrt_rn": torch.sqrt,
    "sub_rn": torch.sub,
}
FUNCTIONS: dict[str, Callable[..., torch.Tensor]] = {name: getattr(torch, name) for name in _SAME} | _OTHER
"""libdevice's name → a function of torch's that computes the same, to a last bit or two."""
_OF_SINGLES_ALONE = frozenset(("rsqrt_rn", *(name for name in FUNCTIONS if name.startswith("fast_"))))


def lend_libdevice() -> None:
    """Let interpreted kernels call libdevice's functions of single and double precision that torch has. All others
    raise NotImplementedError."""
    import numpy as np
    import triton.language as tl
    from triton.language.extra import libdevice
    from triton.language.extra.cuda import libdevice as of_cuda
    from triton.runtime import interpreter

    semantic = interpreter.interpreter_semantic
    floats, whole = {tl.float32, tl.float64}, {tl.int32, tl.int64}

    def interpreted(name: str, function: Callable[..., torch.Tensor]) -> Callable:
        def call(*arguments: Any, **_: Any) -> tl.tensor:
            operands = [semantic.to_tensor(argument) for argument in arguments]
            if len(operands) == 2:
                operands = list(semantic.broadcast_impl_value(*operands))
            if name == "pow" and operands[1].dtype.scalar == tl.int32:
                operands[1] = semantic.cast(operands[1], operands[0].dtype.scalar)
            dtypes = {operand.dtype.scalar for operand in operands}
            known = {tl.float32} if name in _OF_SINGLES_ALONE else floats | whole if name == "abs" else floats
            if len(dtypes) > 1 or not dtypes <= known:
                raise TypeError(f"libdevice has no {name} of {', '.join(sorted(map(str, dtypes)))}")
            data = [torch.from_numpy(np.ascontiguousarray(operand.handle.data)) for operand in operands]
            result = interpreter.TensorHandle(function(*data).numpy(), operands[0].dtype.scalar)
            return tl.core.tensor(result, operands[0].type)

        return call

    for module in (libdevice, of_cuda):
        others = {name for name, value in vars(module).items() if isfunction(value) and not name.startswith("_")}
        for name in others - FUNCTIONS.keys():
            setattr(module, name, _lacking(name))
        for name, function in FUNCTIONS.items():
            setattr(module, name, interpreted(name, function))


def _lacking(name: str) -> Callable:
    def call(*_: Any, **__: Any) -> None:
        raise NotImplementedError(f"Triton's interpreter has no libdevice.{name}, which a GPU has")

    return call

"""Whether exact kernels (`agent.distill.kernels.exact`) have eager's bits; needs a GPU.

    python3 benchmarks/agent/h200_distill/exact.py > OUT

Each line is a function, a shape and a dtype, and the share of elements that differ: of the kernel in eager's way, and
of the one that is written where a last bit does not matter.
"""

import importlib.util
import sys
import tempfile
from collections.abc import Callable
from itertools import islice, product
from math import prod
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

import torch
import torch.nn.functional as F

from agent.distill.kernels.host_program import sketch
from agent.distill.regions import region_of
from agent.distill.rounding import Rounding, rounded
from agent.distill.source.pass_source import Case, module_source
from agent.distill.source.style import Style
from benchmarks.agent.h200_distill.orders import DTYPES, cases
from tests.agent.support import tensor, variant

NORMS = ((512, 180), (4800, 256), (1000, 768))
FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "exp": torch.exp,
    "sigmoid": torch.sigmoid,
    "silu": F.silu,
    "tanh": torch.tanh,
    "softplus": F.softplus,
    "mish": F.mish,
    "sin": torch.sin,
    "cos": torch.cos,
    "divided": lambda x: x / 3.7,
    "gelu": F.gelu,
    "gelu, tanh": lambda x: F.gelu(x, approximate="tanh"),
}


def fused(function: Callable, rounding: Rounding, *inputs: torch.Tensor) -> Callable | None:
    """The function that replaces this one; None where it is left to eager."""
    shapes = [tensor(*x.shape, dtype=str(x.dtype).removeprefix("torch."), stride=x.stride()) for x in inputs]
    whole = variant(function, *shapes).graph
    graph = region_of(whole, range(len(whole.ops))).graph
    made = rounded(sketch(graph, shapes), rounding)
    if made is None:
        return None
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "module.py"
        path.write_text(module_source([Case(graph, made)], "exact", Style()))
        spec = importlib.util.spec_from_file_location("module", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.replacement_func()


def differing(function: Callable, rounding: Rounding, *inputs: torch.Tensor) -> str:
    """What share of the results' elements differs from eager's."""
    try:
        made = fused(function, rounding, *inputs)
        if made is None:
            return "left to eager"
        want, have = function(*inputs), made(*inputs)
        want, have = (v if isinstance(v, tuple) else (v,) for v in (want, have))
        shares = [
            (~torch.isclose(a, b, rtol=0, atol=0, equal_nan=True)).float().mean().item()
            for a, b in zip(want, have, strict=True)
        ]
    except Exception as error:  # the table goes on: a line says what is wrong with its kernel
        return f"{type(error).__name__}: {str(error).splitlines()[-1][:200]}"
    return ", ".join(f"{share:.1e}" if share else "none" for share in shares)


def report(name: str, function: Callable, *inputs: torch.Tensor) -> None:
    ways = [differing(function, way, *inputs) for way in (Rounding.EXACT, Rounding.ANY)]
    dtype = str(inputs[0].dtype).removeprefix("torch.")
    print(f"{name} {tuple(inputs[0].shape)} {dtype}: {ways[0]}; otherwise {ways[1]}", flush=True)


def norms(columns: int) -> dict[str, tuple[Callable, int]]:
    """Functions over rows of so many columns, and how many operands they have."""

    def moments(x):
        _, mean, inverse = torch.native_layer_norm(x, (columns,), None, None, 1e-5)
        return mean, inverse

    return {
        "layer norm": (lambda x, w, b: F.layer_norm(x, (columns,), w, b) * 1.0, 3),
        "layer norm, plain": (lambda x: F.layer_norm(x, (columns,)) * 1.0, 1),
        "moments": (moments, 1),
        "RMS norm": (lambda x, w: torch.rms_norm(x, (columns,), w, 1e-6) * 1.0, 2),
    }


def scaled(function: Callable) -> Callable:
    return lambda x: function(x) * 1.0


def doubled_sum(dims: tuple[int, ...]) -> Callable:
    return lambda x: (x * 2.0).sum(dims)


def main() -> None:
    torch.manual_seed(0)
    print(torch.__version__, torch.cuda.get_device_name())
    for (rows, columns), dtype in product(NORMS, DTYPES):
        operands = (torch.randn(rows, columns, device="cuda") * 3 + 1, *torch.randn(2, columns, device="cuda"))
        for name, (function, count) in norms(columns).items():
            report(name, function, *(o.to(dtype) for o in operands[:count]))
    for name, dtype in product(FUNCTIONS, DTYPES):
        report(name, scaled(FUNCTIONS[name]), (torch.randn(512, 1024, device="cuda") * 4).to(dtype))
    for (shape, dims), dtype in product(islice(cases(), 0, None, 3), DTYPES):
        if prod(shape) <= 2**22:
            x = torch.randn(shape, device="cuda")
            x = (x * torch.exp2(6 * torch.randn_like(x).clamp(-2, 2))).to(dtype)
            report(f"sum over {dims} of", doubled_sum(dims), x)


if __name__ == "__main__":
    sys.exit(main())

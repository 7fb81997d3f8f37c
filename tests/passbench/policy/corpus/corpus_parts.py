"""What honest passes of the corpus share: samples, pieces of text, and the table in which each module keeps its passes.

`$IMPORTS`, `$ADD_RELU` (pattern and arguments), `$KERNEL` (a kernel for it) and `$RETURNS` stand for what many share.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F

from storage.records import Sample
from tests.passbench.samples import sample, spec, variant

_PARTS = {
    "IMPORTS": "import torch\nimport triton\nimport triton.language as tl\n",
    "ADD_RELU": (
        "def pattern(x, y):\n    return torch.relu(x + y)\n\n\ndef replacement_args(x, y):\n    return (x, y)\n"
    ),
    "KERNEL": """
@triton.jit
def add_relu_kernel(x_ptr, y_ptr, out_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    pid = tl.program_id(axis=0)
    offsets = pid * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    y = tl.load(y_ptr + offsets, mask=mask, other=0.0)
    tl.store(out_ptr + offsets, tl.maximum(x + y, 0.0), mask=mask)
""",
    "RETURNS": "def replacement_func():\n    return fused\n",
}


def gelu_bias() -> Sample:
    def f(x, b):
        return (F.gelu(x + b),)

    return sample(variant(f, spec("x", 4, 32), spec("b", 32, role="parameter")))


def rms_norm() -> Sample:
    def f(x, w):
        variance = x.float().pow(2).mean(-1, keepdim=True)
        return (x * torch.rsqrt(variance + 1e-06) * w,)

    return sample(variant(f, spec("x", 4, 32), spec("w", 32, role="parameter")))


def scale_shift() -> Sample:
    def f(x, s, b):
        return (x * s[None, :, None] + b[None, :, None],)

    return sample(variant(f, spec("x", 2, 6, 20), spec("s", 6, role="parameter"), spec("b", 6, role="parameter")))


class Passes(dict[str, tuple[Callable[[], Sample], dict[str, str]]]):
    """Name of a pass → the sample that it is for, and its sources by file."""

    def add(self, name: str, on_what: Callable[[], Sample], text: str, **helpers: str) -> None:
        """Note a pass: the text of its listed module, and of its helpers by name."""
        texts = {"fuse": text, **helpers}
        self[name] = on_what, {f"{file}.py": _filled(one) for file, one in texts.items()}


def _filled(text: str) -> str:
    for name, part in _PARTS.items():
        text = text.replace(f"${name}", part)
    return text.lstrip("\n")

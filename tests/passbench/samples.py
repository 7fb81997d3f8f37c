"""Tiny samples to benchmark: a torch function, traced, with inputs."""

from collections.abc import Callable
from pathlib import Path

import torch

from passbench.matching.trace_pattern import PatternTracer
from storage.graph.as_fx import from_fx
from storage.records import Input, Sample, Variant

PASSES = Path(__file__).parents[1] / "support" / "passes"

BAD_PASSES = {
    "wrong": ("wrong", 1, "differs from eager at every level: output 0["),
    "raises": ("runtime_error", 2, "ValueError: this pass does not work"),
    "wrong_shape": ("runtime_error", 2, "output 0 is torch.float32 [120], where eager has torch.float32 [3, 40]"),
    "unwritten": ("runtime_error", 2, "NaN where eager has none"),
    "writes_input": ("wrong", 1, "writes over its input x"),
    "aliases": ("runtime_error", 2, "output 0 shares memory with input 0"),
    "no_match": ("no_match", None, "expected operator.mul, found operator.add"),
}
"""Passes for `relu(x + y)` on 3 x 40 that must fail: name → status, error code, part of the reason."""


def spec(name: str, *shape: int, dtype: str = "float32", **changes: object) -> Input:
    """A contiguous input."""
    stride, step = [], 1
    for size in reversed(shape):
        stride.insert(0, step)
        step *= max(size, 1)
    return Input(**{"name": name, "role": "input", "dtype": dtype, "shape": shape, "stride": tuple(stride), **changes})


def fx_graph(function: Callable) -> torch.fx.Graph:
    """The fx graph of a function, in-place operators kept as dynamo keeps them."""
    return PatternTracer().trace(function)


def variant(function: Callable, *inputs: Input, name: str = "v") -> Variant:
    """A variant of a function's graph."""
    return Variant("fusible", from_fx(fx_graph(function)), inputs, (), variant_hash=name)


def sample(*variants: Variant) -> Sample:
    """A sample of variants."""
    return Sample("fusible-test", "family", "fusible", "eval", variants)


def add_relu_twice(x, y):
    return (torch.relu(x + y) * 2,)


def add_relu_sample(*shapes: tuple[int, ...], dtype: str = "float32") -> Sample:
    """`relu(x + y) * 2` on these shapes."""
    return sample(
        *(
            variant(add_relu_twice, spec("x", *s, dtype=dtype), spec("y", *s, dtype=dtype), name=f"v{n}")
            for n, s in enumerate(shapes)
        )
    )

"""What PassBench changes in Triton's interpreter, so that kernels give a GPU's bits."""

import pytest

from tests.support.interpreted import answers_of

SCRIPT = """
import torch, triton, triton.language as tl
from passbench.child.interpreter.triton_interpreter import (
    keep_truths_of_scalars, multiply_and_add_at_once, round_bfloat16_to_nearest
)

keep_truths_of_scalars()
multiply_and_add_at_once()
round_bfloat16_to_nearest()

@triton.jit
def rest_of_product(x_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i)
    tl.store(out_ptr + i, tl.fma(x, x, -(x * x)))

def rest(x):
    out = torch.zeros_like(x)
    rest_of_product[(1,)](x, out, BLOCK=4)
    return out

@triton.jit
def into_bfloat16(x_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i).to(tl.bfloat16))

def cast_as_torch(numbers, dtype):
    given = torch.tensor(numbers).to(dtype)
    out = torch.zeros(4, dtype=torch.bfloat16)
    into_bfloat16[(1,)](given, out, BLOCK=4)
    return torch.equal(out, given.to(torch.bfloat16))

@triton.jit
def in_bfloat16(x_ptr, y_ptr, out_ptr, WHAT: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x, y = tl.load(x_ptr + i), tl.load(y_ptr + i)
    if WHAT == "product":
        out = x * y
    elif WHAT == "difference":
        out = x - y
    elif WHAT == "largest":
        out = tl.maximum(x, y)
    elif WHAT == "clamped":
        out = tl.clamp(x, -y, y)
    elif WHAT == "chosen":
        out = tl.where((x > y) & (x > 0), x, -y)
    elif WHAT == "matrix":
        square = tl.load(x_ptr + i[:, None] * 0 + i[None, :])
        out = tl.sum(tl.dot(square, tl.trans(square)), axis=1).to(tl.bfloat16)
    tl.store(out_ptr + i, out)

def computed(what):
    out = torch.empty(16, dtype=torch.bfloat16)
    in_bfloat16[(1,)](A, B, out, WHAT=what, BLOCK=16)
    return out

@triton.jit
def between(x_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x, first = tl.load(x_ptr + i), tl.load(x_ptr)
    tl.store(out_ptr + i, ((x > first) & (first > 0.5) & (first < 2.5)).to(tl.float32))

def larger_than_the_first(x):
    out = torch.zeros_like(x)
    between[(1,)](x, out, BLOCK=4)
    return out.tolist()

A = (torch.linspace(-3, 3, 16) ** 3).to(torch.bfloat16)
B = torch.cat([torch.linspace(0.1, 5, 12), torch.tensor([1e-39, 1e30, 2e-38, 0.0])]).to(torch.bfloat16)
x = torch.tensor([1 + 2.0**-20, 3.0, 1 - 2.0**-15, 1e30])
"""
TRIED = {
    "rest(x)[:3].tolist() == [2.0**-40, 0.0, 2.0**-30]": "True",
    "bool(rest(x)[3].isnan() | rest(x)[3].isinf())": "True",
    "rest(x.double() * 0.0).tolist() == [0.0] * 4": "True",
    "larger_than_the_first(x)": "[0.0, 1.0, 0.0, 1.0]",
    "larger_than_the_first(-x)": "[0.0, 0.0, 0.0, 0.0]",
    **{f"cast_as_torch([1.00390625, -2.5, 3.0, 77.77], torch.{t})": "True" for t in ("float64", "float32", "float16")},
    **{f"cast_as_torch([0, 1, 100, 127], torch.{t})": "True" for t in ("bool", "int8", "uint8", "int32", "int64")},
    'torch.equal(computed("product"), A * B)': "True",
    'torch.equal(computed("difference"), A - B)': "True",
    'torch.equal(computed("largest"), torch.maximum(A, B))': "True",
    'torch.equal(computed("clamped"), torch.clamp(A, -B, B))': "True",
    'torch.equal(computed("chosen"), torch.where((A > B) & (A > 0), A, -B))': "True",
    'torch.allclose(computed("matrix").float(), 16 * (A.float() ** 2).sum(), rtol=0.01)': "True",
    "cast_as_torch([257, -70000, 16777217, 65535], torch.int64)": "True",
}


@pytest.fixture(scope="module")
def answers(tmp_path_factory, torch_forks):
    """What a process with the interpreter says of each expression."""
    return answers_of(SCRIPT, TRIED, tmp_path_factory.mktemp("kernels"), torch_forks)


@pytest.mark.parametrize("expression", TRIED)
def test_a_kernel_has_a_gpus_bits(answers, expression):
    assert answers[expression] == TRIED[expression]

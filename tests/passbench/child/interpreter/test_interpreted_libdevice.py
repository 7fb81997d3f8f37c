"""An interpreted kernel may call libdevice's functions."""

import pytest
from triton.language.extra.cuda import libdevice

from passbench.child.interpreter.interpreted_libdevice import FUNCTIONS
from tests.support.interpreted import answers_of

SCRIPT = """
import math, torch, triton, triton.language as tl
from passbench.child.interpreter.interpreted_libdevice import lend_libdevice

lend_libdevice()
from triton.language.extra import libdevice
from triton.language.extra.cuda import libdevice as of_cuda

@triton.jit
def of_elements(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=1.0)
    tl.store(out_ptr + i, libdevice.exp(x) + of_cuda.tanh(x), mask=i < n)

@triton.jit
def of_two(x_ptr, by_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x, by = tl.load(x_ptr + i, mask=i < n, other=1.0), tl.load(by_ptr)
    tl.store(out_ptr + i, libdevice.fmod(x, by) + libdevice.pow(x, 2.0), mask=i < n)

@triton.jit
def of_whole(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=1.0)
    tl.store(out_ptr + i, libdevice.pow(x, 3) + libdevice.abs(i - 4), mask=i < n)

@triton.jit
def beyond(x_ptr, by_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out_ptr + i, libdevice.fdim(tl.load(x_ptr + i, mask=i < n), tl.load(by_ptr + i, mask=i < n)), mask=i < n)

@triton.jit
def fast(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out_ptr + i, libdevice.fast_expf(tl.load(x_ptr + i, mask=i < n)), mask=i < n)

@triton.jit
def lacking(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(out_ptr + i, libdevice.fma_rn(x, x, x), mask=i < n)

@triton.jit
def reciprocal(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out_ptr + i, libdevice.rcp_rn(tl.load(x_ptr + i, mask=i < n, other=1.0)), mask=i < n)

@triton.jit
def of_one(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    tl.store(out_ptr, libdevice.log1p(tl.load(x_ptr)))

def ran(kernel, *args):
    try:
        kernel[(1,)](*args, len(args[0]), BLOCK=8)
    except Exception as error:
        return str(error)
    return args[-1]

x, by = torch.tensor([0.5, 1.0, 2.5, 3.0, 7.25]), torch.tensor([2.0])
wide = x.double()
def close(found, expected):
    return torch.allclose(found, expected, rtol=1e-6, equal_nan=True)
ends, starts = torch.tensor([5.0, 2.0, math.inf, math.nan]), torch.tensor([2.0, 5.0, math.inf, 1.0])
"""
TRIED = {
    "close(ran(of_elements, x, torch.zeros(5)), x.exp() + x.tanh())": "True",
    "close(ran(of_elements, wide, torch.zeros_like(wide)), wide.exp() + wide.tanh())": "True",
    "close(ran(of_two, x, by, torch.zeros(5)), torch.fmod(x, by) + x**2)": "True",
    "close(ran(of_one, by, torch.zeros(1)), by.log1p())": "True",
    "close(ran(of_whole, x, torch.zeros(5)), x**3 + torch.tensor([4, 3, 2, 1, 0]))": "True",
    "close(ran(beyond, ends, starts, torch.zeros(4)), torch.tensor([3.0, 0.0, 0.0, math.nan]))": "True",
    "close(ran(reciprocal, x, torch.zeros(5)), 1 / x)": "True",
    "'interpreter has no libdevice.fma_rn' in str(ran(lacking, x, torch.zeros(5)))": "True",
    "'libdevice has no fast_expf of fp64' in ran(fast, wide, torch.zeros_like(wide))": "True",
    "'libdevice has no exp of fp16' in ran(of_elements, x.half(), torch.zeros(5).half())": "True",
}


@pytest.fixture(scope="module")
def answers(tmp_path_factory, torch_forks):
    """What a process with the interpreter says of each expression."""
    return answers_of(SCRIPT, TRIED, tmp_path_factory.mktemp("kernels"), torch_forks)


@pytest.mark.parametrize("expression", TRIED)
def test_a_kernel_gets_what_torch_computes(answers, expression):
    assert answers[expression] == TRIED[expression]


def test_what_torch_computes_otherwise_is_not_lent():
    """libdevice's remainder is by the nearest quotient, torch's by the one below."""
    assert "remainder" not in FUNCTIONS


def test_all_functions_are_libdevices():
    assert set(FUNCTIONS) <= set(vars(libdevice))

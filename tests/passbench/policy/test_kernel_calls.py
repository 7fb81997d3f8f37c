"""What a kernel calls is a kernel or a function of Triton, by its name: Triton runs host code that it meets there."""

import pytest

from tests.passbench.policy.test_policy import HEAD, WRAPPER, check

LOADED = "tl.load(x_ptr + i, mask=i < n)"
HOST = """
import typing

class Pair(typing.NamedTuple):
    n: int

    @staticmethod
    def xor_sum(x):
        return x

def same(x):
    return x

SAME = same
TABLE = (same,)

@triton.jit
def add(x, y):
    return x + y
"""
CALLED = {
    "a method of a class": f"Pair.xor_sum({LOADED})",
    "an argument": f"F({LOADED})",
    "a variable of the module": f"SAME({LOADED})",
    "an item": f"TABLE[0]({LOADED})",
    "what combines elements": f"tl.reduce({LOADED}, 0, F)",
    "what combines elements, by name": f"tl.associative_scan({LOADED}, axis=0, combine_fn=F)",
    "what combines elements of a block": f"{LOADED}.reduce(0, F)",
    "what is called for each element": f"tl.map_elementwise(F, {LOADED})",
}
HONEST = {
    "a kernel": f"add({LOADED}, 1.0)",
    "what combines elements": f"tl.reduce({LOADED}, 0, add)",
    "a method of a block": f"{LOADED}.to(tl.float32)",
}


def rules(tmp_path, value):
    head, kernel = HEAD.split("\n@triton.jit", 1)
    kernel = kernel.replace("BLOCK: tl.constexpr", "BLOCK: tl.constexpr, F: tl.constexpr = 1").replace(LOADED, value)
    wrapper = WRAPPER.format(body="kernel[(1,)](x, y, out, n, BLOCK=64)")
    return [f.rule for f in check(tmp_path, f"{head}{HOST}\n@triton.jit{kernel}{wrapper}")]


@pytest.mark.parametrize("what", CALLED)
def test_it_may_be_host_code(tmp_path, what):
    assert "kernel" in rules(tmp_path, CALLED[what])


@pytest.mark.parametrize("what", HONEST)
def test_kernels_and_functions_of_triton_may_be_called(tmp_path, what):
    assert rules(tmp_path, HONEST[what]) == []

"""Sums of digits are what TorchInductor takes them for."""

import pytest
import sympy
from torch._inductor import sizevars
from torch.utils._sympy.functions import FloorDiv, ModularIndexing

from extraction.kernels.digits import join_dimensions

X, Y = sympy.symbols("x y", integer=True, nonnegative=True)

SUMS = {
    "two digits": (ModularIndexing(X, 1, 32) + 32 * ModularIndexing(X, 32, 4), ModularIndexing(X, 1, 128)),
    "a digit and the rest": (3 * ModularIndexing(X, 1, 32) + 96 * FloorDiv(X, 32), 3 * X),
    "three digits": (
        ModularIndexing(X, 2, 5) + 5 * ModularIndexing(X, 10, 7) + 35 * FloorDiv(X, 70) + Y,
        FloorDiv(X, 2) + Y,
    ),
    "of a sum": (ModularIndexing(4 * X + Y, 1, 8) + 8 * FloorDiv(4 * X + Y, 8), 4 * X + Y),
    "digits of two numbers": (ModularIndexing(X, 1, 32) + 32 * FloorDiv(Y, 32), None),
    "another step": (ModularIndexing(X, 1, 32) + 64 * FloorDiv(X, 32), None),
}


@pytest.mark.parametrize("name", SUMS)
def test_digits_are_joined_as_torch_inductor_joins_them(name):
    sum_of_digits, joined = SUMS[name]
    assert join_dimensions(sum_of_digits) == (sum_of_digits if joined is None else joined)
    assert sizevars.join_dimensions(sum_of_digits) == join_dimensions(sum_of_digits)

"""What the attacks and honest passes of `tests.passbench.attacks.attack_table` are tried on."""

from collections.abc import Callable

import torch
import torch.nn.functional as F

from storage.records import Sample
from tests.passbench.samples import sample, spec, variant

# Samples. Inputs of a wide range, so that a stale or a missing result is wrong at every tolerance.


def _one(function: Callable, *inputs: object) -> Sample:
    return sample(variant(function, *inputs))


def _pair(*shape: int) -> tuple:
    return spec("x", *shape, std=100.0), spec("y", *shape, std=100.0)


def add_relu() -> Sample:
    return _one(lambda x, y: (torch.relu(x + y),), *_pair(3, 40))


def unit_add_relu() -> Sample:
    return _one(lambda x, y: (torch.relu(x + y),), spec("x", 3, 40), spec("y", 3, 40))


def small_add_relu() -> Sample:
    return _one(lambda x, y: (torch.relu(x + y),), *_pair(2, 3))


def sixteen() -> Sample:
    return _one(lambda x, y: (torch.relu(x + y),), *_pair(16))


def strided_add_relu() -> Sample:
    x, y = spec("x", 8, 40, stride=(1, 8)), spec("y", 8, 40, stride=(80, 2))
    return sample(*add_relu().variants, variant(lambda x, y: (torch.relu(x + y),), x, y, name="strided"))


def transposed_add_relu() -> Sample:
    return _one(lambda x, y: (torch.relu(x + y),), *(spec(n, 8, 40, stride=(1, 8)) for n in "xy"))


def relu() -> Sample:
    return _one(lambda x: (torch.relu(x) * 2,), spec("x", 3, 40))


def absolute() -> Sample:
    return _one(lambda x: (torch.abs(x) * 2,), spec("x", 3, 40))


def times_one() -> Sample:
    return _one(lambda x: (x * 1.0,), spec("x", 3, 40))


def multiply() -> Sample:
    return _one(lambda x, y: (x * y,), *_pair(3, 40))


def flipped() -> Sample:
    return _one(lambda x: (torch.flip(x, (0,)),), spec("x", 120, std=100.0))


def converted() -> Sample:
    return _one(lambda x: (x.to(torch.float16) * 2,), spec("x", 3, 40))


def matmul() -> Sample:
    return _one(lambda x, w: (x @ w,), spec("x", 32, 64), spec("w", 64, 16, role="parameter", std=100.0))


def unit_matmul() -> Sample:
    return _one(lambda x, w: (x @ w,), spec("x", 32, 64), spec("w", 64, 16, role="parameter", std=1.0))


def half_matmul() -> Sample:
    inputs = spec("x", 24, 40, dtype="float16"), spec("w", 40, 20, dtype="float16", role="parameter")
    return _one(lambda x, w: (x @ w,), *inputs)


def embedding() -> Sample:
    table = spec("table", 10, 8, role="parameter")
    return _one(lambda ids, table: (F.embedding(ids, table) * 2,), spec("ids", 6, dtype="int64", low=0, high=9), table)


def softmax() -> Sample:
    return _one(lambda x: (torch.softmax(x, -1),), spec("x", 6, 48))


def activations() -> Sample:
    return _one(lambda x, y: (torch.relu(x + y), torch.sigmoid(y + x)), spec("x", 300), spec("y", 300))


def row_sums() -> Sample:
    return _one(lambda x: (x.sum(-1),), spec("x", 5, 100))


def total() -> Sample:
    return _one(lambda x: (x.sum() * 1.5,), spec("x", 4, 100))


def sum_and_relu() -> Sample:
    def f(x, y):
        both = x + y
        return torch.relu(both) * 2, both

    return _one(f, spec("x", 50), spec("y", 50))


def steps() -> Sample:
    return _one(lambda x: (torch.arange(64, dtype=torch.float32, device="cpu") * 0.5 + x,), spec("x", 64))


def negative_tanh() -> Sample:
    return _one(lambda x: (-torch.tanh(x),), spec("x", 200))


def in_place() -> Sample:
    def f(x, y):
        x *= y
        return (x,)

    return _one(f, spec("x", 50), spec("y", 50))


def chain() -> Sample:
    def f(x, y):
        gate = torch.sigmoid(x * 2.0 + y)
        return (torch.relu(gate * x - y) * 0.5 + x,)

    return _one(f, spec("x", 1000), spec("y", 1000))


def linear_sigmoid() -> Sample:
    def f(x, w, b):
        return (torch.sigmoid(F.linear(x, w, b)) * 2.0,)

    return _one(f, spec("x", 6, 20), spec("w", 12, 20, role="parameter"), spec("b", 12, role="parameter"))


def two_products() -> Sample:
    weights = spec("v", 20, 8, role="parameter"), spec("w", 20, 12, role="parameter")
    return _one(lambda x, v, w: (x @ v, x @ w), spec("x", 6, 20), *weights)


def conv_relu() -> Sample:
    def f(x, w, b):
        return (torch.relu(torch.conv2d(x, w, b, (1, 1), (1, 1), (1, 1), 1)),)

    return _one(f, spec("x", 2, 3, 8, 8), spec("w", 4, 3, 3, 3, role="parameter"), spec("b", 4, role="parameter"))


def einsum_half() -> Sample:
    return _one(lambda x, w: (torch.einsum("ij,jk->ik", x, w)[..., :4] * 0.5,), spec("x", 6, 20), spec("w", 20, 8))


def scaled() -> Sample:
    return _one(lambda x: ((x * 0.125).view(8, 15),), spec("x", 120))


def add_norm() -> Sample:
    def f(x, y, w, b):
        total = x + y
        return F.layer_norm(total, (48,), w, b, 1e-05), total

    parameters = spec("w", 48, role="parameter"), spec("b", 48, role="parameter")
    return _one(f, spec("x", 6, 48), spec("y", 6, 48), *parameters)

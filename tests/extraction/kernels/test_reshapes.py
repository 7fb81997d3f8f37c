"""Reshapes as index arithmetic: the right elements, and an index that does not grow with what came before."""

import itertools

import pytest
import sympy
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch._inductor.dependencies import MemoryDep

from extraction.kernels.lowering import lowered
from extraction.kernels.reshapes import by_groups
from tests.agent.support import tensor, variant

SHAPES = [
    ((2, 3, 4), (2, 4, 3)),
    ((2, 6, 5, 1), (4, 3, 1, 5)),
    ((1, 4, 6), (6, 4)),
    ((4, 6, 1), (1, 8, 3)),
    ((1, 1), (1,)),
    ((6,), (1, 1, 6, 1)),
    ((6, 10, 3), (4, 15, 1, 3)),
]


def _reads_as_eager(old: tuple[int, ...], new: tuple[int, ...]) -> None:
    before = torch.arange(torch.Size(old).numel()).view(old)
    after, reindex = before.view(new), by_groups(old, new)
    for place in itertools.product(*map(range, new)):
        found = tuple(int(n) for n in reindex([sympy.Integer(n) for n in place]))
        assert before[found] == after[place], (old, new, place, found)


@pytest.mark.parametrize(("old", "new"), SHAPES)
def test_a_reshape_reads_the_elements_that_eager_reads(old, new) -> None:
    _reads_as_eager(old, new)
    _reads_as_eager(new, old)


@given(st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_so_does_any_reshape(old, random) -> None:
    factors = [prime for size in old for prime in {1: [], 4: [2, 2], 6: [2, 3]}.get(size, [size])] + [1]
    random.shuffle(factors)
    new = [1, 1, 1]
    for factor in factors:
        new[random.randrange(3)] *= factor
    _reads_as_eager(tuple(old), tuple(new))


def test_dimensions_that_a_reshape_leaves_alone_are_not_divided() -> None:
    a, b, c, d = sympy.symbols("a:d", integer=True, nonnegative=True)
    first, second, *others = by_groups((2, 12, 30, 118), (2, 12, 118, 30))([a, b, c, d])
    assert (first, second) == (a, b)
    assert all(digit.free_symbols == {c, d} for digit in others)


def test_an_index_does_not_grow_with_the_reshapes_before_it() -> None:
    """Relative attention shifts its scores by reshapes to and fro; here two such pairs follow one another."""

    def shifted(x, y):
        scores = x * y
        for _ in range(2):
            turned = scores.reshape(2, 12, scores.shape[3], scores.shape[2])[:, :, 1:]
            scores = turned.reshape(2, 12, scores.shape[2], scores.shape[3] - 1)
        return scores[:, :, 1:] + 1.0

    one = variant(lambda x, y: shifted(x, y), *2 * [tensor(2, 12, 30, 120)])
    with lowered(one.graph, one.inputs, short_indices=True) as result:
        reads = [dep for kernel in result.kernels for dep in kernel.node.read_writes.reads]
    indices = [dep.index for dep in reads if isinstance(dep, MemoryDep)]
    assert indices
    assert all(sympy.count_ops(index) < 40 for index in indices), indices

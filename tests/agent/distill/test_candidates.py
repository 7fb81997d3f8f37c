"""What is lowered while a graph's candidates are looked for."""

import pytest
import torch
import torch.nn.functional as F

from agent.distill.candidates import Options, find_candidates
from agent.distill.lowered_regions import Sketches
from agent.distill.rounding import Rounding
from tests.agent.support import ANY, tensor, variant


def _exact(x, y):
    return (F.layer_norm(F.gelu(x * 2.0 + y), (40,)) * y,)


def _with_another_function(x, y):
    return (torch.log2(x * 2.0 + y) * y,)


@pytest.mark.parametrize(("function", "alone"), [(_exact, False), (_with_another_function, True)])
def test_ops_are_lowered_alone_only_where_their_region_rounds_otherwise(function, alone):
    one, lowered = variant(function, tensor(8, 40), tensor(8, 40)), []
    for rounding in (Rounding.ANY, Rounding.EXACT):
        sketches = Sketches()
        found = find_candidates([one], Options(ANY, rounding=rounding), sketches)
        assert found.candidates
        assert found.excluded == (frozenset({2}) if rounding and alone else frozenset())
        lowered.append(sketches.lowered)
    assert (lowered[1] > lowered[0]) == alone, lowered


def _with_a_product(x, y):
    return (torch.matmul(torch.tanh(x * 2.0), y.transpose(0, 1)) * 0.5,)


def test_a_graph_that_is_one_region_is_lowered_once():
    """And not for its library calls, too, of which it has none."""
    one, sketches = variant(_exact, tensor(8, 40), tensor(8, 40)), Sketches()
    assert find_candidates([one], Options(ANY), sketches).candidates
    assert sketches.lowered == 1
    one = variant(_with_a_product, tensor(8, 40), tensor(8, 40))
    assert sketches.library_calls(one.graph, one.inputs) == {3}
    assert sketches.lowered == 2


def _by_a_sum_of_all(i, x, y):
    return (i.sum() * x + y,)


def _sum_of_all(i):
    return (i.sum(),)


def test_what_reads_a_sum_that_eager_adds_faster_is_replaced_without_it():
    """Of the sum of half a million elements a kernel has one program; what is computed of it has many."""
    one = variant(_by_a_sum_of_all, tensor(480, 1045, dtype="int64"), tensor(480, 1045), tensor(480, 1045))
    found = find_candidates([one], Options(ANY), Sketches())
    assert [candidate.region.graph.op_sequence for candidate in found.candidates] == [["operator.mul", "operator.add"]]
    assert any("whose kernels are faster: .sum" in cause for cause in found.causes)
    short = variant(_by_a_sum_of_all, tensor(4, 10, dtype="int64"), tensor(4, 10), tensor(4, 10))
    assert len(find_candidates([short], Options(ANY), Sketches()).candidates[0].region.ops) == 3
    alone = variant(_sum_of_all, tensor(480, 1045, dtype="int64"))
    assert find_candidates([alone], Options(ANY), Sketches()).candidates, "a pass of nothing has no match"

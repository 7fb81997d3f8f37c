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

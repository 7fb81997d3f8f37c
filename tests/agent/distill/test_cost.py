"""What a region is expected to save: eager's kernels wait as a pass's do, where both add in one order."""

import torch.nn.functional as F

from agent.distill.candidates import Options, find_candidates
from agent.distill.lowered_regions import Sketches
from agent.distill.rounding import Rounding
from tests.agent.support import ANY, tensor, variant


def _group_norm(x):
    return F.group_norm(x, 32).relu()


def test_eagers_group_norm_goes_over_long_rows_in_turns_too():
    """It is worth a try, and not sure: no sample is to lose by it without being measured."""
    one = variant(_group_norm, tensor(2, 256, 56, 56, dtype="float16"))
    options = Options(margin=ANY, rounding=Rounding.EXACT, confirms=lambda order: True)
    (found,) = find_candidates([one], options, Sketches()).candidates
    assert found.device > 0 > found.sure

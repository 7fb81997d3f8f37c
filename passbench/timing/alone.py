"""Calls made alone, each in an exchange of its own, beside those of full exchanges.

A pass that computes several calls of an exchange at once has nothing to gather where a call comes alone: that call
takes what it takes. What an exchange costs beside its calls is told from eager's, whose calls cost the same alone.
"""

from passbench.result import Timing
from passbench.timing.statistics import Pairs

_TIMES, _MORE_US = 2.0, 150.0
"""A call may take so many times as long when it comes alone, and so many microseconds more: caches are cold, and the
host has slept. That is no check of small calls; those are checked by their outputs."""


def excess(alone: Pairs, together: Timing) -> str:
    """What a candidate's calls take alone, where that is far longer than in exchanges of many; else empty.

    The fastest of the calls made alone counts on both sides. A busy host makes single calls longer, and a call that has
    all its work to do is never short.
    """
    eager, candidate = (min(x.total_us for x in side) for side in (alone.eager, alone.candidate))
    taken = candidate - max(eager - together.eager_us, 0.0)
    if taken <= _TIMES * together.candidate_us + _MORE_US:
        return ""
    return f"alone: a call takes {taken:.0f} us alone and {together.candidate_us:.0f} us among others"

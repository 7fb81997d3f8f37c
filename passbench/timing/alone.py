"""Calls made alone, each in an exchange of its own, beside those of full exchanges.

A pass that computes several calls of an exchange at once has nothing to gather where a call comes alone: that call
takes what it takes. What an exchange costs beside its calls is told from eager's, whose calls cost the same alone.

Other processes on the GPU make single calls longer, eager's as well. So more are made where calls look long, after
pauses, and the last word is with each call beside eager's of the same moment. A disturbance is never shorter than
nothing: where eager's calls are short now and then and the candidate's never are, it has work of its own.
"""

import math
from collections.abc import Callable

from passbench.result import Timing
from passbench.timing.statistics import Pairs

_TIMES, _MORE_US = 2.0, 150.0
"""A call may take so many times as long when it comes alone, and so many microseconds more: caches are cold, and the
host has slept. That is no check of small calls; those are checked by their outputs."""
_PAUSES = (0.0, 0.0, 0.05, 0.1, 0.2, 0.4, 0.4, 0.4, *(0.0,) * 32)
"""Seconds before further calls are made. What disturbs a call may go on for some tenths of a second."""
_DEVIATIONS = 3.3
"""So many standard deviations more than half of the pairs must be too long: chance does that once in 2,000 times."""
_SHORTER = 11
"""So many of eager's calls must be less disturbed than any of the candidate's can be: chance does that as rarely, since
in each of these pairs the other call could have been the less disturbed one."""


def excess(alone: Pairs, together: Timing) -> str:
    """What a candidate's calls take alone, where that is far longer than in exchanges of many; else empty.

    The fastest of the calls made alone counts on both sides. A busy host makes single calls longer, and a call that has
    all its work to do is never short.
    """
    taken = _taken(*(min(x.total_us for x in side) for side in (alone.eager, alone.candidate)), together)
    if taken <= _allowed(together):
        return ""
    return f"alone: a call takes {taken:.0f} us alone and {together.candidate_us:.0f} us among others"


def refusal(alone: Pairs, together: Timing, ask: Callable[[float], None]) -> str:
    """Why a candidate is refused whose calls take far longer alone than among others; else empty. `ask` adds calls to
    `alone` after so many seconds.

    Calls that still look long when all have been made are compared in pairs, each with eager's of the same moment. What
    disturbs one side disturbs the other as often, so that calls that are as short as among others look too long in less
    than half of the pairs. A call that has all its work to do does in most, unless that is little beside disturbances.
    Then the shortest calls tell: without work of its own, either side has them.
    """
    for pause in _PAUSES:
        if not excess(alone, together):
            return ""
        ask(pause)
    reason, count = excess(alone, together), len(alone.eager)
    taken = (_taken(e.total_us, c.total_us, together) for e, c in zip(alone.eager, alone.candidate, strict=True))
    long = sum(each > _allowed(together) for each in taken)
    if long > count / 2 + _DEVIATIONS * math.sqrt(count) / 2 or _shorter(alone, together) >= _SHORTER:
        return reason
    return ""


def _shorter(alone: Pairs, together: Timing) -> int:
    """How many of eager's calls were disturbed less than the candidate's least disturbed call was, if that may take
    what it is allowed to. Eager may be faster alone than among others."""
    least = min(x.total_us for x in alone.candidate) - _allowed(together)
    undisturbed = min(together.eager_us, *(x.total_us for x in alone.eager))
    return sum(x.total_us - undisturbed < least for x in alone.eager)


def _taken(eager_us: float, candidate_us: float, together: Timing) -> float:
    """What a candidate's call took of its exchange; what that took beside is told from eager's."""
    return candidate_us - max(eager_us - together.eager_us, 0.0)


def _allowed(together: Timing) -> float:
    return _TIMES * together.candidate_us + _MORE_US

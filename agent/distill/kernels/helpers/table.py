"""All functions that kernels call."""

import re

from agent.distill.kernels import place_sums, reductions, sweep_turns, triton_ops
from agent.distill.kernels.helpers import channel_moments, thread_sums

_ONLY = '''
@triton.jit
def first_of_two(a, b):
    """Combines two values to the first."""
    return a


@triton.jit
def only(x):
    """The only element of a tensor, as a scalar."""
    return tl.reduce(tl.reshape(x, [1]), 0, first_of_two)
'''
HELPERS = triton_ops.HELPERS | reductions.HELPERS | thread_sums.HELPERS | channel_moments.HELPERS
HELPERS |= sweep_turns.HELPERS | place_sums.HELPERS | {"only": _ONLY}
"""Name → source."""
NEEDED = thread_sums.NEEDED | channel_moments.NEEDED
"""Name → all of these that such a function calls."""
_CALLED = re.compile(rf"(?<![.\w])(?:{'|'.join(HELPERS)})\b")


def helpers_in(line: str) -> list[str]:
    """The names of the functions that a line of a kernel calls."""
    return _CALLED.findall(line)

"""Loads that a kernel needs only behind its reductions, such as a norm's weights: kept under way from the beginning.

A kernel's text has all loads first, but ptxas moves such loads down to where they are needed, behind what waits for the
others and for other warps, and the kernel waits for memory twice. It moves nothing over a branch that it cannot turn
into a predicate. A division has one, for numbers that seldom are; it is done while the loads are under way. By counts
of instructions and their latencies (compiled for sm_90, not measured), a program of the layer norm of
`fusible-58e0c69b73c0` takes 1,438 cycles so, and 1,799 without, where a load takes 700.
"""

from agent.distill.kernels.schedule import KernelBody, reachable

HELPERS: dict[str, str] = {
    "behind_loads": '''
@triton.jit
def behind_loads(number):
    """The same whole number, by a division: its jump keeps the loads above ahead of all that is below."""
    return tl.div_rn(number.to(tl.float32), 1.0).to(tl.int32)
''',
}
"""Helper name → source."""
_EXACT = 1 << 24
"""Whole numbers below are exact in single precision."""


def has_late_loads(kernel: KernelBody) -> bool:
    """Whether a kernel loads by column what no first reduction needs."""
    values = kernel.values()
    first = [value for value in values if value.op == "reduce" and value.depth == 1]
    needed = {value.number for value in reachable(operand for value in first for operand in value.args)}
    late = (value.op == "load" and value.by_column and value.number not in needed for value in values)
    return bool(first) and kernel.rows < _EXACT and any(late)

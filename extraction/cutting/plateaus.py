"""Kernel-count plateaus: maximal, disjoint ranges of ops that together need no more kernels than the first op alone.

A range starts at an op that needs a kernel and is contiguous in the order of ops. Ops that need none (views, dropout in
evaluation) come along, but not at the end. At least two ops must need a kernel: a convolution and a view of its result
are nothing to fuse. A library call (convolution, matrix product, attention) always is a kernel that only its own op
needs, so it may start a range, when a generated kernel behind it is needed as well (a bias), and never joins one.

The rule is the same for kernels that a schedule predicts and for kernels that were counted: what differs is `joins`.
"""

from collections.abc import Callable, Iterator

MAX_OPS = 64


def plateaus(
    ops: int,
    costs: Callable[[int], bool],
    joins: Callable[[int, int], bool],
    barred: Callable[[int], bool],
) -> Iterator[tuple[int, int]]:
    """The ranges `[start, end)` of a graph of so many ops.

    `costs(op)`: whether the op needs a kernel. `joins(start, op)`: whether ops `[start, op]`, the last of which costs,
    need no more kernels than op `start` alone; it is asked for growing `op`. `barred(op)`: whether it is in no range.
    """
    start = 0
    while start < ops:
        if barred(start) or not costs(start):
            start += 1
            continue
        end, needing, last = start + 1, 1, start + 1
        while end < min(ops, start + MAX_OPS) and not barred(end):
            if costs(end):
                if not joins(start, end):
                    break
                needing, last = needing + 1, end + 1
            end += 1
        if needing > 1:
            yield start, last
        start = end

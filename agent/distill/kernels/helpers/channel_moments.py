"""The moments of a batch norm's channels as ATen's `Normalization.cuh` finds them, in functions of kernels.

Each of eager's threads counts what it has. Neighbours in a warp are joined, and then neighbouring warps. Those that
have nothing take part by the same formulas (`agent.distill.eager.emulated_sums.channels`).
"""

HELPERS: dict[str, str] = {
    "welford_counted": '''
@triton.jit
def welford_counted(x, mean, distances, count, inside):
    """One more element of each thread that has one, for its mean, squared distances from that, and count."""
    apart, more = x - mean, count + 1.0
    moved = mean + tl.div_rn(apart, more)
    wider = tl.fma(apart, x - moved, distances)
    return tl.where(inside, moved, mean), tl.where(inside, wider, distances), tl.where(inside, more, count)
''',
    "neighbours_as_one": '''
@triton.jit
def neighbours_as_one(mean, distances, count, other_mean, other_distances, other_count):
    """The moments of two threads as those of one."""
    apart, both = mean - other_mean, count + other_count
    share = share_of(tl.maximum(both, 1.0))
    wider = distances + tl.fma(share, apart * apart * count * other_count, other_distances)
    return share * tl.fma(mean, count, other_mean * other_count), wider, both
''',
    "both_neighbours": '''
@triton.jit
def both_neighbours(x, ROWS: tl.constexpr, LENGTH: tl.constexpr):
    """(ROWS, LENGTH) to every second element and those between, by sums with zeros: what threads of a warp exchange."""
    pairs = tl.reshape(x, [ROWS, LENGTH // 2, 2])
    second = tl.arange(0, 2)[None, None, :] > 0
    return tl.sum(tl.where(second, 0.0, pairs), 2), tl.sum(tl.where(second, pairs, 0.0), 2)
''',
    "join_neighbours": '''
@triton.jit
def join_neighbours(mean, distances, count, ROWS: tl.constexpr, OUTER: tl.constexpr, LENGTH: tl.constexpr):
    """Means, squared distances and counts, (ROWS, OUTER * LENGTH) to (ROWS, OUTER), every second one into its left."""
    for n in tl.static_range(10):
        if LENGTH >> n > 1:
            mean, mean_b = both_neighbours(mean, ROWS * OUTER, LENGTH >> n)
            distances, distances_b = both_neighbours(distances, ROWS * OUTER, LENGTH >> n)
            count, count_b = both_neighbours(count, ROWS * OUTER, LENGTH >> n)
            mean, distances, count = neighbours_as_one(mean, distances, count, mean_b, distances_b, count_b)
    return tl.reshape(mean, [ROWS, OUTER]), tl.reshape(distances, [ROWS, OUTER]), tl.reshape(count, [ROWS, OUTER])
''',
    "pairs_of_row": '''
@triton.jit
def pairs_of_row(x, ROWS: tl.constexpr, LENGTH: tl.constexpr):
    """As `both_neighbours`, of rows that each thread has whole."""
    return tl.split(tl.reshape(x, [ROWS, LENGTH // 2, 2]))
''',
    "join_row": '''
@triton.jit
def join_row(mean, distances, count, ROWS: tl.constexpr, LENGTH: tl.constexpr):
    """As `join_neighbours`, (ROWS, LENGTH) to (ROWS, 1), of rows that each thread has whole."""
    for n in tl.static_range(10):
        if LENGTH >> n > 1:
            mean, mean_b = pairs_of_row(mean, ROWS, LENGTH >> n)
            distances, distances_b = pairs_of_row(distances, ROWS, LENGTH >> n)
            count, count_b = pairs_of_row(count, ROWS, LENGTH >> n)
            mean, distances, count = neighbours_as_one(mean, distances, count, mean_b, distances_b, count_b)
    return mean, distances, count
''',
}
"""Helper name → source."""
NEEDED = {
    "neighbours_as_one": ("share_of",),
    "join_neighbours": ("both_neighbours", "neighbours_as_one", "share_of"),
    "join_row": ("neighbours_as_one", "pairs_of_row", "share_of"),
}
"""Helper → all helpers that it calls, and those that these call."""

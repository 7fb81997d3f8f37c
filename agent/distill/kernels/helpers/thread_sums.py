"""Triton functions that add up what eager's threads have kept, in eager's order (`kernels.ordered_sums`)."""

import re

HELPERS: dict[str, str] = {
    "add_halves": '''
@triton.jit
def add_halves(x, ROWS: tl.constexpr, OUTER: tl.constexpr, LENGTH: tl.constexpr):
    """(ROWS, OUTER * LENGTH) to (ROWS, OUTER): adds the second half of LENGTH to the first until one is left."""
    for n in tl.static_range(10):
        if LENGTH >> n > 1:
            x = tl.sum(tl.reshape(x, [ROWS * OUTER, 2, (LENGTH >> n) // 2]), 1)
    return tl.reshape(x, [ROWS, OUTER])
''',
    "four_parts": '''
@triton.jit
def four_parts(x, ROWS: tl.constexpr, THREADS: tl.constexpr):
    """(ROWS, THREADS, 4) to four of (ROWS, THREADS)."""
    even, odd = tl.split(tl.reshape(x, [ROWS, THREADS, 2, 2]))
    first, third = tl.split(even)
    second, fourth = tl.split(odd)
    return first, second, third, fourth
''',
    "add_parts": '''
@triton.jit
def add_parts(x, ROWS: tl.constexpr, THREADS: tl.constexpr, PARTS: tl.constexpr):
    """(ROWS, THREADS, PARTS), up to 32 parts, to (ROWS, THREADS), one part after another."""
    if PARTS == 1:
        total = tl.reshape(x, [ROWS, THREADS])
    elif PARTS == 2:
        a, b = tl.split(x)
        total = a + b
    elif PARTS == 4:
        a, b, c, d = four_parts(x, ROWS, THREADS)
        total = a + b + c + d
    elif PARTS == 8:
        total = add_eight(tl.zeros([ROWS, THREADS], tl.float32), x, ROWS, THREADS)
    elif PARTS == 16:
        total = add_sixteen(tl.zeros([ROWS, THREADS], tl.float32), x, ROWS, THREADS)
    else:
        first, second = tl.split(tl.permute(tl.reshape(x, [ROWS, THREADS, 2, 16]), [0, 1, 3, 2]))
        total = add_sixteen(tl.zeros([ROWS, THREADS], tl.float32), first, ROWS, THREADS)
        total = add_sixteen(total, second, ROWS, THREADS)
    return total
''',
    "add_sixteen": '''
@triton.jit
def add_sixteen(total, x, ROWS: tl.constexpr, THREADS: tl.constexpr):
    """(ROWS, THREADS) and the 16 parts of (ROWS, THREADS, 16), one after another."""
    first, second = tl.split(tl.permute(tl.reshape(x, [ROWS, THREADS, 2, 8]), [0, 1, 3, 2]))
    return add_eight(add_eight(total, first, ROWS, THREADS), second, ROWS, THREADS)
''',
    "add_eight": '''
@triton.jit
def add_eight(total, x, ROWS: tl.constexpr, THREADS: tl.constexpr):
    """(ROWS, THREADS) and the 8 parts of (ROWS, THREADS, 8), one after another."""
    even, odd = tl.split(tl.reshape(x, [ROWS, THREADS, 4, 2]))
    a, c, e, g = four_parts(even, ROWS, THREADS)
    b, d, f, h = four_parts(odd, ROWS, THREADS)
    return total + a + b + c + d + e + f + g + h
''',
    "welford_step": '''
@triton.jit
def welford_step(x, mean, distances, share, inside):
    """One more element of each thread, a `share` of all that it has, for its mean and squared distances from that."""
    apart = x - mean
    moved = tl.fma(apart, share, mean)
    wider = tl.fma(apart, x - moved, distances)
    return tl.where(inside, moved, mean), tl.where(inside, wider, distances)
''',
    "welford_divided": '''
@triton.jit
def welford_divided(x, mean, distances, number, inside):
    """One more element of each thread, its `number`-th, for its mean and squared distances from that."""
    apart = x - mean
    moved = mean + tl.div_rn(apart, number)
    wider = tl.fma(apart, x - moved, distances)
    return tl.where(inside, moved, mean), tl.where(inside, wider, distances)
''',
    "halves": '''
@triton.jit
def halves(x, ROWS: tl.constexpr, LENGTH: tl.constexpr):
    """(ROWS, LENGTH) to its first and its second half."""
    return tl.split(tl.permute(tl.reshape(x, [ROWS, 2, LENGTH // 2]), [0, 2, 1]))
''',
    "both_sides": '''
@triton.jit
def both_sides(x, ROWS: tl.constexpr, LENGTH: tl.constexpr):
    """The same by sums with zeros, as what the threads of a warp exchange."""
    pairs = tl.reshape(x, [ROWS, 2, LENGTH // 2])
    second = tl.arange(0, 2)[None, :, None] > 0
    return tl.sum(tl.where(second, 0.0, pairs), 1), tl.sum(tl.where(second, pairs, 0.0), 1)
''',
    "share_of": '''
@triton.jit
def share_of(count):
    """1 / count of a whole number, rounded as a division is, without what that does for other numbers."""
    about = 1.0 / count
    return tl.fma(tl.fma(-count, about, 1.0), about, about)
''',
    "part_of": '''
@triton.jit
def part_of(count, whole):
    """count / whole of whole numbers, up to 1, in the same way."""
    share = share_of(whole)
    part = count * share
    return tl.fma(tl.fma(-whole, part, count), share, part)
''',
    "moments_of_two": '''
@triton.jit
def moments_of_two(mean, distances, count, other_mean, other_distances, other_count):
    """The moments of two threads as those of one."""
    apart = other_mean - mean
    both = count + other_count
    share = tl.where(both > 0, share_of(both), 0.0)
    wider = tl.fma(count * share, apart * apart * other_count, distances + other_distances)
    return tl.fma(other_count * share, other_mean, count * share * mean), wider, both
''',
    "moments_of_equal": '''
@triton.jit
def moments_of_equal(mean, distances, other_mean, other_distances):
    """The moments of two threads that have equally many elements; squared distances are means of them."""
    apart = other_mean - mean
    return tl.fma(0.5, other_mean, 0.5 * mean), tl.fma(0.25, apart * apart, 0.5 * (distances + other_distances))
''',
    "moments_of_alike": '''
@triton.jit
def moments_of_alike(mean, distances, count, other_mean, other_distances, other_count):
    """The same of threads that have `count` elements each; halves of squared distances are added."""
    apart = other_mean - mean
    wider = tl.fma(0.25, apart * apart * count, 0.5 * (distances + other_distances))
    return tl.fma(0.5, other_mean, 0.5 * mean), wider, count
''',
    "joined_of_two": '''
@triton.jit
def joined_of_two(mean, distances, count, other_mean, other_distances, other_count):
    """The same by other formulas; a thread without elements changes nothing."""
    apart = other_mean - mean
    both = count + other_count
    share = part_of(other_count, both)
    joined = tl.fma(apart, share, mean)
    wider = tl.fma(apart * apart * count, share, distances + other_distances)
    mean = tl.where(other_count == 0, mean, tl.where(count == 0, other_mean, joined))
    distances = tl.where(other_count == 0, distances, tl.where(count == 0, other_distances, wider))
    return mean, distances, both
''',
    "add_rounded_halves": '''
@triton.jit
def add_rounded_halves(x, dtype: tl.constexpr, ROWS: tl.constexpr, OUTER: tl.constexpr, LENGTH: tl.constexpr):
    """As `add_halves`; what is added to the first half is rounded to a dtype before."""
    for n in tl.static_range(10):
        if LENGTH >> n > 1:
            first, second = both_sides(x, ROWS * OUTER, LENGTH >> n)
            x = first + second.to(dtype).to(tl.float32)
    return tl.reshape(x, [ROWS, OUTER])
''',
    "join_halves": '''
@triton.jit
def join_halves(mean, distances, count, ROWS: tl.constexpr, OUTER: tl.constexpr, LENGTH: tl.constexpr):
    """As `combine_halves`, by other formulas; a thread without elements changes nothing."""
    for n in tl.static_range(10):
        if LENGTH >> n > 1:
            mean_a, mean_b = both_sides(mean, ROWS * OUTER, LENGTH >> n)
            wide_a, wide_b = both_sides(distances, ROWS * OUTER, LENGTH >> n)
            count_a, count_b = both_sides(count, ROWS * OUTER, LENGTH >> n)
            mean, distances, count = joined_of_two(mean_a, wide_a, count_a, mean_b, wide_b, count_b)
    return tl.reshape(mean, [ROWS, OUTER]), tl.reshape(distances, [ROWS, OUTER]), tl.reshape(count, [ROWS, OUTER])
''',
    "combine_halves": '''
@triton.jit
def combine_halves(mean, distances, count, ROWS: tl.constexpr, OUTER: tl.constexpr, LENGTH: tl.constexpr):
    """Means, squared distances and counts, (ROWS, OUTER * LENGTH) to (ROWS, OUTER), second halves into first."""
    for n in tl.static_range(10):
        if LENGTH >> n > 1:
            mean_a, mean_b = both_sides(mean, ROWS * OUTER, LENGTH >> n)
            count_a, count_b = both_sides(count, ROWS * OUTER, LENGTH >> n)
            apart = mean_b - mean_a
            count = count_a + count_b
            share = tl.where(count > 0, share_of(count), 0.0)
            mean = tl.fma(count_b * share, mean_b, count_a * share * mean_a)
            both = tl.sum(tl.reshape(distances, [ROWS * OUTER, 2, (LENGTH >> n) // 2]), 1)
            distances = tl.fma(count_a * share, apart * apart * count_b, both)
    return tl.reshape(mean, [ROWS, OUTER]), tl.reshape(distances, [ROWS, OUTER]), tl.reshape(count, [ROWS, OUTER])
''',
    "equal_halves": '''
@triton.jit
def equal_halves(mean, distances, count, ROWS: tl.constexpr, OUTER: tl.constexpr, LENGTH: tl.constexpr):
    """As `combine_halves` where each thread of a row of LENGTH has as many elements as `count` (ROWS, OUTER) says;
    halves of squared distances are added."""
    each = tl.reshape(count, [ROWS * OUTER, 1])
    for n in tl.static_range(10):
        if LENGTH >> n > 1:
            mean_a, mean_b = both_sides(mean, ROWS * OUTER, LENGTH >> n)
            wide_a, wide_b = both_sides(distances, ROWS * OUTER, LENGTH >> n)
            mean, distances, _ = moments_of_alike(mean_a, wide_a, each, mean_b, wide_b, each)
    return tl.reshape(mean, [ROWS, OUTER]), tl.reshape(distances, [ROWS, OUTER])
''',
}
"""Helper name → source."""

_BY_HALVES = ("add_halves", "add_rounded_halves", "join_halves", "combine_halves", "equal_halves")
_ADDED = re.compile(r"( +)(\w+) = tl\.sum\(tl\.reshape\((\w+), \[ROWS \* OUTER, 2, \(LENGTH >> n\) // 2\]\), 1\)")


def _of_whole_rows(name: str) -> str:
    """A helper that adds halves as one in which each thread has whole rows, under another name.

    Of eager's rows of threads one number each is left, and these lie in several warps, which so exchange them once, not
    in each step. Compiled for an H100, the 16 rows of a channel's backward have one barrier in place of 5 to 11.
    """
    text = HELPERS[name].replace(name, name.replace("halves", "rows")).replace("both_sides(", "halves(")
    return _ADDED.sub(r"\1first, second = halves(\3, ROWS * OUTER, LENGTH >> n)\n\1\2 = first + second", text)


_BY_ROWS = {name.replace("halves", "rows"): _of_whole_rows(name) for name in _BY_HALVES}
HELPERS |= _BY_ROWS
NEEDED = (
    {"add_parts": ("four_parts", "add_eight", "add_sixteen"), "part_of": ("share_of",)}
    | {"add_rounded_halves": ("both_sides",), "add_rounded_rows": ("halves",), "add_rows": ("halves",)}
    | {"combine_halves": ("both_sides", "share_of"), "combine_rows": ("halves", "share_of")}
    | {"join_halves": ("both_sides", "joined_of_two", "part_of", "share_of")}
    | {"join_rows": ("halves", "joined_of_two", "part_of", "share_of")}
    | {"equal_halves": ("both_sides", "moments_of_alike"), "equal_rows": ("halves", "moments_of_alike")}
    | {"moments_of_two": ("share_of",), "joined_of_two": ("part_of", "share_of")}
)
"""Helper → all helpers that it calls, and those that these call."""

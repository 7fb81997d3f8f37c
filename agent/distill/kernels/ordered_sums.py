"""Reductions in eager's order: what a kernel keeps for each thread of eager's, and how it is added up.

`agent.distill.eager.sum_order` says what that order is.

The kernel sweeps its columns in eager's steps; if there are several orders, in the longest step. For an "ordered_sum",
or "ordered_squares", it keeps as many sums as a step has elements. For "squares" (a sum of squares), "turns" (a sum, or
one of products), "mean" and "distances" (a sum of squared distances from the mean) it keeps what each of eager's
threads keeps.
"""

import re
from collections.abc import Sequence

import torch

from agent.distill.eager.sum_order import WARP, SumOrder
from agent.distill.kernels.schedule import KernelBody
from agent.distill.kernels.text_template import slot
from agent.distill.kernels.triton_names import triton_dtype
from agent.distill.kernels.value_graph import Value

MOMENTS = ("mean", "distances")
"""Reductions that one sweep finds together; these are their `Value.detail`."""
_BY_PLACE = ("ordered_sum", "ordered_squares")
DETAILS = frozenset((*_BY_PLACE, "squares", "turns", *MOMENTS))
"""The `Value.detail` of all reductions that this module writes."""
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
            apart = mean_b - mean_a
            count = count_a + count_b
            share = part_of(count_b, count)
            both = tl.fma(apart, share, mean_a)
            wider = tl.fma(apart * apart * count_a, share, wide_a + wide_b)
            mean = tl.where(count_b == 0, mean_a, tl.where(count_a == 0, mean_b, both))
            distances = tl.where(count_b == 0, wide_a, tl.where(count_a == 0, wide_b, wider))
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
}
"""Helper name → source."""

_BY_HALVES = ("add_halves", "add_rounded_halves", "join_halves", "combine_halves")
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
    | {"join_halves": ("both_sides", "part_of", "share_of"), "join_rows": ("halves", "part_of", "share_of")}
    | {"moments_of_two": ("share_of",), "joined_of_two": ("part_of", "share_of")}
)
"""Helper → all helpers that it calls, and those that these call."""


def start(value: Value, name: str, kernel: KernelBody) -> list[str]:
    """What is kept over the sweep."""
    order = value.order
    if value.detail in _BY_PLACE:
        return [f"{name}_part = tl.zeros([ROWS, {order.step}], tl.float32)"]
    zeros = f"tl.zeros([ROWS, {order.width * order.height}], tl.float32)"
    if value.detail in ("squares", "turns"):
        return [f"{name}_part = {zeros}"]
    return [f"{part} = {zeros}" for part in _moments(name)[: 3 if order.kind == "channels" else 2]]


def step(value: Value, name: str, operands: Sequence[str], kernel: KernelBody, start: str | int) -> list[str]:
    """One step of the sweep, in as many of the order's own steps as it takes. Its columns begin at `start`, a variable
    or a number. Of a row shorter than a step nothing is added behind its end."""
    lines, dealt = [], []
    columns = kernel.columns if kernel.deal is None else kernel.step
    for named, operand in zip((f"{name}_next", f"{name}_by"), operands, strict=False):
        lines.append(f"{named} = tl.where(inside, {operand}, 0.0)")
        pieces, length = [named], kernel.step
        while length > value.order.step:
            whole, pieces = pieces, []
            for number, piece in enumerate(whole):
                pieces += [f"{piece}a", f"{piece}b"]
                if number * length < columns:
                    lines.append(f"{piece}a, {piece}b = halves({piece}, ROWS, {length})")
            length //= 2
        dealt.append(pieces)
    for number, each in enumerate(zip(*dealt, strict=True)):
        if number * value.order.step < columns:
            lines += _added(value, name, each, _later(start, number * value.order.step), kernel)
    return lines


def _later(start: str | int, columns: int) -> str | int:
    """So many columns behind the start."""
    if isinstance(start, int):
        return start + columns
    return f"{start} + {columns}" if columns else start


def _added(value: Value, name: str, operands: Sequence[str], begin: str | int, kernel: KernelBody) -> list[str]:
    """Adds a piece of each operand's row, which begins at this column."""
    order, (piece, *others) = value.order, operands
    if order.kind == "rounded":
        return [f"{name}_part = ({name}_part + {piece}).to({slot(triton_dtype(order.rounds))}).to(tl.float32)"]
    if value.detail == "ordered_sum" or (value.detail == "turns" and order.sums == 1 and not others):
        return [f"{name}_part += {piece}"]
    if value.detail == "ordered_squares":
        return [f"{name}_part = tl.fma({piece}, {piece}, {name}_part)"]
    threads = order.width * order.height
    if value.detail == "turns":
        return _in_turn(value, name, operands, threads)
    if order.kind == "channels":
        kept = ", ".join(_moments(name))
        return [f"{kept} = welford_counted({piece}, {kept}, inside)"]
    kept = ", ".join(_moments(name)[:2])
    if order.kind == "welford":
        there = f"{name}_inside = {begin} + tl.arange(0, {threads})[None, :] < {slot(kernel.columns)}"
        return [there, f"{kept} = welford_divided({piece}, {kept}, {_number(begin, threads)}, {name}_inside)"]
    parts = [f"{name}_{n}" for n in range(order.sums)]
    lines = [f"{', '.join(parts)} = four_parts({piece}, ROWS, {threads})"]
    if value.detail == "squares":
        return [*lines, *(f"{name}_part = tl.fma({part}, {part}, {name}_part)" for part in parts)]
    lines.append(f"{name}_inside = {begin} + tl.arange(0, {threads})[None, :] * {order.sums} < {slot(kernel.columns)}")
    for number, part in enumerate(parts, 1):
        lines.append(f"{kept} = welford_step({part}, {kept}, {_share(begin, threads, number)}, {name}_inside)")
    return lines


def _in_turn(value: Value, name: str, operands: Sequence[str], threads: int) -> list[str]:
    """What each thread has of the operands, one element after another."""
    sums, lines, split = value.order.sums, [], []
    for operand in operands:
        parts = [f"{operand}_{n}" for n in range(sums)] if sums > 1 else [operand]
        if sums > 1:
            lines.append(f"{', '.join(parts)} = four_parts({operand}, ROWS, {threads})")
        split.append(parts)
    part = f"{name}_part"
    if len(split) == 1:
        return [*lines, *(f"{part} += {x}" for x in split[0])]
    return [*lines, *(f"{part} = tl.fma({x}, {y}, {part})" for x, y in zip(*split, strict=True))]


def _share(begin: str | int, threads: int, number: int) -> str:
    """What the `number`-th element of each thread in a step counts in a mean: 1 / its number in all steps."""
    if isinstance(begin, int):
        return repr((torch.tensor(1.0) / (begin // threads + number)).item())
    return f"share_of(tl.full([1, 1], 1.0, tl.float32) * (({begin}) // {threads} + {number}))"


def _number(begin: str | int, threads: int) -> str:
    """The number of each thread's element in a step that begins at this column."""
    if isinstance(begin, int):
        return repr(float(begin // threads + 1))
    return f"tl.full([1, 1], 1.0, tl.float32) * (({begin}) // {threads} + 1)"


def finish(value: Value, name: str, kernel: KernelBody) -> list[str]:
    """Adds up what was kept; the result is in `name`."""
    order = value.order
    if order.kind == "channels":
        kept = ", ".join(_moments(name))
        lines = [f"{kept} = join_neighbours({kept}, ROWS, {order.height}, {order.width})"]
        lines.append(f"{kept} = join_row({kept}, ROWS, {order.height})")
        return [*lines, *[f"{kept} = neighbours_as_one({kept}, 0.0, 0.0, 0.0)"] * (order.idle.bit_length() - 1)]
    if value.detail in MOMENTS:
        kept, threads = ", ".join(_moments(name)), order.width * order.height
        first = f"tl.arange(0, {threads})[None, :] * {order.sums}"
        elements = f"tl.cdiv(tl.maximum({slot(kernel.columns)} - {first}, 0), {order.step}) * {order.sums}"
        combine = "join_halves" if order.kind == "welford" else "combine_halves"
        lines = [
            f"{name}_count = tl.zeros([ROWS, {threads}], tl.float32) + {elements}",
            f"{kept} = {combine}({kept}, ROWS, {order.height}, {order.width})",
        ]
        if order.height > 1:
            lines.append(f"{kept} = {combine.replace('halves', 'rows')}({kept}, ROWS, 1, {order.height})")
        return [*lines, *_with_idle(kept, order)]
    threads = order.width * order.height
    part, lines = f"{name}_part", []
    if value.detail in _BY_PLACE:
        if not order.vectors:
            apart = f"tl.reshape({part}, [ROWS, {order.sums}, {threads}])"
            lines.append(f"{part} = tl.permute({apart}, [0, 2, 1])")
        lines.append(f"{name}_threads = add_parts({part}, ROWS, {threads}, {order.sums})")
        part = f"{name}_threads"
    if order.height == 1:
        return [*lines, f"{name} = add_halves({part}, ROWS, 1, {order.width})"]
    add, rounds = "add_halves(", ""
    if order.rounds is not None:
        add, rounds = "add_rounded_halves(", f"{slot(triton_dtype(order.rounds))}, "
    lines.append(f"{name}_rows = {add}{part}, {rounds}ROWS, {order.height}, {order.width})")
    return [*lines, f"{name} = {add.replace('halves', 'rows')}{name}_rows, {rounds}ROWS, 1, {order.height})"]


def _with_idle(kept: str, order: SumOrder) -> list[str]:
    """The moments of a row of threads combined with those of idle ones: nothing where the row's share of both, as
    eager computes it, is 1."""
    length = torch.tensor(float(order.length))
    if length * (1.0 / length) == 1.0:
        return []
    return [f"{kept} = moments_of_two({kept}, 0.0, 0.0, 0.0)"] * (order.idle.bit_length() - 1)


def lane_warps(value: Value) -> int:
    """The warps of a program in which `finish_in_lanes` takes the reduction; 0 if it takes no such reduction.

    Each lane of a single warp gets a result of its own, by moments combined in an order of its own. All lanes have the
    first one's bits only where each has as many elements as any other or none, so where their number is a power of two;
    those of a group norm nowhere.
    """
    order = value.order
    if value.detail not in (*MOMENTS, "squares") or order.width != WARP or order.kind == "channels":
        return 0
    single = value.detail in MOMENTS and order.height == 1
    return 0 if single and (order.kind == "welford" or order.length & (order.length - 1)) else order.height


def finish_in_lanes(value: Value, name: str, kernel: KernelBody) -> list[str]:
    """As `finish`, in a program of one row and `lane_warps`, in which each lane has one of eager's threads. The result
    is a scalar.

    Triton then adds what lanes have in eager's order: the second half of a warp to the first until one is left, and so
    the warps. That is the compiler's order, not the language's: Triton's interpreter takes another one.
    """
    order = value.order
    threads = order.width * order.height
    if value.detail == "squares":
        return [f"{name} = tl.sum(tl.reshape({name}_part, [{threads}]), 0)"]
    count, *_ = finish(value, name, kernel)
    moments = ", ".join(_moments(name))
    given = ", ".join(f"tl.reshape({part}, [{threads}])" for part in _moments(name))
    combine = "joined_of_two" if order.kind == "welford" else "moments_of_two"
    return [count, f"{moments} = tl.reduce(({given}), 0, {combine})", *_with_idle(moments, order)]


def result(value: Value, name: str) -> str:
    """What the result is called after `finish`."""
    return f"{name}_{value.detail}" if value.detail in MOMENTS else name


def _moments(name: str) -> tuple[str, str, str]:
    return f"{name}_mean", f"{name}_distances", f"{name}_count"

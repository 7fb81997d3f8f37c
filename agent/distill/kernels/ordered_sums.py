"""Reductions in eager's order: what a kernel keeps for each thread of eager's, and how it is added up.

`agent.distill.eager.sum_order` says what that order is.

The kernel sweeps its columns in eager's steps; if there are several orders, in the longest step. For an "ordered_sum",
or "ordered_squares", it keeps as many sums as a step has elements. For "squares" (a sum of squares), "turns" (a sum, or
one of products), "mean" and "distances" (a sum of squared distances from the mean) it keeps what each of eager's
threads keeps.
"""

from collections.abc import Sequence

import torch

from agent.distill.eager.sum_order import SumOrder
from agent.distill.kernels.schedule import KernelBody
from agent.distill.kernels.text_template import slot
from agent.distill.kernels.triton_ops import triton_dtype
from agent.distill.kernels.value_graph import Value

MOMENTS = ("mean", "distances")
"""Reductions that one sweep finds together; these are their `Value.detail`."""
BY_PLACE = ("ordered_sum", "ordered_squares")
"""Reductions that keep a sum for each element of a step."""
DETAILS = frozenset((*BY_PLACE, "squares", "turns", *MOMENTS))
"""The `Value.detail` of all reductions that this module writes."""


def start(value: Value, name: str, kernel: KernelBody) -> list[str]:
    """What is kept over the sweep."""
    order = value.order
    if value.detail in BY_PLACE:
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
        if (counts := _equal_counts(order)) is not None:
            return _finish_equal(name, order, counts)
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
    if value.detail in BY_PLACE:
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


def _equal_counts(order: SumOrder) -> tuple[int, int, int] | None:
    """The elements of each thread in the first rows of threads, how many such rows there are, and those of each thread
    in the others; None unless all threads of a row have equally many, of which eager's share for two threads is a half.
    Eager's formula is another one then, with the same bits: what is multiplied by a power of two is rounded as it was.
    """
    whole, rest = divmod(order.length, order.width * order.sums)
    if order.kind != "moments" or rest:
        return None
    steps, rows = divmod(whole, order.height)
    many, few = (steps + (rows > 0)) * order.sums, steps * order.sums
    if any(count and torch.tensor(float(count)) * (1.0 / torch.tensor(2.0 * count)) != 0.5 for count in (many, few)):
        return None
    return (many, rows, few) if rows else (many, order.height, many)


def _finish_equal(name: str, order: SumOrder, counts: tuple[int, int, int], lanes: bool = False) -> list[str]:
    """Adds up moments of threads that have `_equal_counts`; in lanes as `finish_in_lanes` does."""
    (many, rows, few), (mean, distances, count) = counts, _moments(name)
    width, height, alike = order.width, order.height, many == few
    of_rows = f"tl.arange(0, {height})"
    if lanes:
        lines = _equal_lanes(name, order, counts)
        combined = f"tl.reduce(({mean}, {distances}, {count}), 0, moments_of_two)"
    else:
        of_rows = f"tl.zeros([ROWS, {height}], tl.int32) + {of_rows}[None, :]"
        lines = [f"{count} = tl.zeros([ROWS, {height}], tl.float32) + {_where(of_rows, rows, many, few)}"]
        lines.append(f"{mean}, {distances} = equal_halves({mean}, {distances}, {count}, ROWS, {height}, {width})")
        if alike and height > 1:
            lines.append(f"{count} = tl.full([ROWS, 1], {float(many)}, tl.float32)")
            lines.append(f"{mean}, {distances} = equal_rows({mean}, {distances}, {count}, ROWS, 1, {height})")
        combined = f"combine_rows({mean}, {distances}, {count}, ROWS, 1, {height})"
    means = lanes and not _odd(counts)
    if alike:
        return [*lines, f"{distances} = {distances} * {float(order.length if means else width * height)}"]
    lines.append(f"{count} = {_where(of_rows, rows, many * width, few * width)}")
    lines.append(f"{distances} = {distances} * {count if means else float(width)}")
    return [*lines, f"{mean}, {distances}, {count} = {combined}"]


def _odd(counts: tuple[int, int, int]) -> bool:
    """Whether one of these `_equal_counts` is no power of two."""
    many, _, few = counts
    return bool(many & (many - 1) or few & (few - 1))


def _equal_lanes(name: str, order: SumOrder, counts: tuple[int, int, int]) -> list[str]:
    """Adds up moments of the lanes of each warp; of all warps where all lanes have equally many elements. Powers of two
    are no matter meanwhile, and are not exchanged: means of squared distances are added up then."""
    (many, rows, few), (mean, distances, count) = counts, _moments(name)
    threads, alike = order.width * order.height, many == few
    shape, along = ([threads], 0) if alike else ([order.height, order.width], 1)
    both = f"tl.reshape({mean}, {shape}), tl.reshape({distances}, {shape})"
    each = _where(f"tl.arange(0, {threads})[None, :]", rows * order.width, many, few or many)
    lines = [f"{count} = tl.zeros([ROWS, {threads}], tl.float32) + {each}"]
    if _odd(counts):
        given = f"{both}, tl.reshape({count}, {shape})"
        return [*lines, f"{mean}, {distances}, {count} = tl.reduce(({given}), {along}, moments_of_alike)"]
    by = _where(f"tl.arange(0, {threads})[None, :]", rows * order.width, 1 / many, 1 / (few or many))
    return [
        f"{distances} = {distances} * {by}",
        f"{mean}, {distances} = tl.reduce(({both}), {along}, moments_of_equal)",
    ]


def _where(places: str, first: int, many: float, few: float) -> str:
    """A number for the first places and another one for those behind them."""
    return repr(float(many)) if many == few else f"tl.where({places} < {first}, {float(many)!r}, {float(few)!r})"


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
    if value.detail not in (*MOMENTS, "squares") or order.kind == "channels":
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
    if (counts := _equal_counts(order)) is not None:
        return _finish_equal(name, order, counts, lanes=True)
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

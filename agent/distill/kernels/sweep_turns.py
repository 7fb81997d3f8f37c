"""How a kernel goes over its columns: which ones a step has, how many steps a turn of its loop, which loads come first.

What a program waits for is memory: a load takes about as long as some hundred instructions, and Triton's compiler moves
none ahead of what is computed before it. So a turn begins with the loads of all its steps.

ptxas moves loads down to where they are needed, though: those of a norm's weights behind its sums, where a program
waits for memory once more. It moves nothing over a jump. A division has one, for numbers that seldom are; it is done
while the loads are under way. By counts of instructions and their latencies (compiled for sm_90, not measured), a
program of the layer norm of `fusible-58e0c69b73c0` takes 1,450 cycles so, and 1,800 without, where a load takes 700;
40 kernels of `benchmarks/passbench/h100_table_276` take 0.93 of the time in the mean, and 1.02 where loads take 300.

Likewise it moves some loads of a sum in eager's order behind the first additions, and what is computed of single rows
ahead of a sweep may have a jump itself. By the same counts a program of `fusible-a807524d77de` takes 1,020 cycles in
place of 1,610, of `fusible-76f063bbaf99` 1,160 in place of 1,900, of `fusible-8afb015ec98a` 1,430 in place of 3,390;
two of 52 kernels, of which no load was moved, take 1.02 and 1.03 times as long. Of tiles, which reduce nothing,
`fusible-689311804371` takes 1,590 in place of 2,360, `fusible-c2877a47e5c4` 1,930 in place of 3,200, and one of four
1.04 times as long. Those without columns have a jump where a thread reads many elements one by one
(`launch_configs._loads_much`). Others are left to the compiler: with a jump they take 1.00 to 1.07 times as long.
"""

import re
from collections.abc import Iterable, Mapping

from agent.distill.eager.sum_order import PROCESSORS, WARP, Ragged
from agent.distill.kernels.accesses import over_columns
from agent.distill.kernels.launch_configs import Tuning
from agent.distill.kernels.schedule import Buffer, KernelBody, distance, reachable
from agent.distill.kernels.text_template import slot
from agent.distill.kernels.value_graph import COLUMN, ROW, StoreValue, Value

_PLACES = ("column", "column_inside", "row_inside", "inside")
"""Variables of a kernel that say where a step's columns are, and which of them and of the rows are there."""
HELPERS: dict[str, str] = {
    "behind_loads": '''
@triton.jit
def behind_loads(number):
    """The same whole number, by a division: its jump keeps the loads above ahead of all that is below."""
    return tl.div_rn(number.to(tl.float32), 1.0).to(tl.int32)
''',
}
"""Helper name → source."""
_TOGETHER, _ALONE, _UNDER_WAY = 8, 32, 64
"""So many steps of a sweep in eager's order have their loads under way at once, at most; the second number is for
kernels with fewer programs than there are multiprocessors, on which nothing else is at work while a program waits. And
so many registers of a thread wait for what they load. Of steps that `loop_unroll_factor` unrolled one load was used
before the next began (compiled for sm_90)."""
_WRITTEN = 256
"""Values of all steps that are written one after another: more would take seconds to compile."""


def steps_together(kernel: KernelBody, tuning: Tuning, swept: list[Value]) -> int:
    """How many steps of these values a turn of the loop has: one, unless the kernel adds in eager's order, where steps
    are short."""
    loads = sum(value.op == "load" and value.by_column for value in swept)
    if kernel.step is None or tuning.stages > 1 or not loads:
        return 1
    together = _TOGETHER if tuning.programs(kernel) >= PROCESSORS else _ALONE
    most = max(1, min(together, _UNDER_WAY // (loads * _elements(tuning)), _WRITTEN // len(swept)))
    steps = steps_of(kernel, tuning)
    if isinstance(kernel.deal, Ragged):  # what comes behind its last step would be added again
        return max(n for n in range(1, most + 1) if steps % n == 0)
    return -(-steps // -(-steps // most))


def turns(kernel: KernelBody, tuning: Tuning, swept: list[Value]) -> int:
    """The turns of the loop over the columns."""
    return -(-steps_of(kernel, tuning) // steps_together(kernel, tuning, swept))


def late_rows(kernel: KernelBody, tuning: Tuning, of_rows: list[Value], swept: list[Value]) -> list[Value]:
    """Of these values of rows those that are computed when the loads of the next sweep, which computes `swept`, are
    under way. A square root or a division has a jump: loads behind it would wait for what it needs."""
    if not tuning.written_out and turns(kernel, tuning, [v for v in swept if v not in of_rows]) > 1:
        return []
    loads = (value for value in swept if value.op == "load" and value.by_column)
    needed = {value.number for value in reachable(loads)}
    return [v for v in of_rows if v.number not in needed and (v.op != "load" or v.args)]


def steps_of(kernel: KernelBody, tuning: Tuning) -> int:
    """The steps of a sweep."""
    return -(-kernel.places // tuning.column_block)


def early_loads(tuning: Tuning, swept: list[Value], most: int = _UNDER_WAY) -> list[list[Value]]:
    """The loads among these values, each with what it needs, in the order in which they can be under way: first those
    that wait for no other. Only those that need nothing, where all take more than `most` registers of a thread."""
    loads = [value for value in swept if value.op == "load"]
    if in_registers(loads) * _elements(tuning) > most:
        return [[value for value in loads if not value.args]]
    waits: dict[int, int] = {}  # how many loads, one after another, each value is computed from
    for value in swept:
        read = (waits[a.number] + (a.op == "load") for a in value.args if a.number in waits)
        waits[value.number] = max(read, default=0)
    found: list[list[Value]] = []
    done: set[int] = set()
    for level in range(max((waits[load.number] for load in loads), default=-1) + 1):
        needed = {v.number for v in reachable(load for load in loads if waits[load.number] == level)} - done
        found.append([value for value in swept if value.number in needed])
        done |= needed
    return found


def columns_of(kernel: KernelBody, columns: str) -> list[str]:
    """Lines that say which column of the kernel each of these places of a step is, and whether it is there."""
    deal, there = kernel.deal, f"column < {slot(kernel.columns)}"
    if deal is None:
        return [f"column = {columns}", f"column_inside = {there}"]
    if isinstance(deal, Ragged):
        return _ragged_columns(deal, columns)
    across, down, turns, line = map(slot, (deal.across, deal.down, deal.turns, deal.line))
    below = f"place // ({across} * {down} * {turns}) * {down} + place // {across} % {down}"
    whole = deal.line == deal.turns * deal.across  # no step has fewer elements of a line
    return [
        f"place = {columns}",
        f"spot = place // ({across} * {down}) % {turns} * {across} + place % {across}",
        f"column = ({below}) * {line} + spot",
        f"column_inside = {there}" if whole else f"column_inside = (spot < {line}) & ({there})",
    ]


def _ragged_columns(deal: Ragged, columns: str) -> list[str]:
    """Which column each place of a step has in its row, and whether it is there."""
    length, vector, step, turns = map(slot, (deal.length, deal.vector, deal.step, deal.turns))
    return [
        f"place = {columns}",
        f"turn = place // {step}",
        f"lane = place % {step} // {vector}",
        f"shift = row * {length} % {vector}",
        f"ahead = ({vector} - shift) % {vector}",
        f"whole = ahead + ({length} - ahead) // {vector} * {vector}",
        f"middle = ahead + place - {step}",
        f"column = tl.where(turn == 0, lane - shift, tl.where(turn > {turns}, whole + lane, middle))",
        f"there = column < tl.where(turn == 0, ahead, tl.where(turn > {turns}, {length}, whole))",
        f"single = (turn > 0) & (turn <= {turns}) | (place % {vector} == 0)",
        "column_inside = (column >= 0) & there & single",
    ]


def loads_first(values: list[Value]) -> list[Value]:
    """The same values, in an order in which all loads that depend on nothing are under way before anything waits."""
    free = {value.number for value in values if value.op == "load" and not value.args}
    return sorted(values, key=lambda value: (value.number not in free, value.number))


def other_way_first(kernel: KernelBody, values: list[Value]) -> list[Value]:
    """Values of a tile; if nothing but loads, first those that read neighbours along the other way than is written.

    Triton lays out what follows as the first load is, and converts others right behind them, where threads wait for
    one another: for all loads if such a one is the last.
    """
    if kernel.flat is None or any(value.args or value.op != "load" for value in values):
        return values
    written = kernel.stores[0].index
    along = next((way for way in (COLUMN, ROW) if distance(written, 1, way) == 1), None)
    return values if along is None else sorted(values, key=lambda v: distance(v.index, 1, along) == 1)


def sweep_of(store: StoreValue, kernel: KernelBody, buffers: Mapping[str, Buffer]) -> int:
    """The depth of the sweep in which a kernel stores along its rows: the first that has the value. What is written
    over something that the kernel reads waits for the last one, since each sweep reads again."""
    if buffers[store.buffer].base not in {buffers[name].base for name in kernel.loads()}:
        return store.value.depth
    reduced = [value.depth - 1 for value in kernel.values() if value.op == "reduce"]
    return max([*reduced, *(other.value.depth for other in kernel.stores if over_columns(other))])


def without_overwritten(lines: list[str]) -> list[str]:
    """Lines without loops, of those that say where a step's columns are only those that are read before the next."""
    needed: set[str] = set()
    result = []
    for line in reversed(lines):
        name = line.partition(" = ")[0]
        if name in _PLACES:
            if name not in needed:
                continue
            needed.remove(name)
        needed |= {place for place in _PLACES if re.search(rf"\b{place}\b(?! = )", line)}
        result.append(line)
    return result[::-1]


def without_unused(lines: list[str]) -> list[str]:
    """The lines without masks that no other line reads."""
    for name in ("inside", "row_inside", "column_inside"):
        read = re.compile(rf"\b{name}\b(?! = )")
        if not any(read.search(line) for line in lines):
            lines = [line for line in lines if not line.lstrip().startswith(f"{name} = ")]
    return lines


def in_registers(loads: Iterable[Value]) -> float:
    """So many registers hold an element of each of these loads: of half types two share one."""
    return sum(value.detail[1].itemsize for value in loads) / 4


def _elements(tuning: Tuning) -> int:
    """Elements of a step that a thread has."""
    return -(-tuning.row_block * tuning.column_block // (WARP * tuning.warps))


def lies_both_ways(kernel: KernelBody) -> bool:
    """Whether some accesses along a row have gaps and others have none: its columns should have one dimension then.

    Of two dimensions Triton lays a load with gaps out along the other one than a load without, and threads exchange
    what they have loaded. Sums of elements that are apart are put in order with less in two dimensions.
    """
    values = kernel.values()
    indices = [v.index for v in values if v.op == "load" and v.by_column] + [s.index for s in kernel.stores]
    steps = {distance(index, 1, COLUMN) == 1 for index in indices if COLUMN in index.free_symbols}
    return len(steps) > 1 and not any(v.detail == "ordered_sum" and not v.order.vectors for v in values)

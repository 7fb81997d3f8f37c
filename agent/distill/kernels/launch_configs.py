"""Launch configurations of kernels: a simple rule, and the factors by which a search departs from it."""

from dataclasses import dataclass, replace

from agent.distill.eager.sum_order import PROCESSORS, WARP
from agent.distill.kernels.ordered_sums import BY_PLACE, MOMENTS, lane_warps
from agent.distill.kernels.place_sums import MEMBERS, place_sum
from agent.distill.kernels.schedule import KernelBody, distance
from agent.distill.kernels.value_graph import COLUMN, ROW

_ELEMENTS = 256
"""Elements a warp of a kernel with reductions."""
_ORDERED = 512
"""The same for kernels that add in eager's order: what one warp adds needs no exchange between warps."""
_DEALT = 128
"""The same where a block of eager's has a whole channel: programs are few, and rows long."""
_LONG, _BUSY = 4, 16
"""Rows of so many steps are long, and a multiprocessor with so many warps has enough to do."""

_MUCH = 16
"""Elements of a row for each lane of a warp that are worth an exchange between warps."""
_MOST_BUSY = 8
"""Warps of a program that keeps a row. Of a row of 1024 bfloat16 numbers that a norm and an activation are computed of
(fusible-47c35888a026) eight warps take 1,130 cycles, and one takes 1,610 (by counts as in `sweep_turns.py`)."""
_MOST_KEPT = 2**14
"""Rows of a kernel that keeps each."""
_AT_ONCE = 32 * PROCESSORS
"""Programs that are at work at a time, at most. Of more rows of one step a program has several. By instructions a row,
compiled for sm_90, that is a half to a sixth of what a row alone takes (rows of 128, 60 and 32 elements of a norm of
vectors); of moments it is no less, and warps wait for shared memory, unless rows are short."""
_SHORT = 2 * WARP
"""Moments of several rows of up to so many elements take fewer instructions a row: 24 of 16 elements, 56 of 32 and 146
of 64, where those of one row take 187 to 211 in lanes, and of 128 elements 432 in place of 220 (compiled for sm_90)."""
REGISTERS = 96
"""Registers of a thread that may hold what it has loaded."""
_WIDER = (1, 2, 4)
"""So many times as many warps are tried for a row that is kept, if it needs more registers than that."""
_SINGLE = 20
"""So many elements a thread reads one by one, unless it has two rows alone."""
_SLOW = ("div_rn", "reciprocal_rn", "sqrt_rn")
"""These have jumps, as most functions have that are `exact_`: a thread computes its elements one after another."""
_RESIDENT = 16
"""Programs of four warps that a multiprocessor has at a time."""
_MOVED = 12
"""Of programs whose threads wait for less registers no loads were moved (compiled for sm_90)."""
_TILE_REGISTERS = 192
"""Registers of a thread that may hold what a tile has loaded. Kernels of fifteen loads with 32 elements a thread kept
values in memory: 1629 accesses in the code for sm_90, a third of all instructions. With 8 there is none."""
_TILE, _SMALL_TILE = 32, 16
"""Rows and columns of a smaller tile, and rows of one of few."""
EXACT = 1 << 24
"""Whole numbers below are exact in single precision."""
_SWEPT = 192
"""Values of all steps of a sweep that are written out: more would take seconds to compile. A row of four steps with 120
values (typical-b8f2a32da472) compiles as fast as in loops of four steps a turn, to 75 registers in place of 118, and
loads 16 times in place of 28."""
_ACROSS = 16
"""With fewer rows a program has one, however they lie in memory: two rows of 2304 numbers each, of which neighbours are
those of other rows, took one warp 36 steps (typical-8e32548ea3c9)."""
_IN_STEP = 32
"""Registers of a thread for what a step loads, where programs are few."""
_TILES = (1024, 2048, 512, 256)
"""Columns that a program takes at a time, in place of a step of eager's, in the order of preference."""
_TILED_ROWS = 8 * PROCESSORS
"""With more rows programs are so many that what one waits for is no matter, and instructions are: a row of 3072 takes
2300 in tiles of four warps, 4000 of eight, and 1730 in steps of two rows, with 55 barriers in place of 9."""
_FEW_TILES = 4
_STEPS = 12
"""Rows of no more steps of eager's are short: a warp or few have them as they are."""
_IN_TILE = 128
"""Elements of a tile a warp, where programs are few: each thread reads four neighbours. Else they are twice as many. A
row of 3072 bfloat16 numbers in steps of 128 (typical-ab6237ccfc5a) takes 480 instructions of four warps, of which 120
read or write single elements, and reads its row twice; in tiles of 1024 it takes 504 of eight warps, 15 of these, and
reads it once (compiled for sm_90)."""


@dataclass(frozen=True)
class Tuning:
    """How a kernel is launched: rows and columns of a program, and its warps.

    `loops`: it sweeps its columns in steps, of which `stages` are loaded at once. `kept`: the steps are written one
    after another, and what the first sweep has loaded stays in registers for the others. `several`: the same of several
    rows, of one step each or few short ones. `masked`: accesses ask whether their element is there even where all are.
    `lanes`: see `ordered_sums.finish_in_lanes`. `ahead`: loads stay ahead of what is computed (`sweep_turns.py`).
    `seeks`: what belongs to places is looked for (`place_sums.py`).
    """

    row_block: int
    column_block: int
    warps: int
    loops: bool
    stages: int = 1
    masked: bool = False
    lanes: bool = False
    kept: bool = False
    several: bool = False
    ahead: bool = False
    seeks: bool = False

    @property
    def written_out(self) -> bool:
        """Whether sweeps have no loop, and later ones what the first has loaded."""
        return self.kept or self.several

    def programs(self, kernel: KernelBody) -> int:
        """Programs that cover the kernel: its rows, and the columns of one that is tiled."""
        rows = -(-kernel.rows // self.row_block)
        return rows * -(-kernel.columns // self.column_block) if kernel.flat is not None else rows


@dataclass(frozen=True)
class LaunchLimits:
    """What a search varies.

    `persistent`: the longest row, in elements, that one program holds whole. `work` and `warps`: factors on the
    elements and on the warps of a program; their quotient decides how many neighbours a thread reads at once. `tiles`:
    whether kernels without reductions may have columns. `stages`: how many steps of a sweep are loaded at once; 1
    leaves that to the compiler. `masked`: as in `Tuning`. `lanes`: norms in eager's order are added up by the lanes of
    warps, as eager does; for compiled kernels alone. `keeps`: short rows that are added in eager's order are kept in
    registers, and what belongs to places is looked for. `ahead`: as in `Tuning`. `one_launch`: small kernels that
    need nothing of each other are one launch (`agent.distill.launches`).
    """

    persistent: int = 8192
    work: float = 1.0
    warps: float = 1.0
    tiles: bool = True
    stages: int = 1
    masked: bool = False
    lanes: bool = False
    keeps: bool = True
    ahead: bool = True
    one_launch: bool = False


def choose(kernel: KernelBody, limits: LaunchLimits) -> Tuning:
    """A configuration by the size of the kernel alone."""
    chosen = _chosen(kernel, limits)
    ahead = _loads_first(kernel, chosen) or _adds_early(kernel, chosen) or _loads_much(kernel, chosen)
    return replace(chosen, ahead=limits.ahead and ahead)


def _loads_much(kernel: KernelBody, tuning: Tuning) -> bool:
    """Whether a program of a tile, or one that reads much that is apart, loads so much that ptxas may move some of it
    behind the first results."""
    if kernel.columns == 1:
        apart = sum(gap not in (0, 1) for gap in _gaps(kernel))
        return apart * tuning.row_block > _MOVED // 2 * WARP * tuning.warps
    loads = sum(value.op == "load" for value in kernel.values())
    registers = _registers(kernel, tuning, tuning.column_block)
    return kernel.flat is not None and loads > 1 and _MOVED <= registers <= REGISTERS


def _adds_early(kernel: KernelBody, tuning: Tuning) -> bool:
    """Whether a program adds so much in eager's order that ptxas may move some of its loads behind the first sums."""
    if kernel.step is None or not tuning.loops or tuning.seeks or kernel.rows + kernel.places >= EXACT:
        return False
    return _registers(kernel, tuning, kernel.places) >= _MOVED


def _loads_first(kernel: KernelBody, tuning: Tuning) -> bool:
    """Whether a program of this tuning has all of its loads at the beginning, registers for them, and needs some of
    them late."""
    if (tuning.loops and not tuning.written_out) or kernel.rows >= EXACT or not kernel.loads_late:
        return False
    return _registers(kernel, tuning, kernel.columns if tuning.written_out else tuning.column_block) <= REGISTERS


def _few_steps(kernel: KernelBody, tuning: Tuning) -> bool:
    """Whether rows that are added in eager's order have one step each, or few that are shorter than a warp, for which a
    thread has the registers."""
    if kernel.step is None or kernel.deal is not None:
        return False
    steps = -(-kernel.columns // tuning.column_block)
    swept = sum(value.by_column for value in kernel.values())
    few = steps == 1 or (tuning.column_block < WARP and steps * swept <= _SWEPT)
    return few and _registers(kernel, tuning, steps * tuning.column_block) <= REGISTERS


def _registers(kernel: KernelBody, tuning: Tuning, places: int) -> int:
    """Of a thread, for what is loaded for so many places of its rows."""
    loads = sum(value.op == "load" and value.by_column for value in kernel.values())
    return loads * tuning.row_block * places // (WARP * tuning.warps)


def _chosen(kernel: KernelBody, limits: LaunchLimits) -> Tuning:
    found = place_sum(kernel)
    if found is not None and (limits.keeps or found.totals[0].detail == MEMBERS):
        return _seeking(kernel, found.rows, limits)
    plain = _plain(kernel, limits)
    rows = min(max(1, int(plain.row_block * limits.work)), _power_of_two(kernel.rows))
    warps = min(16, max(1, int(plain.warps * limits.warps)))
    stages = limits.stages if plain.loops else 1
    chosen = replace(plain, row_block=rows, warps=warps, stages=stages, masked=limits.masked)
    if limits.lanes and (lanes := in_lanes(kernel)) and not (has_short_rows(kernel) and kernel.rows > _AT_ONCE):
        chosen = replace(chosen, row_block=1, warps=lanes, lanes=True)
    if limits.keeps and stages == 1:
        if (tile := _tile_of_steps(kernel)) is not None:
            return _in_tiles(kernel, tile, limits)
        single = replace(chosen, row_block=1, warps=max(1, chosen.warps // chosen.row_block), kept=True)
        wider = (replace(single, warps=min(16, factor * single.warps)) for factor in ((1,) if single.lanes else _WIDER))
        if kept := next((one for one in wider if _keeps(kernel, one)), None):
            return _busier(kernel, kept, limits)
        if _few_steps(kernel, chosen):
            return replace(chosen, several=True)
    return _with_more_warps(kernel, chosen, limits)


def _busier(kernel: KernelBody, kept: Tuning, limits: LaunchLimits) -> Tuning:
    """A tuning that keeps its row, with more warps where programs are few and sums are kept for each element of a step:
    what is computed of the elements is much to do for one warp, and is done by others meanwhile."""
    added = [value for value in kernel.values() if value.order is not None]
    apart = any(value.op != "reduce" or value.detail not in BY_PLACE or not value.order.vectors for value in added)
    if kept.lanes or apart or kernel.columns < _MUCH * WARP:
        return kept
    most, warps = min(_MOST_BUSY, kept.column_block // WARP) * min(1.0, limits.warps), kept.warps
    while 2 * warps <= most and kernel.rows * 2 * warps <= _BUSY * PROCESSORS:
        warps *= 2
    return replace(kept, warps=warps)


def _tile_of_steps(kernel: KernelBody) -> int | None:
    """The columns of a tile, which is several steps of a kernel that adds long rows in eager's order; None where steps
    are as good. The elements of each of eager's threads lie in the order in which they are added, but not in one
    thread: those of a tile change places at once."""
    if kernel.step is None or kernel.deal is not None or kernel.rows > _TILED_ROWS or reads_across(kernel):
        return None
    orders = [value for value in kernel.values() if value.order is not None]
    if kernel.step < WARP or any(value.op != "reduce" or value.detail not in BY_PLACE for value in orders):
        return None
    steps = -(-kernel.columns // kernel.step) * kernel.step
    if steps <= _STEPS * kernel.step:
        return None
    fitting = [n for n in _TILES if kernel.step < n < steps and -(-kernel.columns // n) * n <= steps + steps // 8]
    return next((n for n in fitting if n * _FEW_TILES >= kernel.columns), next(iter(fitting), None))


def _in_tiles(kernel: KernelBody, tile: int, limits: LaunchLimits) -> Tuning:
    """Of a kernel whose programs have a row each, in tiles of so many columns."""
    few, own = kernel.rows <= 2 * PROCESSORS, replace(kernel, step=tile)
    tried = (int(tile // elements * limits.warps) for elements in ((_IN_TILE,) if few else (2 * _IN_TILE, _IN_TILE)))
    tunings = [Tuning(1, tile, min(16, max(1, n)), True, masked=limits.masked, kept=True) for n in tried]
    return next((one for one in tunings if _keeps(own, one)), replace(tunings[0], kept=False))


def _seeking(kernel: KernelBody, rows: int, limits: LaunchLimits) -> Tuning:
    """Of a kernel whose programs look for what belongs to a place, which is the same for so many rows."""
    rows = max(1, min(rows, _power_of_two(kernel.rows), int(rows * limits.work)))
    while rows > WARP and -(-kernel.rows // rows) < 2 * PROCESSORS:
        rows //= 2
    columns = min(_power_of_two(kernel.columns), _ELEMENTS)
    return Tuning(rows, columns, 1, True, masked=limits.masked, seeks=True)


def _with_more_warps(kernel: KernelBody, tuning: Tuning, limits: LaunchLimits) -> Tuning:
    """The same with more warps where programs are few and sweep long rows in eager's order: each then waits for memory
    again and again, and nothing else is at work on its multiprocessor."""
    if kernel.step is None or tuning.lanes or kernel.places < _LONG * tuning.column_block:
        return tuning
    most = min(16, max(1, int(tuning.row_block * tuning.column_block // WARP * min(1.0, limits.warps))))
    warps = tuning.warps
    while 2 * warps <= most and tuning.programs(kernel) * 2 * warps <= _BUSY * PROCESSORS:
        warps *= 2
    return replace(tuning, warps=warps)


def _keeps(kernel: KernelBody, tuning: Tuning) -> bool:
    """Whether a program of this tuning, which has one row, keeps it: of kernels that add neighbours in eager's order,
    if there are not so many rows that programs of several are better, and each is short. Steps of less elements than a
    warp has lanes leave some idle."""
    if tuning.column_block < WARP and kernel.rows >= PROCESSORS:
        return False
    values = kernel.values()
    moments = any(value.detail in MOMENTS for value in values) and not has_short_rows(kernel)
    if kernel.columns <= tuning.column_block and kernel.rows > _AT_ONCE and not (moments or tuning.lanes):
        return False  # programs of several rows keep them as well
    other = kernel.step is None or kernel.deal is not None or kernel.rows > _MOST_KEPT
    if other or (reads_across(kernel) and not tuning.lanes):
        return False
    steps = -(-kernel.columns // tuning.column_block)
    registers = _registers(kernel, tuning, steps * tuning.column_block)
    constant = any(value.args and all(a.op == "constant" for a in value.args) for value in values)
    return registers <= REGISTERS and steps * sum(value.by_column for value in values) <= _SWEPT and not constant


def has_short_rows(kernel: KernelBody) -> bool:
    """Whether a program may as well have several rows of a kernel whose norms lanes can add up."""
    return kernel.step is not None and kernel.columns <= kernel.step <= _SHORT


def in_lanes(kernel: KernelBody) -> int:
    """The warps of a program of the kernel with `LaunchLimits.lanes`; 0 if these make no difference to it."""
    values = kernel.values() if kernel.step is not None else []
    return max((lane_warps(value) for value in values if value.order is not None), default=0)


def _plain(kernel: KernelBody, limits: LaunchLimits) -> Tuning:
    if kernel.columns == 1:
        return Tuning(min(_flat_block(kernel), _power_of_two(kernel.rows)), 1, 4, False)
    wide = _power_of_two(kernel.columns)
    if kernel.flat is not None:
        return _tile(kernel, wide)
    across = reads_across(kernel) and (kernel.step is not None or kernel.rows >= _ACROSS)
    if kernel.step is not None:
        loops, column_block, elements = True, kernel.step, max(_ORDERED, kernel.step if _in_one_warp(kernel) else 0)
        elements = elements if kernel.deal is None else _DEALT
    else:
        loops, elements = wide > _whole_row(kernel, limits, across), _ELEMENTS
        column_block = min(wide, 64 if across else 2048, limits.persistent) if loops else wide
    row_block = _power_of_two(kernel.rows)
    row_block = min(
        row_block, max(32 if across else 1, (4 * _ELEMENTS if kernel.step is None else _ELEMENTS) // column_block)
    )
    while row_block > (16 if across else 1) and -(-kernel.rows // row_block) < 2 * PROCESSORS:
        row_block //= 2
    warps = max(1, min(16, row_block * column_block // elements))
    tuning = Tuning(row_block, column_block, warps, loops)
    if loops and kernel.step is None:
        return _in_wide_steps(kernel, tuning, min(wide, limits.persistent))
    return tuning


def _in_wide_steps(kernel: KernelBody, tuning: Tuning, most: int) -> Tuning:
    """The same with more columns a step, and more warps, where programs are few: nothing else is at work while one
    waits for what a step loads."""
    few = tuning.programs(kernel) < PROCESSORS
    while few and tuning.column_block < most:
        columns = 2 * tuning.column_block
        warps = max(tuning.warps, min(16, tuning.row_block * columns // _ELEMENTS))
        wider = replace(tuning, column_block=columns, warps=warps)
        if _registers(kernel, wider, columns) > _IN_STEP:
            break
        tuning = wider
    return tuning


def _flat_block(kernel: KernelBody) -> int:
    """Rows of a program that has no columns and four warps: a thread has eight of many rows, which it reads at once,
    and fewer where it reads many one by one or computes one after another, and all programs are at work at a time, or
    where some multiprocessors would have nothing to do."""
    block = 1024 if kernel.rows >= 2**18 else 512 if kernel.rows >= 2**16 else 256
    single = sum(gap != 1 for gap in _gaps(kernel))
    slow = any(value.op in _SLOW or value.op.startswith("exact_") for value in kernel.values() if value.by_row)
    least = 512 if single * 512 <= _SINGLE * 4 * WARP else 256
    while block > least and 2 * kernel.rows <= block * _RESIDENT * PROCESSORS:
        if not slow and single * block <= _SINGLE * 4 * WARP:
            break
        block //= 2
    return block // 2 if kernel.rows < block * PROCESSORS else block


def _gaps(kernel: KernelBody) -> list[int]:
    """How far apart in memory neighbouring elements of each load are, of a kernel without columns."""
    loads = (value for value in kernel.values() if value.op == "load" and value.by_row)
    return [distance(load.index, 1, ROW) for load in loads]


def _tile(kernel: KernelBody, wide: int) -> Tuning:
    """Of a kernel without reductions that has columns. Where a thread would have more registers than it has, and where
    multiprocessors would have one program or none, a tile is smaller and its threads have half as many elements."""
    row_block = min(_power_of_two(kernel.rows), 64 if kernel.rows * kernel.columns >= 2**20 else 32)
    large = Tuning(row_block, min(wide, 64), max(1, min(4, row_block * min(wide, 64) // 512)), False)
    elements = large.row_block * large.column_block // (WARP * large.warps)
    loads = sum(value.op == "load" for value in kernel.values())
    programs = large.programs(kernel)
    few = programs < PROCESSORS
    if programs >= 2 * PROCESSORS and loads * elements <= _TILE_REGISTERS:
        return large
    side = _SMALL_TILE if few else _TILE
    rows, columns = min(large.row_block, side), min(large.column_block, _TILE)
    return Tuning(rows, columns, max(1, rows * columns // _ELEMENTS), False)


def _in_one_warp(kernel: KernelBody) -> bool:
    """Whether eager adds in single warps all that the kernel adds."""
    orders = [value.order for value in kernel.values() if value.order is not None]
    return all(order.width * order.height <= WARP for order in orders)


def _whole_row(kernel: KernelBody, limits: LaunchLimits, across: bool) -> int:
    """The longest row that a program holds whole."""
    if kernel.scans:
        return LaunchLimits.persistent
    return limits.persistent // 16 if across else limits.persistent


def reads_across(kernel: KernelBody) -> bool:
    """Whether neighbouring rows, not neighbouring columns, are neighbours in memory. An access that stays where it is
    from column to column says nothing: its elements stay in a cache."""
    indices = [v.index for v in kernel.values() if v.op == "load" and v.by_row and v.by_column]
    steps = [(distance(index, 1, ROW), distance(index, 1, COLUMN)) for index in indices]
    along = sum(by_column == 1 for _, by_column in steps)
    across = sum(by_row == 1 and abs(by_column) > 1 for by_row, by_column in steps)
    return across > along


def _power_of_two(n: int) -> int:
    """The smallest power of two that is at least n."""
    return 1 << (n - 1).bit_length()

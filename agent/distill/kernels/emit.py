"""Triton source of one kernel. Integers and dtypes that a variant of the task may change are slots."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import ModuleType

import torch

from agent.distill.kernels import ordered_sums, place_sums, reductions, sweep_turns
from agent.distill.kernels.accesses import ONE_COLUMN, Accesses, Spot, over_columns
from agent.distill.kernels.helpers.table import helpers_in
from agent.distill.kernels.index_expressions import Unsupported
from agent.distill.kernels.launch_configs import REGISTERS, Tuning
from agent.distill.kernels.place_sums import NONE, PlaceSum, place_sum
from agent.distill.kernels.schedule import Buffer, KernelBody
from agent.distill.kernels.sweep_turns import columns_of, early_loads, loads_first, steps_of, steps_together, turns
from agent.distill.kernels.text_template import slot
from agent.distill.kernels.triton_ops import EXPRESSIONS, literal, triton_dtype
from agent.distill.kernels.value_graph import StoreValue, Value

_INDENT = "    "
_OF_NUMBERS = (torch.bool, torch.int32, torch.float32)
"""Dtypes that Triton gives to numbers where no tensor decides."""


@dataclass(frozen=True)
class KernelSource:
    """Source of a kernel that is called KERNEL, what it is launched with, and the helpers it calls.

    `pointers` are the buffers to pass, in order, and `blocks` its other parameters: what a program has. `waits`: how
    many times, one after another, the loops of a program wait for what they load.
    """

    text: str
    pointers: tuple[str, ...]
    programs: int
    tuning: Tuning
    helpers: frozenset[str]
    ops: tuple[int, ...]
    blocks: tuple[tuple[str, int], ...]
    waits: int = 0


def emit(kernel: KernelBody, buffers: Mapping[str, Buffer], tuning: Tuning) -> KernelSource:
    """Writes a kernel. Raises Unsupported on indices that the source cannot say."""
    if kernel.step is not None and not tuning.seeks:
        kernel = replace(kernel, step=tuning.column_block)  # which may be several steps of eager's
    writer = _Writer(kernel, buffers, tuning)
    lines = writer.write()
    blocks: tuple[tuple[str, int], ...] = (("BLOCK", tuning.row_block),)
    if kernel.columns > 1:
        blocks = ("ROWS", tuning.row_block), ("COLUMNS", tuning.column_block)
    parameters = [*writer.pointers.values(), *(f"{name}: tl.constexpr" for name, _ in blocks)]
    head = ["@triton.jit", f"def KERNEL({', '.join(parameters)}):"]
    return KernelSource(
        "\n".join([*head, *(_INDENT + line for line in lines)]) + "\n",
        tuple(writer.pointers),
        tuning.programs(kernel),
        tuning,
        frozenset(writer.helpers),
        kernel.ops,
        blocks,
        writer.waits,
    )


@dataclass
class _Writer(Accesses):
    helpers: set[str] = field(default_factory=set)
    steps: dict[str | int, dict[int, str]] = field(default_factory=dict)  # names of what each written step has computed
    at: str | int | None = None  # the step whose columns the last lines have
    one_dimension: bool = False  # of the columns of a single row
    waits: int = 0
    scans: dict[int, str] = field(default_factory=dict)  # names of what is kept of scans in eager's order
    counts: dict[str, int] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    indent: str = ""

    def write(self) -> list[str]:
        values = loads_first(self.kernel.values())
        if self.tuning.loops and self.kernel.scans:
            raise Unsupported("a scan of rows that are longer than a block")
        self.name_pointers(values)
        self.one_dimension = self.tuning.kept and sweep_turns.lies_both_ways(self.kernel)
        if self.kernel.columns == 1:
            self.spot = ONE_COLUMN
            self._line("index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)")
            self._line(f"inside = index < {slot(self.kernel.rows)}")
        else:
            first_row, first_column = "tl.program_id(0)", ""
            if self.kernel.flat is not None:
                tiles = f"tl.cdiv({slot(self.kernel.columns)}, COLUMNS)"
                first_row, first_column = f"tl.program_id(0) // {tiles}", f"tl.program_id(0) % {tiles} * COLUMNS + "
            self._line(f"row = {first_row}{'' if self.tuning.kept else ' * ROWS + tl.arange(0, ROWS)[:, None]'}")
            self._line(f"row_inside = row < {slot(self.kernel.rows)}")
        if self.tuning.loops:
            self._sweeps(values)
        else:
            if self.kernel.columns > 1:
                self._columns(f"{first_column}tl.arange(0, COLUMNS)[None, :]")
            self._straight(values)
            for store in self.kernel.stores:
                self._line(self.stored(store))
        lines = sweep_turns.without_overwritten(self.lines) if self.tuning.written_out else self.lines
        return sweep_turns.without_unused(lines)

    def _straight(self, values: list[Value]) -> None:
        """Values of a program that sweeps nothing: those loads first that wait for no reduction."""
        first, reduces = [v for v in values if v.depth == 0], any(v.op == "reduce" for v in values)
        for number, loads in enumerate(early_loads(self.tuning, first, REGISTERS)):
            for value in sweep_turns.other_way_first(self.kernel, loads):
                self._value(value)
            if self.tuning.ahead and reduces and number == 0:
                self._behind_loads()
                self._line("inside = row_inside & column_inside")
            elif self.tuning.ahead and not reduces:
                program = f"behind_loads(tl.program_id(0){f' + {number}' if number else ''}) >= 0"
                self._lines([f"there = {'there & (' if number else ''}{program}{')' if number else ''}"])
                self.asked = "there"
        for value in values:
            if value.number not in self.names:
                self._value(value)

    def _line(self, line: str) -> None:
        self.lines.append(self.indent + line)

    def _behind_loads(self, turn: str = "") -> None:
        """Which rows are there, said such that all loads so far stay ahead of what follows. Of a loop's `turn`, too:
        what is the same in all turns would be computed ahead of them."""
        rows = slot(self.kernel.rows)
        self._lines([f"row_inside = behind_loads(row{turn and f' + {turn}'}) < {rows}{turn and f' + {turn}'}"])
        self.at = None

    def _columns(self, columns: str, ask_rows: bool = False) -> None:
        """Where a step's columns are. `ask_rows`: which rows are there is asked even if all are."""
        rows = "" if self.all_rows and not ask_rows else "row_inside & "
        self._lines([*columns_of(self.kernel, columns), f"inside = {rows}column_inside"])

    def _sweeps(self, values: list[Value]) -> None:
        """One loop over the columns for each depth of reductions; what varies by column is computed again in each."""
        deepest = max(v.depth for v in values)
        if self.tuning.seeks:
            needed = place_sum(self.kernel).needed(self.kernel)
            values = [value for value in values if value.number in needed]
        stores = list(self.kernel.stores)
        by_sweep = [(sweep_turns.sweep_of(s, self.kernel, self.buffers), s) for s in stores if over_columns(s)]
        for depth in range(deepest + 1):
            reduced = [v for v in values if v.op == "reduce" and v.depth == depth + 1]
            swept = [s for sweep, s in by_sweep if sweep == depth]
            of_rows = [v for v in values if v.depth == depth and not v.by_column and v.number not in self.names]
            late: list[Value] = []
            if (reduced or swept) and not self.tuning.seeks:
                late = sweep_turns.late_rows(self.kernel, self.tuning, of_rows, self._missing(_roots(reduced, swept)))
            for value in of_rows:
                if value not in late:
                    self._value(value)
            if reduced or swept:
                self._sweep(reduced, swept, late)
            stores = [s for s in stores if s not in swept]
        for store in stores:
            self._line(self.stored(store))

    def _sweep(self, reduced: list[Value], stores: list[StoreValue], late: list[Value]) -> None:
        names = self._accumulators(reduced)
        kept = {names[value.number]: value for value in reduced}
        for name, value in kept.items():
            self._lines(_way(value).start(value, name, self.kernel))
        for scan in self._missing(_roots(reduced, stores)) if self.kernel.step else ():
            if scan.op == "scan" and not (self.tuning.written_out and scan.number in self.scans):
                self.scans[scan.number] = name = self._fresh("sums")
                self._line(f"{name}_part = tl.zeros([ROWS, COLUMNS], tl.float32)")
        if self.tuning.seeks:
            self._sought(place_sum(self.kernel), {value.number: name for name, value in kept.items()})
        elif self.tuning.written_out:
            self._written_out(kept, stores, late)
        else:
            self._looped(kept, stores, late)
        for name, value in kept.items():
            in_lanes = self.tuning.lanes and value.order is not None and ordered_sums.lane_warps(value)
            finish = ordered_sums.finish_in_lanes if in_lanes else _way(value).finish
            self._lines(finish(value, name, self.kernel))
            for each in reduced:
                if names[each.number] == name:
                    result = self.names[each.number] = ordered_sums.result(each, name)
                    if self.tuning.kept and not in_lanes:
                        self._lines([f"{result} = only({result})"])

    def _looped(self, kept: Mapping[str, Value], stores: list[StoreValue], late: list[Value]) -> None:
        """The steps of a sweep as a loop, several in a turn of it where the kernel adds in eager's order. A single turn
        needs no loop, and `late` are values of rows that are computed in it, behind its loads."""
        swept = [value for value in self._missing(_roots(kept.values(), stores)) if value not in late]
        early = early_loads(self.tuning, swept)
        together = steps_together(self.kernel, self.tuning, swept)
        single = turns(self.kernel, self.tuning, swept) == 1
        block = self.tuning.column_block
        firsts: list[str | int] = [n * block for n in range(together)]
        if not single:
            firsts = ["start", *(f"start + {n} * COLUMNS" for n in range(1, together))]
            self._line(f"for start in {self._turns(together)}:")
            self.indent += _INDENT
        outer, self.steps, self.at = dict(self.names), {}, None
        self.whole_turns = not self.kernel.places % (together * block)
        for loads in early:
            for first in firsts:
                self._begin_step(first, outer)
                for value in loads:
                    self._value(value)
                self.steps[first] = self.names
        ask_rows = self.tuning.ahead and bool(early)
        if ask_rows:
            self._behind_loads("" if single else "start")
        self._compute(late, outer)
        for first in firsts:
            self._whole_step(first, outer, kept, stores, ask_rows and first == firsts[-1])
        if not single:
            self.indent = self.indent.removesuffix(_INDENT)
        self.names, self.whole_turns, self.at = outer, True, None
        waiting = sum(value.op == "load" for value in swept) - sum(v.op == "load" for loads in early for v in loads)
        self.waits += -(-steps_of(self.kernel, self.tuning) // together) * (len(early) + waiting)

    def _compute(self, late: list[Value], outer: dict[int, str]) -> None:
        """Values of rows, for all steps of a sweep that follow."""
        self.names = outer
        for value in late:
            self._value(value)

    def _sought(self, found: PlaceSum, kept: Mapping[int, str]) -> None:
        """A loop over columns that looks for those of a place, and one over what it finds, two at a time."""
        outer, end = self.names, slot(self.kernel.columns)
        self._line("first = tl.program_id(0) * ROWS")
        self.whole_turns = not self.kernel.columns % self.tuning.column_block
        self._line(f"for start in range(0, {end}, COLUMNS):")
        self.indent += _INDENT
        self._lines(["column = start + tl.arange(0, COLUMNS)", f"column_inside = column < {end}"])
        self._at(Spot("first", "column", "", "column_inside", "column_inside"), {}, found.asked)
        here = found.here.format_map({f"v{value.number}": self.names[value.number] for value in found.asked})
        self._lines([f"here = {here} & column_inside", "place = first_behind(here, column, -1)"])
        self._line(f"while place < {NONE}:")
        self.indent += _INDENT
        self._lines(["later = first_behind(here, column, place)", f"later_inside = later < {end}"])
        insides = "row_inside", "row_inside & later_inside"
        spots = (
            Spot("row", "place", columns="", both=insides[0]),
            Spot("row", "later", columns="later_inside", both=insides[1]),
        )
        added, self.whole_turns = [], False
        for spot in spots:
            self._at(spot, outer, found.operands)
            added.append([self.names[operand.number] for operand in found.operands])
        for inside, each in zip(insides, added, strict=True):
            self._line(f"inside = {inside}")
            for total, name in zip(found.totals, each, strict=True):
                self._lines(_way(total).step(total, kept[total.number], [name], self.kernel, "start"))
        self._lines(["place = first_behind(here, column, later)"])
        self.indent = self.indent.removesuffix(_INDENT * 2)
        self.names, self.spot, self.whole_turns = outer, Spot(), True
        self.waits += 2 * -(-self.kernel.columns // self.tuning.column_block)

    def _at(self, spot: Spot, known: Mapping[int, str], values: Sequence[Value]) -> None:
        """Computes values at a spot, of what is known there."""
        self.names, self.spot = dict(known), spot
        for value in self._missing(list(values)):
            self._value(value)

    def _written_out(self, kept: Mapping[str, Value], stores: list[StoreValue], late: list[Value]) -> None:
        """The steps of a sweep one after another. The first sweep has all loads under way before one is needed, and
        before `late`, values of rows, are computed. What a step has computed keeps its name for the next sweep."""
        outer, firsts = dict(self.names), range(0, self.kernel.columns, self.tuning.column_block)
        for first in firsts:
            self._begin_step(first, outer)
            for value in self.kernel.values():
                ready = value.op == "load" and all(a.number in self.names for a in value.args)
                if ready and value.by_column and value.number not in self.names:
                    self._value(value)
            self.steps[first] = self.names
        ask_rows = self.tuning.ahead and any(value.depth == 1 for value in kept.values())
        if ask_rows:
            self._behind_loads()
        self._compute(late, outer)
        for first in firsts:
            self._whole_step(first, outer, kept, stores, ask_rows and first == firsts[-1])
            self.steps[first] = self.names
        self.names = outer

    def _whole_step(
        self,
        first: str | int,
        outer: Mapping[int, str],
        kept: Mapping[str, Value],
        stores: list[StoreValue],
        ask_rows: bool,
    ) -> None:
        self._begin_step(first, outer, ask_rows)
        for value in self._missing(_roots(kept.values(), stores)):
            self._value(value)
        self._step(kept, stores, first)

    def _begin_step(self, first: str | int, outer: Mapping[int, str], ask_rows: bool = False) -> None:
        self.names = {**outer, **self.steps.get(first, {})}
        if self.at != first:
            self._columns(f"{first} + tl.arange(0, COLUMNS){'' if self.one_dimension else '[None, :]'}", ask_rows)
        self.at = first

    def _step(self, kept: Mapping[str, Value], stores: list[StoreValue], start: str | int) -> None:
        """Adds a step's values to what is kept over the sweep, and stores them."""
        for name, value in kept.items():
            operands = [self.names[each.number] for each in value.args]
            self._lines(_way(value).step(value, name, operands, self.kernel, start))
        for store in stores:
            self._line(self.stored(store))

    def _turns(self, together: int) -> str:
        """The `range` over the first columns of a loop's turns, as source."""
        bounds = f"0, {slot(self.kernel.places)}, {'COLUMNS' if together == 1 else f'{together} * COLUMNS'}"
        return f"tl.range({bounds}, num_stages={self.tuning.stages})" if self.tuning.stages > 1 else f"range({bounds})"

    def _accumulators(self, reduced: list[Value]) -> dict[int, str]:
        """A name for what is kept of each reduction over a sweep; the moments of one operand are kept together."""
        names: dict[int, str] = {}
        moments: dict[int, str] = {}
        for value in reduced:
            if value.detail in ordered_sums.MOMENTS:
                operand = value.args[0].number
                names[value.number] = moments[operand] = moments.get(operand) or self._fresh("moments")
            else:
                names[value.number] = self._fresh(value.detail)
        return names

    def _lines(self, lines: list[str]) -> None:
        for line in lines:
            self._line(line)
            self.helpers.update(helpers_in(line))

    def _missing(self, roots: list[Value]) -> list[Value]:
        """Operands of the roots that have no name yet, operands first."""
        found: dict[int, Value] = {}
        stack = list(roots)
        while stack:
            value = stack.pop()
            if value.number not in self.names and value.number not in found:
                found[value.number] = value
                stack.extend(value.args)
        return [found[number] for number in sorted(found)]

    def _fresh(self, stem: str) -> str:
        number = self.counts.get(stem, 0)
        self.counts[stem] = number + 1
        return f"{stem}_{number}"

    def _value(self, value: Value) -> None:
        if value.op == "constant":
            self.names[value.number] = slot(literal(value.detail))
            return
        if value.number in self.scans:
            kept = self.scans[value.number]
            self._lines(reductions.in_turn(value, self.names[value.args[0].number], kept))
            self.names[value.number] = self._fresh("scan")
            self._line(f"{self.names[value.number]} = {kept}_part")
            return
        name = self._fresh(value.detail if value.op == "reduce" else value.op.strip("_"))
        self._lines([f"{name} = {self._expression(value)}"])
        self.names[value.number] = name

    def _expression(self, value: Value) -> str:
        if value.op == "load":
            return self.loaded(value)
        if value.op == "index":
            converted = f".to({triton_dtype(value.dtype)})"
            return f"({self.position(value.index)}){converted}"
        if value.op == "reduce":
            return reductions.of_row(value, self.names[value.args[0].number], self.kernel)
        if value.op == "scan":
            return reductions.up_to_each(value, self.names[value.args[0].number])
        args = [self.names[a.number] for a in value.args]
        first = 1 if value.op == "where" and value.dtype not in _OF_NUMBERS else 0  # behind the condition
        if all(a.op == "constant" for a in value.args[first:]):
            args[first] = f"tl.full((1,), {args[first]}, {triton_dtype(value.args[first].dtype)})"
        if value.op == "cast":
            return f"{args[0]}.to({triton_dtype(value.dtype)})"
        if value.op == "narrow":
            return f"{args[0]}.to({slot(triton_dtype(value.detail))}).to(tl.float32)"
        return EXPRESSIONS[value.op].format(*args)


def _roots(reduced: Iterable[Value], stores: list[StoreValue]) -> list[Value]:
    """What a sweep must compute."""
    return [*(operand for value in reduced for operand in value.args), *(store.value for store in stores)]


def _way(value: Value) -> ModuleType:
    """The module that writes a reduction over a sweep."""
    if value.detail == place_sums.MEMBERS:
        return place_sums
    return ordered_sums if value.detail in ordered_sums.DETAILS else reductions

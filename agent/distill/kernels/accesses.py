"""Loads and stores of a kernel as source: addresses, and masks where not all elements are there."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import sympy
import torch

from agent.distill.kernels.index_expressions import Unsupported, text
from agent.distill.kernels.launch_configs import Tuning
from agent.distill.kernels.schedule import Buffer, KernelBody, reachable
from agent.distill.kernels.value_graph import COLUMN, ROW, StoreValue, Value


@dataclass(frozen=True)
class Spot:
    """What the row and the column are called where a value is computed, and the masks that say which rows, which
    columns and which elements are there; "" where all are."""

    row: str = "row"
    column: str = "column"
    rows: str = "row_inside"
    columns: str = "column_inside"
    both: str = "inside"


ONE_COLUMN = Spot(row="index", rows="inside")
"""In a kernel of one column."""


@dataclass
class Accesses:
    """What a kernel's source says of memory: `pointers` are its parameters by what they point to, `names` those of the
    values that are computed so far, by their numbers."""

    kernel: KernelBody
    buffers: Mapping[str, Buffer]
    tuning: Tuning
    pointers: dict[str, str] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    whole_turns: bool = True  # whether no turn of the loop that is written goes beyond the last column
    spot: Spot = Spot()
    asked: str = ""  # what all stores ask, to hold a jump (`sweep_turns.py`)

    def name_pointers(self, values: list[Value]) -> None:
        """Parameters for all that these values load and the kernel stores."""
        read = dict.fromkeys(self.buffers[v.detail[0]].base for v in values if v.op == "load")
        written = dict.fromkeys(self.buffers[s.buffer].base for s in self.kernel.stores)
        self.pointers |= {base: f"in_{number}" for number, base in enumerate(read)}
        for number, base in enumerate(base for base in written if base not in read):
            self.pointers[base] = f"out_{number}"

    def loaded(self, value: Value) -> str:
        """A load as an expression."""
        name, dtype, masked = value.detail
        buffer = self.buffers[name]
        rows, columns = self._varies(value, value.args[1:] if masked else value.args)
        address = self._address(
            buffer.base, value.index + buffer.offset, value.by_row and not rows, value.by_column and not columns
        )
        if masked and _of_constants(value.args[0]) and not (rows or columns):
            address += " + tl.full((1,), 0, tl.int32)"  # a block, as the mask is
        masks = [self._inside(value.by_row, value.by_column)]
        if masked:
            masks.append(self.names[value.args[0].number])
        mask = " & ".join(m for m in masks if m)
        loaded = f"tl.load({address}, mask={mask})" if mask else f"tl.load({address})"
        if value.half:
            return f"{loaded}.to(tl.float32)"
        return f"{loaded}.to(tl.int1)" if dtype == torch.bool else loaded

    def stored(self, store: StoreValue) -> str:
        """A store as a line."""
        buffer = self.buffers[store.buffer]
        symbols = store.index.free_symbols
        columns = over_columns(store)
        if symbols - {ROW, COLUMN}:
            raise Unsupported("stores to computed positions")
        address = self._address(
            buffer.base, store.index + buffer.offset, ROW not in symbols, columns and COLUMN not in symbols
        )
        inside = " & ".join(mask for mask in (self._inside(True, columns), self.asked) if mask)
        mask = f", mask={inside}" if inside else ""
        return f"tl.store({address}, {self.names[store.value.number]}{mask})"

    def position(self, index: sympy.Expr) -> str:
        """An index as an expression."""
        ranges = {ROW: self.kernel.rows, COLUMN: self.kernel.columns}
        ranges |= {s: 2**31 for s in index.free_symbols if s not in ranges}
        return text(index, ranges, self._symbol)

    def _symbol(self, symbol: sympy.Symbol) -> str:
        if symbol == ROW:
            return self.spot.row
        if symbol == COLUMN:
            return self.spot.column
        return self.names[int(symbol.name.removeprefix("indirect"))]

    def _address(self, base: str, index: sympy.Expr, rows: bool, columns: bool) -> str:
        """A pointer expression that varies by row and by column where it has to."""
        terms = [self.pointers[base]]
        if index != 0:
            written = self.position(index)
            terms.append(f"({written})" if " % " in written or " // " in written else written)
        terms += [f"0 * {self.spot.row}"] * rows + [f"0 * {self.spot.column}"] * columns
        return " + ".join(terms)

    def _inside(self, rows: bool, columns: bool) -> str:
        """What says whether an element is there, of an access that varies by these; empty if all are."""
        rows, columns = rows and not self.all_rows, columns and not self._all_columns
        if rows and columns:
            return self.spot.both
        return self.spot.rows if rows else self.spot.columns if columns else ""

    @property
    def all_rows(self) -> bool:
        """Whether every program has rows alone that are there: no access needs to ask."""
        return not self.tuning.masked and self.kernel.rows % self.tuning.row_block == 0

    @property
    def _all_columns(self) -> bool:
        """The same of columns."""
        kernel = self.kernel
        whole = kernel.places == kernel.columns and not kernel.columns % self.tuning.column_block
        return kernel.columns == 1 or (not self.tuning.masked and self.whole_turns and whole)

    def _varies(self, value: Value, operands: tuple[Value, ...]) -> tuple[bool, bool]:
        symbols = value.index.free_symbols
        rows = ROW in symbols or any(a.by_row for a in operands)
        return rows, COLUMN in symbols or any(a.by_column for a in operands)


def _of_constants(value: Value) -> bool:
    """Whether a value is the same in every program: computed of constants, as a block of one element."""
    return not (value.by_row or value.by_column) and all(part.op != "load" for part in reachable([value]))


def over_columns(store: StoreValue) -> bool:
    """Whether a store has an element for each column."""
    return store.value.by_column or COLUMN in store.index.free_symbols

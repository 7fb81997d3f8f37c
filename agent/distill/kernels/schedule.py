"""From TorchInductor's schedule to kernels as values: what each kernel computes, reads and writes, on which buffers."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import sympy
import torch
from torch._inductor import ir
from torch._inductor.scheduler import BaseSchedulerNode, FusedSchedulerNode, SchedulerNode
from torch._inductor.virtualized import V
from torch.utils._sympy.functions import FloorDiv, Identity, ModularIndexing
from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

from agent.distill.eager.sum_order import Deal, Ragged, SumOrder
from agent.distill.kernels.column_order import SAME, ColumnOrder, column_order, counts_as_given
from agent.distill.kernels.index_expressions import Unsupported, digits
from agent.distill.kernels.value_graph import COLUMN, ROW, Body, Capture, StoreValue, Value
from extraction.kernels.lowering import Kernel, Lowered

INDEX_LIMIT = 2**31
"""Indices are 32-bit integers: buffers of more elements are left to eager."""

TILED = 2**13
"""From so many elements on it matters that neighbouring threads read neighbouring memory."""
GATHERED = 2**16
"""The same where they are looked up."""
NARROW = 8
"""With fewer columns, each of them is read in sequence anyway."""


Orders = Sequence[Sequence[SumOrder | None]]
"""For each op of a graph, how eager adds what it adds; None where that is not known."""


@dataclass(frozen=True)
class Buffer:
    """Memory that kernels read or write: elements from `offset` on of `base`, an input or an allocation."""

    base: str
    offset: int
    dtype: torch.dtype


@dataclass(frozen=True)
class KernelBody:
    """One kernel: its values over `rows` × `columns`, the stores that are needed, and the ops that it computes.

    A kernel without reductions has one column, unless it would read or write with gaps. Then it has as many columns as
    make neighbouring rows neighbours in memory, and `flat` is the same kernel with one column. A kernel that adds in
    eager's order (`agent.distill.kernels.exact`) takes `step` columns at a time, as `deal` says if that is not None.
    `renumbered` is the same kernel with its columns as eager adds them, if they come in another order. `made` are the
    scheduler's names of what it computes, and `behind` of what must be computed before.
    """

    rows: int
    columns: int
    stores: tuple[StoreValue, ...]
    ops: tuple[int, ...]
    flat: "KernelBody | None" = None
    step: int | None = None
    deal: Deal | Ragged | None = None
    renumbered: "KernelBody | None" = None
    made: frozenset[str] = field(default=frozenset(), compare=False)
    behind: frozenset[str] = field(default=frozenset(), compare=False)

    @property
    def places(self) -> int:
        """The columns that a sweep goes over, those included that are not there."""
        return self.columns if self.deal is None else self.deal.places

    def values(self) -> list[Value]:
        """All values that the stores need, operands first."""
        return reachable(store.value for store in self.stores)

    def touched(self, buffers: Mapping[str, Buffer], base: str) -> int:
        """How many elements of an input or an allocation it reads and writes at most."""
        return self.bases(buffers).count(base) * self.rows * self.columns

    def bases(self, buffers: Mapping[str, Buffer]) -> list[str]:
        """The allocations and inputs that it reads, then those that it writes. A buffer may come several times."""
        read = [v.detail[0] for v in self.values() if v.op == "load"]
        return [buffers[name].base for name in (*read, *(s.buffer for s in self.stores))]

    @property
    def scans(self) -> bool:
        """Whether it needs whole rows at once."""
        return self.step is None and any(value.op == "scan" for value in self.values())

    @property
    def sweeps_again(self) -> bool:
        """Whether it writes along rows that it has reduced."""
        reduces = any(value.op == "reduce" for value in self.values())
        return reduces and any(s.value.by_column or COLUMN in s.index.free_symbols for s in self.stores)

    @property
    def loads_late(self) -> bool:
        """Whether it loads by column what no first reduction needs, such as a norm's weights."""
        values = self.values()
        first = [value for value in values if value.op == "reduce" and value.depth == 1]
        needed = {value.number for value in reachable(operand for value in first for operand in value.args)}
        late = (value.op == "load" and value.by_column and value.number not in needed for value in values)
        return bool(first) and any(late)

    @property
    def adds_in_turn(self) -> bool:
        """Whether it adds as a norm's backward in eager does."""
        return any(value.detail == "turns" for value in self.values())

    def loads(self) -> set[str]:
        """Names of the buffers that it reads."""
        return {v.detail[0] for v in self.values() if v.op == "load"}


def reachable(roots: Iterable[Value]) -> list[Value]:
    """Values and all their operands, operands first."""
    found: dict[int, Value] = {}
    stack = list(roots)
    while stack:
        value = stack.pop()
        if value.number not in found:
            found[value.number] = value
            stack.extend(value.args)
    return [found[number] for number in sorted(found)]


def kernel_bodies(
    result: Lowered, buffers: dict[str, Buffer], needed: Iterable[str], orders: Orders
) -> list[KernelBody]:
    """The kernels that compute the bases in `needed`, in order. The rest of the schedule is dropped.

    Raises Unsupported on library calls and on loop bodies that this author does not write.
    """
    captured = []
    for kernel in result.kernels:
        if kernel.kind == "extern":
            raise Unsupported(f"TorchInductor calls a library for {_extern_name(kernel.node)}")
        if kernel.kind == "generated":
            additions = [_addition(part, orders, kernel) for part in kernel.node.get_nodes()]
            captured.append((kernel, additions, _capture(kernel, buffers, additions)))
    needed = set(needed)
    bodies = []
    for kernel, additions, body in reversed(captured):
        body = _storing(body, needed, buffers)
        if body.stores:
            width, other = _tile_width(body), next((a.columns for a in additions if a and not a.columns.is_same), SAME)
            if width > 1:
                body = replace(_storing(_capture(kernel, buffers, additions, width), needed, buffers), flat=body)
            if not other.is_same:
                turned = _capture(kernel, buffers, additions, columns_as=other)
                body = replace(body, renumbered=_storing(turned, needed, buffers))
            bodies.append(body)
            needed |= {buffers[name].base for name in body.loads()}
    return bodies[::-1]


def _storing(body: KernelBody, needed: Collection[str], buffers: Mapping[str, Buffer]) -> KernelBody:
    """The kernel with the stores to these bases alone."""
    return replace(body, stores=tuple(s for s in body.stores if buffers[s.buffer].base in needed))


def _tile_width(body: KernelBody) -> int:
    """How many columns a kernel without reductions should have.

    Asked is the first access that does not read or write neighbouring elements in sequence. If elements at a distance
    are neighbours in memory there, the distance is the answer; 1 if there is none. Of places that are computed, as
    those of an interpolation are, the same must be computed at that distance.
    """
    if body.columns > 1 or body.rows < TILED:
        return 1
    loads = [value for value in body.values() if value.op == "load"]
    for index, args in (*((load.index, load.args) for load in loads), *((s.index, ()) for s in body.stores)):
        known = {s: ValueRanges(0, body.rows - 1 if s == ROW else INDEX_LIMIT) for s in index.free_symbols}
        scattered, places = _is_scattered(args), _positions(args) if index.free_symbols - {ROW, COLUMN} else []
        gap, moves = distance(index, 1), any(distance(each, 1) for each in places)
        if scattered:
            if body.rows < GATHERED:
                continue
        elif gap == 1 or (gap == 0 and not moves) or bound_sympy(index, known).upper < body.rows // 4:
            continue  # in order, or so small that it stays in a cache
        apart = {int(e.args[1]) for e in index.atoms(FloorDiv, ModularIndexing) if e.args[1].is_Integer}
        most = body.rows // NARROW if scattered else body.rows
        for width in sorted(apart):
            same = scattered or not any(distance(each, width) for each in places)
            if NARROW <= width <= most and body.rows % width == 0 and same and distance(index, width) == 1:
                return width
    return 1


def _is_scattered(operands: Iterable[Value]) -> bool:
    """Whether neighbouring elements are read wherever other loads say, which are among what a load needs. From a cache,
    too, each takes a turn then."""
    return any(value.op == "load" and distance(value.index, 1) for value in reachable(operands))


def _positions(operands: Iterable[Value]) -> list[sympy.Expr]:
    """Where in a kernel what a load needs is computed for, and from where it is loaded."""
    return [value.index for value in reachable(operands) if value.index is not None]


@lru_cache(maxsize=1 << 14)
def distance(index: sympy.Expr, elements: int, along: sympy.Symbol = ROW) -> int:
    """How far in memory the element at position `elements` is from the first; 0 where sympy cannot tell."""
    plain = index.replace(lambda e: isinstance(e, Identity), lambda e: e.args[0])
    first = dict.fromkeys(plain.free_symbols, 0)
    apart = plain.subs({**first, along: elements}) - plain.subs(first)
    return int(apart) if apart.is_Integer else 0


def _extern_name(node: BaseSchedulerNode) -> str:
    return str(getattr(node.node, "python_kernel_name", None) or type(node.node).__name__)


@dataclass(frozen=True)
class _Addition:
    """How eager adds what a scheduled node adds, and how the node's columns come in that order."""

    order: SumOrder
    columns: ColumnOrder


def _capture(
    kernel: Kernel,
    buffers: dict[str, Buffer],
    additions: Sequence[_Addition | None],
    width: int = 1,
    columns_as: ColumnOrder = SAME,
) -> KernelBody:
    """The kernel with all its stores; `additions` are those of its nodes, `width` is how many columns it has if it has
    no reductions, and `columns_as` the order in which they come."""
    node = kernel.node
    rows, columns = _sizes(kernel)
    if rows * columns == 0:
        raise Unsupported("empty tensors")
    if max(rows * columns, *(_length(n) for n in node.get_nodes())) >= INDEX_LIMIT:
        raise Unsupported("tensors of 2^31 elements or more")
    if columns == 1:
        rows, columns = rows // width, width
    body = Body({ROW: rows, COLUMN: columns})
    dtypes = {name: buffer.dtype for name, buffer in buffers.items()}
    handler = Capture(body, dtypes)
    for part, addition in zip(node.get_nodes(), additions, strict=True):
        if not isinstance(part, SchedulerNode) or part.is_template():
            raise Unsupported(f"TorchInductor's {type(part).__name__}")
        if _finds_a_place(part) and not (columns_as.is_same and counts_as_given(part)):
            raise Unsupported("the place of an extreme where columns come in another order than places")
        coordinates = _coordinates(part, rows, columns, columns_as)
        in_order = addition is not None and addition.columns.plain() == columns_as.plain()
        handler.order = addition.order if in_order else None
        handler.divides = _divides(part)
        handler.mutates = {output.get_name(): output.get_mutations() for output in part.get_outputs()}
        with V.set_ops_handler(handler):
            part._body(*coordinates)
    made, behind = frozenset(node.get_operation_names()), frozenset(node.ancestors)
    return KernelBody(rows, columns, tuple(body.stores), kernel.ops, made=made, behind=behind)


def _finds_a_place(part: SchedulerNode) -> bool:
    """Whether a scheduled node says where an extreme is."""
    return part.is_reduction() and part.node.get_reduction_type() in ("argmax", "argmin")


def _divides(part: SchedulerNode) -> bool:
    """Whether a scheduled node divides by a constant as the kernels of pools do, and not as eager's division."""
    names = {str(getattr(origin.target, "overloadpacket", "")) for origin in part.node.get_origins()}
    return any("avg_pool" in name for name in names) and not any(".div" in name for name in names)


def _sizes(kernel: Kernel) -> tuple[int, int]:
    """The rows and columns of a kernel."""
    if type(kernel.node) not in (SchedulerNode, FusedSchedulerNode):
        raise Unsupported(f"TorchInductor's {type(kernel.node).__name__}")
    rows, columns = (int(n) for n in kernel.node.group[1])
    return rows, columns


def _addition(part: BaseSchedulerNode, orders: Orders, kernel: Kernel) -> _Addition | None:
    """What a scheduled node adds; None if it adds nothing, or if it is not known in what order eager does."""
    _, columns = _sizes(kernel)
    order = _order(part, orders, columns)
    if order is None or not isinstance(part, SchedulerNode) or not part.is_reduction():
        return None
    found = column_order(part, order)
    return None if found is None else _Addition(order, found)


def _order(part: BaseSchedulerNode, orders: Orders, columns: int) -> SumOrder | None:
    """The order in which eager adds what a scheduled node adds; None if it adds nothing or the order is not known."""
    ops = {origin.meta["op"] for origin in part.node.get_origins() if "op" in origin.meta}
    adding = [op for op in ops if orders[op]]
    if not adding:
        return None
    known = set(orders[max(adding)])  # earlier ones are what it was computed from
    fitting = [order for order in known if order is None or order.length == columns]
    found = fitting[0] if len(fitting) == 1 else None
    ragged = found is not None and isinstance(found.deal, Ragged)
    return None if ragged and not _rows_in_order(part) else found


def _rows_in_order(part: SchedulerNode) -> bool:
    """Whether the rows of a reduction are numbered as its results lie in memory, by some of them."""
    outer = [int(size) for size in part._body.sizes[0]]
    rows, variables = math.prod(outer), part._body.vars[0]
    (written,) = part._body.get_write_exprs()
    placed = written.subs(dict(zip(variables, digits(ROW, outer), strict=True)))
    return all(int(placed.subs(ROW, row)) == row for row in {*range(0, rows, -(-rows // 64)), rows - 1})


def _length(part: SchedulerNode) -> int:
    layouts = (output.node.get_layout() for output in part.get_outputs())
    return max((int(layout.storage_size()) for layout in layouts), default=0)


def _coordinates(part: SchedulerNode, rows: int, columns: int, columns_as: ColumnOrder) -> list[list[sympy.Expr]]:
    """The loop variables of one scheduled node in terms of the kernel's row and column."""
    outer, inner = ([int(s) for s in sizes] for sizes in part._body.sizes)
    if part.is_reduction():
        if (math.prod(outer), math.prod(inner)) != (rows, columns):
            raise Unsupported("reductions of different sizes in one kernel")
        return [digits(ROW, outer), columns_as.coordinates(inner)]
    length = math.prod(outer)
    if length == rows:
        return [digits(ROW, outer), []]
    if length != rows * columns:
        raise Unsupported("loops of different lengths in one kernel")
    return [_split_digits(outer, rows, columns, columns_as), []]


def _split_digits(sizes: list[int], rows: int, columns: int, columns_as: ColumnOrder) -> list[sympy.Expr]:
    """Coordinates in a box. Its leading sizes are the rows, its trailing ones the columns; one size may be split."""
    before = 1
    for position, size in enumerate(sizes):
        if before * size >= rows:
            part, rest = rows // before, before * size // rows
            if before * part == rows and rows * rest == before * size:
                leading = digits(ROW, [*sizes[:position], part])
                trailing = columns_as.coordinates([rest, *sizes[position + 1 :]])
                return [*leading[:-1], leading[-1] * rest + trailing[0], *trailing[1:]]
            break
        before *= size
    return digits(ROW * columns + columns_as.number(), sizes)


def region_buffers(result: Lowered) -> dict[str, Buffer]:
    """Every buffer of the schedule by TorchInductor's name. Views and writes in place are resolved to what they touch.

    Constant tensors of the graph are not among them: a pass has no memory for them.
    """
    graph = result.lowering
    buffers = {}
    for name in [*graph.graph_inputs, *graph.name_to_buffer]:
        buffer = graph.get_buffer(name)
        if isinstance(buffer, ir.IRNode) and buffer.maybe_get_layout() is not None:
            base, offset = _resolve(buffer)
            buffers[name] = Buffer(base, offset, buffer.get_dtype())
    return buffers


def _resolve(buffer: Any) -> tuple[str, int]:
    layout = buffer.maybe_get_layout()
    if isinstance(layout, ir.NonOwningLayout):
        base, offset = _resolve(V.graph.get_buffer(layout.view.get_name()))
        return base, offset + int(layout.view.get_layout().offset)
    if isinstance(layout, ir.MutationLayoutSHOULDREMOVE):
        return _resolve(layout.get_buffer())
    return buffer.get_name(), 0

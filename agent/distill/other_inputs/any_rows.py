"""A plan for inputs with any number of rows: of regions that are one kernel which reduces rows.

The last axes, which such a kernel goes along as its columns, have the sizes of a variant: the weights of a norm say how
many elements a row has. The axes in front of them, the rows, may have any sizes. Inputs have all of these axes, or
some neighbours among them, such as a mask, or none, such as a norm's weights: those are as in the variant. All but
these are contiguous. The kernel gets the number of rows as an argument.

In which order eager adds may depend on how many rows there are. So a kernel that adds in eager's order has the numbers
of rows alone for which that order is the same (`agent.distill.eager.orders_by_rows`). In the pass that is handed in it
is confirmed on the device at hand for the fewest rows of each range.
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import sympy
import torch
from torch.utils._sympy.functions import FloorDiv, ModularIndexing

from agent.distill.eager.orders_by_rows import Span, confirmed_rows, order_of_rows, rows_of_same_orders
from agent.distill.eager.sum_order import SumOrder
from agent.distill.kernels.emit import KernelSource, emit
from agent.distill.kernels.host_program import Shape, Sketch
from agent.distill.kernels.index_expressions import text as index_text
from agent.distill.kernels.launch_configs import EXACT, LaunchLimits, choose
from agent.distill.kernels.schedule import KernelBody
from agent.distill.kernels.value_graph import COLUMN, ROW
from agent.distill.other_inputs.kept_plans import (
    LIMIT,
    SIZES_SOURCE,
    Called,
    Layouts,
    Lower,
    launch_plan,
    of_any_size_source,
    tuple_source,
)
from agent.distill.rounding import Confirms
from storage.graph.record import Graph
from storage.records import Input, contiguous_stride, dtype_name

_OTHER_SIZES = (((5, 7), (7, 11), (3, 2), (2, 3), (2, 3)), ((37, 41), (31, 43), (13, 11), (5, 7), (3, 2)))
"""Of a small and a large shape, for which a region is lowered once more, two sizes for each axis of the rows."""
_CLASSES = ((1, 2**9), (2**11, 2**14))
"""From so many rows on a kernel is launched as is best for the second number."""

Axes = tuple[int | None, ...]
"""For each axis of an input, of which one of the rows' axes it has the size; None where it has one element."""


@dataclass(frozen=True)
class AnyRows:
    """The kernels of a region for any number of rows, in the dtypes and with the columns of one variant, whose sketch
    is `sketch`.

    `by_rows`: from how many rows on each kernel is launched. `lead` are the rows' axes in the variant, and `spans` the
    numbers of rows that the kernels are for. `axes` are those of each input that come before its columns; None for an
    input that is as in the variant. Each of `runs` are the axes, from the first to one behind the last, of inputs that
    have some of the rows' axes: the kernels have two arguments for each.
    """

    sketch: Sketch
    by_rows: tuple[tuple[int, KernelSource], ...]
    lead: Shape
    spans: tuple[Span, ...]
    axes: tuple[Axes | None, ...]
    runs: tuple[tuple[int, int], ...]
    layouts: Layouts = Layouts.CONTIGUOUS

    @property
    def dtypes(self) -> tuple[torch.dtype, ...]:
        """The dtype of each input."""
        return tuple(dtype for dtype, _, _ in self.sketch.key)

    @property
    def kernels(self) -> tuple[KernelSource, ...]:
        """All kernels, of which one is launched."""
        return tuple(kernel for _, kernel in self.by_rows)

    @property
    def fixed(self) -> tuple[Shape, ...]:
        """What the shapes and strides of inputs must have in common with the variant's: columns, and all of an input
        without rows."""
        found: list[Shape] = []
        for (_, shape, stride), axes in zip(self.sketch.key, self.axes, strict=True):
            found += [shape, stride] if axes is None else [shape[len(axes) :]]
        return tuple(found)

    @property
    def key(self) -> tuple:
        """What decides which kernels are launched."""
        return self.dtypes, self.fixed, self.spans

    def confirmed(self, confirms: Confirms) -> "AnyRows | None":
        """The same for the numbers of rows for which the orders of addition are confirmed; None if there are none."""
        (body,) = self.sketch.bodies
        spans = confirmed_rows(self.spans, _orders(body), body.columns, confirms)
        return replace(self, spans=spans, by_rows=_launched(self.by_rows, spans)) if spans else None

    @property
    def form(self) -> tuple:
        """What two have in common that can be launched by the same code."""
        return len(self.lead), self.axes, self.runs


def any_rows(sketch: Sketch, limits: LaunchLimits) -> AnyRows | None:
    """The sketch's kernels for any number of rows; None if it is not one kernel that reduces rows of contiguous tensors
    which are told apart by their leading axes."""
    if len(sketch.bodies) != 1 or any(returned.view is not None for returned in sketch.returned):
        return None
    (body,) = sketch.bodies
    if body.columns == 1 or body.rows == 1 or not _is_alike_in_all_rows(body):
        return None
    tried = ((lead, _Places(sketch, body, lead).axes()) for lead in _leads(sketch, body))
    lead, found = next((one for one in tried if one[1] is not None), ((), None))
    if found is None:
        return None
    axes, runs = found
    known = [(first, rows) for first, rows in _CLASSES if first * body.columns < LIMIT]
    # An odd number: programs of several rows ask which of theirs are there.
    bodies = [replace(body, rows=min(rows, LIMIT // body.columns) | 1) for _, rows in known]
    kernels = [_of_any_rows(emit(one, sketch.buffers, choose(one, limits)), runs) for one in bodies]
    most = min(LIMIT // body.columns, EXACT - body.places) - max(kernel.tuning.row_block for kernel in kernels)
    orders = _orders(body) if body.step is not None else ()  # else it adds in no order of eager's
    spans = rows_of_same_orders(orders, body.columns, most)
    by_rows = _launched([(first, kernel) for (first, _), kernel in zip(known, kernels, strict=True)], spans)
    return AnyRows(sketch, by_rows, lead, spans, axes, tuple(runs)) if by_rows else None


def _launched(
    by_rows: Sequence[tuple[int, KernelSource]], spans: Sequence[Span]
) -> tuple[tuple[int, KernelSource], ...]:
    """Those of the kernels that are launched for some of these numbers of rows."""
    ends = [*(first for first, _ in by_rows[1:]), math.inf]
    return tuple(one for one, end in zip(by_rows, ends, strict=True) if any(a < end and one[0] < b for a, b in spans))


def is_for_all_rows(graph: Graph, sketch: Sketch, lower: Lower) -> bool:
    """Whether a region has the same kernels for other numbers of rows: asked are a small and a large one. And whether
    what its ops add is added in the orders there that are expected."""
    found = any_rows(sketch, LaunchLimits())
    if found is None or len(found.lead) > len(_OTHER_SIZES[0]):
        return False
    return all(_is_same(found, graph, lower, sizes) for sizes in _OTHER_SIZES)


def _is_same(found: AnyRows, graph: Graph, lower: Lower, sizes: Sequence[tuple[int, int]]) -> bool:
    lead = tuple(two if size == one else one for size, (one, two) in zip(found.lead, sizes, strict=False))
    inputs = []
    for (dtype, shape, stride), axes in zip(found.sketch.key, found.axes, strict=True):
        if axes is not None:
            shape = (*(1 if axis is None else lead[axis] for axis in axes), *shape[len(axes) :])
            stride = contiguous_stride(shape)
        inputs.append(Input("x", "input", dtype_name(dtype), shape, stride))
    lowered = lower(graph, inputs)
    again = any_rows(lowered, LaunchLimits()) if lowered is not None else None
    if again is None or (again.form, again.fixed) != (found.form, found.fixed) or _made(again) != _made(found):
        return False
    if [k.text for k in again.kernels] != [k.text for k in found.kernels]:
        return False
    columns, rows = found.sketch.bodies[0].columns, math.prod(lead)
    orders, others = ([value.order for value in one.sketch.bodies[0].values()] for one in (found, again))
    known = [(order, other) for order, other in zip(orders, others, strict=True) if order is not None]
    return all(order.free or order_of_rows(order, columns, rows) == other for order, other in known)


def _made(found: AnyRows) -> list[tuple]:
    """The columns and dtypes of what it allocates."""
    return [(a.shape[len(found.lead) :], a.dtype) for a in found.sketch.allocations]


def _is_alike_in_all_rows(body: KernelBody) -> bool:
    """Whether no value depends on the row's number, or on other rows."""
    values = body.values()
    if body.renumbered is not None or not any(value.op == "reduce" for value in values):
        return False
    at_places = [value for value in values if value.op == "index"]
    return not any(v.op == "scan" or v.detail == "members" for v in values) and not any(
        ROW in value.index.free_symbols for value in at_places
    )


def _orders(body: KernelBody) -> set[SumOrder]:
    return {value.order for value in body.values() if value.order is not None and not value.order.free}


def _leads(sketch: Sketch, body: KernelBody) -> Iterator[Shape]:
    """The axes that may be those of the rows, which all that the kernel stores has in common; the most of them first,
    though the last may be one that was reduced and kept."""
    shapes = {name: shape for name, shape, _ in _tensors(sketch)}
    stored = [shapes[sketch.names[sketch.buffers[store.buffer].base]] for store in body.stores]
    for rank in range(min(map(len, stored)), 0, -1):
        leads = {shape[:rank] for shape in stored}
        if len(leads) == 1 and math.prod(stored[0][:rank]) == body.rows:
            yield stored[0][:rank]


def _tensors(sketch: Sketch) -> Iterator[tuple[str, Shape, Shape]]:
    """Name, shape and stride of each input and each allocation."""
    yield from ((f"in_{n}", shape, stride) for n, (_, shape, stride) in enumerate(sketch.key))
    yield from ((a.name, a.shape, a.stride) for a in sketch.allocations)


@dataclass(frozen=True)
class _Places:
    """Where in its tensors a kernel with rows of the axes `lead` reads and writes."""

    sketch: Sketch
    body: KernelBody
    lead: Shape

    def axes(self) -> tuple[tuple[Axes | None, ...], dict[tuple[int, int], str]] | None:
        """The rows' axes of each input, and how the row of an input is written that has some of them, by these; None
        where an element is read or written elsewhere, or a tensor has gaps."""
        indices = self._indices()
        runs: dict[tuple[int, int], str] = {}
        found: list[Axes | None] = []
        for name, shape, stride in _tensors(self.sketch):
            read = indices.get(name, set())
            by_row = any(ROW in index.free_symbols for index in read)
            all_rows = tuple(range(len(self.lead)))
            if self._is_by_row(shape, read) and (by_row or not read):
                axes: Axes | None = all_rows
            elif by_row:
                axes = self._some_rows(shape, read, runs)
                if axes is None:
                    return None
            else:
                axes = None
            # Where a mask of one row would have the next is no matter.
            needed = zip(shape, stride, contiguous_stride(shape), strict=True)
            gaps = any(given != plain for size, given, plain in needed if size > 1 or axes == all_rows)
            if (axes is not None and gaps) or self._has_part(name):
                return None
            if not name.startswith("in_"):
                if axes != all_rows:
                    return None
            else:
                found.append(axes)
        return (tuple(found), runs) if tuple(range(len(self.lead))) in found else None

    def _indices(self) -> dict[str, set[sympy.Expr]]:
        """Where each tensor is read or written, by its name."""
        found: dict[str, set[sympy.Expr]] = {}
        accesses = [(value.detail[0], value.index) for value in self.body.values() if value.op == "load"]
        for buffer, index in [*accesses, *((store.buffer, store.index) for store in self.body.stores)]:
            found.setdefault(self.sketch.names[self.sketch.buffers[buffer].base], set()).add(index)
        return found

    def _has_part(self, name: str) -> bool:
        """Whether the kernel has a part of a tensor."""
        buffers = self.sketch.buffers.values()
        return any(buffer.offset for buffer in buffers if self.sketch.names.get(buffer.base) == name)

    def _is_by_row(self, shape: Shape, indices: set[sympy.Expr]) -> bool:
        rank = len(self.lead)
        return shape[:rank] == self.lead and _are_rows(indices, ROW, math.prod(shape[rank:]))

    def _some_rows(self, shape: Shape, indices: set[sympy.Expr], runs: dict[tuple[int, int], str]) -> Axes | None:
        """The axes of an input that has some of the rows' axes: neighbours, in the places that they have in a result,
        or a single one."""
        lead, rank = self.lead, len(self.lead)
        for split in range(1, min(len(shape), rank) + 1):
            own = shape[:split]
            aligned = tuple(None if size == 1 else rank - split + n for n, size in enumerate(own))
            for axes in [(axis,) for axis in range(rank)] if split == 1 else [aligned]:
                kept = [axis for axis in axes if axis is not None]
                if not kept or kept != list(range(kept[0], kept[-1] + 1)):
                    continue
                first, end = kept[0], kept[-1] + 1
                inner, count = math.prod(lead[end:]), math.prod(lead[first:end])
                row = ModularIndexing(ROW, inner, count) if first else FloorDiv(ROW, inner)
                fits = all(size == (1 if axis is None else lead[axis]) for size, axis in zip(own, axes, strict=True))
                if fits and _are_rows(indices, row, math.prod(shape[split:])):
                    runs[first, end] = index_text(row, {ROW: math.prod(lead)}, lambda symbol: "row")
                    return axes
        return None


def _are_rows(indices: set[sympy.Expr], row: sympy.Expr, length: int) -> bool:
    """Whether these are elements of rows of so many elements, the same of each row."""
    return all(sympy.expand(index - row * length).free_symbols <= {COLUMN} for index in indices)


def _of_any_rows(kernel: KernelSource, runs: dict[tuple[int, int], str]) -> KernelSource:
    """The kernel with the number of rows, and what says which ones of an input are which, as arguments."""
    text, asks = re.subn(r"(row_inside = .* < )«\d+»", r"\1n", kernel.text)
    sizes = ["n"] if asks else []
    numbered = [(number, first, written) for number, ((first, _), written) in enumerate(runs.items())]
    for number, first, written in sorted(numbered, key=lambda each: -len(each[2])):  # one may begin as another does
        text = text.replace(written, f"row // inner_{number}{f' % count_{number}' if first else ''}")
    for number in range(len(runs)):
        sizes += [f"inner_{number}", f"count_{number}"]
    blocks = "ROWS: tl.constexpr"
    return replace(kernel, text=text.replace(blocks, ", ".join([*sizes, blocks]), 1))


def plans_source(found: Sequence[AnyRows], called: Called) -> str:
    """The functions that make the plan of kernels that differ in `key` alone, for inputs with other rows."""
    first = found[0]
    names, rank = [f"in_{n}" for n in range(len(first.axes))], len(first.lead)
    leading = names[first.axes.index(tuple(range(rank)))]
    given, refused = [f"{name}.dtype" for name in names], ["n == 0", f"len(lead) < {rank}"]
    for name, axes in zip(names, first.axes, strict=True):
        if name != leading:
            refused.append(f"{name}.device != {leading}.device")
        if axes is None:
            given += [f"{name}.shape", f"{name}.stride()"]
            continue
        given.append(f"{name}.shape[{len(axes)}:]")
        if name != leading:
            sizes = ["1" if axis is None else f"lead[{axis}]" for axis in axes]
            refused.append(f"{name}.shape[:{len(axes)}] != {tuple_source(sizes)}")
        gaps = f"{name}.stride() != contiguous({name}.shape)"
        refused.append(gaps if axes == tuple(range(rank)) else f"not {name}.is_contiguous()")
    asked = "\n        or ".join(refused)
    plans = "".join(_plans(one, called) for one in {one.key: one for one in found}.values())
    parameters = ", ".join(names)
    return f'''{SIZES_SOURCE}

def contiguous(shape):
    n, stride = 1, ()
    for size in reversed(shape):
        n, stride = n * size, (n, *stride)
    return stride


def new_plan({parameters}):
    """What the wrapper launches for contiguous tensors with any numbers of such rows; None for others."""
    lead = tuple({leading}.shape[:{rank}])
    n = 1
    for size in lead:
        n *= size
    if (
        {asked}
    ):
        return None
    given = {tuple_source(given)}
{plans}    return None


{of_any_size_source(len(names))}'''


def _plans(one: AnyRows, called: Called) -> str:
    """The plans of one variant's kernels, those for the most rows first."""
    between = " or ".join(f"{first} <= n < {end}" for first, end in one.spans)
    between = f"({between})" if one.spans[1:] else between
    text, latest = "", ""
    for first, kernel in one.by_rows:
        plan = f"return ({_plan(one, kernel, *called(kernel))},)\n"
        if plan != latest:
            text = f"        if n >= {first}:\n            {plan}{text}" if text else f"        {plan}"
        latest = plan
    return f"    if given == {tuple_source(list(map(str, (*one.dtypes, *one.fixed))))} and {between}:\n{text}"


def _plan(one: AnyRows, kernel: KernelSource, name: str, constants: dict[str, str]) -> str:
    head = kernel.text.partition("):\n")[0]
    sizes = {"n": "n"} if ", n, " in head else {}
    for number, (first, end) in enumerate(one.runs):
        sizes[f"inner_{number}"] = " * ".join(f"lead[{axis}]" for axis in range(end, len(one.lead))) or "1"
        sizes[f"count_{number}"] = " * ".join(f"lead[{axis}]" for axis in range(first, end))
    options = {**sizes, **dict(kernel.blocks), **constants, "num_warps": kernel.tuning.warps}
    rows = dict(kernel.blocks)["ROWS"]
    grid = "(n,)" if rows == 1 else f"(triton.cdiv(n, {rows}),)"
    made = []
    for allocation in one.sketch.allocations:
        row = allocation.shape[len(one.lead) :]
        shape = f"(*lead, {', '.join(map(str, row))})" if row else "lead"
        made.append((allocation, f"{shape}, contiguous({shape})"))
    arguments = [one.sketch.names[base] for base in kernel.pointers]
    return launch_plan(arguments, len(one.axes), made, [name, grid, *(f"{n}={v}" for n, v in options.items())])

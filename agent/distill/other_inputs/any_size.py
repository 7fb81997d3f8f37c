"""A plan for inputs of any size, beside those for the shapes of the variants: of regions that are one pointwise kernel.

Such a region computes each element from the elements at the same place of tensors of one shape, and from tensors that
are spread over it: of one element, or of neighbouring axes, such as a bias. Its kernel gets the numbers of elements as
arguments, is compiled once, and computes what the kernels of the variants compute. The tensors are contiguous. Where
nothing but single elements is spread, their axes may also be in another order in memory, the same for all: the kernel
goes over the memory. Inputs of dtypes that have no such kernel, of other shapes or with gaps get library calls.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import sympy
import torch
from torch.utils._sympy.functions import FloorDiv, ModularIndexing

from agent.distill.kernels.emit import KernelSource, emit
from agent.distill.kernels.host_program import Shape, Sketch, dense
from agent.distill.kernels.index_expressions import text as index_text
from agent.distill.kernels.launch_configs import LaunchLimits, Tuning, choose
from agent.distill.kernels.schedule import KernelBody
from agent.distill.kernels.text_template import slot
from agent.distill.kernels.value_graph import ROW
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
from storage.graph.record import Graph
from storage.records import Input, contiguous_stride, dtype_name

_OTHER_SIZES = ((5, 17), (7, 19), (3, 23), (11, 29), (13, 31), (2, 37))
"""Two sizes for each dimension of the shape for which a region is lowered once more."""
_SIZES = (2**18, 2**16, 2**15)
"""Numbers of elements from which on programs have other sizes; the last stands for all below."""

_OTHER_ORDER = """\
    if {1}:
        n, stride = 1, {0}.stride()
        for step, size in sorted(zip(stride, shape)):
            if step != n:
                return None
            n *= size
"""
"""The strides are those that are given if they leave no gaps, with the axes in any order. A result has them, too, but
for contiguous tensors with odd strides of axes of one element: of these eager makes the usual ones."""

Axes = tuple[int | None, ...]
"""For each dimension of an input, of which one of the results it has the size; None where it has one element."""


@dataclass(frozen=True)
class AnySize:
    """The kernel of a region for any number of elements, in the dtypes of one variant, whose sketch is `sketch`.

    `shape` is that of the results, `axes` those of each input. Each of `runs` are the axes, from the first to one
    behind the last, of inputs that are spread over the others: the kernel has two arguments for each. `layouts` are
    those in which tensors are taken.
    """

    sketch: Sketch
    layouts: Layouts
    kernel: KernelSource
    shape: Shape
    axes: tuple[Axes, ...]
    runs: tuple[tuple[int, int], ...]

    @property
    def dtypes(self) -> tuple[torch.dtype, ...]:
        """The dtype of each input."""
        return tuple(dtype for dtype, _, _ in self.sketch.key)

    key = dtypes
    """What decides which kernel is launched."""
    fixed = ()
    """What the shapes of inputs must have in common with the variant's."""

    @property
    def kernels(self) -> tuple[KernelSource, ...]:
        """Its one kernel."""
        return (self.kernel,)

    @property
    def whole(self) -> list[int]:
        """The numbers of the inputs that have the shape of the results."""
        return [n for n, axes in enumerate(self.axes) if axes == tuple(range(len(self.shape)))]

    @property
    def arguments(self) -> tuple[str, ...]:
        """The names of what the kernel's pointers point to."""
        return tuple(self.sketch.names[base] for base in self.kernel.pointers)

    @property
    def form(self) -> tuple:
        """What two have in common that can be launched by the same code. Where nothing is spread, ranks may differ."""
        whole = self.whole
        axes = tuple("all" if n in whole and not self.runs else axes for n, axes in enumerate(self.axes))
        return axes, self.runs, self.arguments


def any_size(sketch: Sketch, limits: LaunchLimits, layouts: Layouts = Layouts.DENSE) -> AnySize | None:
    """The sketch's kernel for any size; None if it is not one pointwise kernel of tensors of one shape in such a
    layout, and others that are spread over it."""
    if len(sketch.bodies) != 1 or any(returned.view is not None for returned in sketch.returned):
        return None
    body = _flat(sketch)
    if body.columns != 1 or body.rows == 1:
        return None
    tensors = [(shape, stride) for _, shape, stride in sketch.key if math.prod(shape) > 1]
    tensors += [(a.shape, a.stride) for a in sketch.allocations]
    whole = {(shape, stride) for shape, stride in tensors if math.prod(shape) == body.rows}
    if len(whole) != 1 or any(a.shape not in dict(whole) for a in sketch.allocations):
        return None
    ((shape, stride),) = whole
    in_order = all(stride == contiguous_stride(shape) for shape, stride in tensors)
    if not in_order and (layouts < Layouts.DENSE or not dense(shape, stride)):
        return None
    runs: dict[tuple[int, int], str] = {}
    indices = _indices(body, sketch)
    if indices is None:
        return None
    axes = []
    for number, (_, own, _) in enumerate(sketch.key):
        found = _axes(own, shape, indices.get(f"in_{number}", set()), runs)
        if found is None:
            return None
        axes.append(found)
    if not any(one == tuple(range(len(shape))) for one in axes) or (runs and not in_order):
        return None
    kernel = emit(body, sketch.buffers, replace(choose(body, limits), masked=True, ahead=False))
    text = kernel.text.replace(f"index < {slot(body.rows)}", "index < n")
    sizes = ["n"]
    for number, ((first, end), written) in enumerate(runs.items()):
        divided = f"index // inner_{number}" if end < len(shape) else "index"
        text = text.replace(written, f"{divided} % count_{number}" if first else divided)
        sizes += [f"inner_{number}", f"count_{number}"]
    block = "BLOCK: tl.constexpr"
    text = text.replace(block, ", ".join([*sizes, block]), 1)
    taken = Layouts.CONTIGUOUS if runs else layouts
    return AnySize(sketch, taken, replace(kernel, text=text), shape, tuple(axes), tuple(runs))


def layouts_of_all_sizes(graph: Graph, sketch: Sketch, lower: Lower) -> Layouts:
    """The layouts in which tensors of all shapes have the kernel of a region without views. Asked is the kernel for
    another shape, which must be the same: with the axes in another order first."""
    found = any_size(sketch, LaunchLimits())
    if found is None:
        return Layouts.NONE
    if len(found.shape) > len(_OTHER_SIZES):
        return Layouts.NONE
    turned = found.sketch.key[found.whole[0]][2] != contiguous_stride(found.shape)
    if found.layouts is Layouts.DENSE and _is_same(found, graph, lower, turned=not turned):
        return Layouts.DENSE
    return Layouts.CONTIGUOUS if not turned and _is_same(found, graph, lower) else Layouts.NONE


def _is_same(found: AnySize, graph: Graph, lower: Lower, turned: bool = False) -> bool:
    """Whether tensors of another shape have the same kernel. `turned`: the first of their axes is the innermost one."""
    sizes = zip(found.shape, _OTHER_SIZES, strict=False)
    other = tuple(second if size == first else first for size, (first, second) in sizes)
    shapes = [tuple(1 if axis is None else other[axis] for axis in axes) for axes in found.axes]
    inputs = [
        Input("x", "input", dtype_name(dtype), shape, _strides(shape, turned))
        for dtype, shape in zip(found.dtypes, shapes, strict=True)
    ]
    lowered = lower(graph, inputs)
    again = any_size(lowered, LaunchLimits()) if lowered is not None else None
    return again is not None and (again.kernel.text, again.form) == (found.kernel.text, found.form)


def _strides(shape: Shape, turned: bool) -> Shape:
    return contiguous_stride(shape[::-1])[::-1] if turned else contiguous_stride(shape)


def plans_source(found: Sequence[AnySize], called: Called, limits: LaunchLimits) -> str:
    """The functions that make the plan of `alike` kernels for inputs of a new shape: `of_any_size` keeps it."""
    first = found[0]
    names = [f"in_{n}" for n in range(len(first.axes))]
    leading = names[first.whole[0]]
    given = ", ".join(names)
    ranks = tuple(sorted({len(one.shape) for one in found}))
    # An axis more is as good; with fewer, such as of `x.repeat(1, 1)`, the result may have one more than its operand.
    other_ranks = f"{leading}.dim() not in {ranks}" if first.runs else f"{leading}.dim() < {ranks[0]}"
    refused = ["n == 0", f"n >= {LIMIT}", other_ranks]
    for number, (name, axes) in enumerate(zip(names, first.axes, strict=True)):
        whole = number in first.whole
        if name != leading:
            sizes = ["1" if axis is None else f"shape[{axis}]" for axis in axes]
            refused.append(f"{name}.shape != {'shape' if whole else tuple_source(sizes)}")
            refused.append(f"{name}.device != {leading}.device")
        if whole:
            refused.append(f"{name}.stride() != stride")
        elif any(axis is not None for axis in axes):
            strides = [_product(axes[n + 1 :]) for n in range(len(axes))]
            refused.append(f"{name}.stride() != {tuple_source(strides)}")
    asked = "\n        or ".join(refused)
    dtypes = ", ".join(f"{name}.dtype" for name in names)
    plans = "".join(
        f"    if dtypes == ({', '.join(map(str, one.dtypes))},):\n        return ({_plan(one, *called(one.kernel))},)\n"
        for one in {one.dtypes: one for one in found}.values()
    )
    large, middle, small = (_tuning(first.sketch, n, limits).row_block for n in _SIZES)
    block = f"{large} if n >= {_SIZES[0]} else {middle} if n >= {_SIZES[1]} else {small}"
    in_any_order = min(one.layouts for one in found) is Layouts.DENSE
    odd = f"not {leading}.is_contiguous()" if first.sketch.allocations else f"{leading}.stride() != stride"
    taken, other_order = ("dense", _OTHER_ORDER.format(leading, odd)) if in_any_order else ("contiguous", "")
    return f'''{SIZES_SOURCE}

def new_plan({given}):
    """What the wrapper launches for {taken} tensors of any such shapes; None for others."""
    n, shape, stride = 1, tuple({leading}.shape), ()
    for size in reversed(shape):
        n, stride = n * size, (n, *stride)
{other_order}    if (
        {asked}
    ):
        return None
    block = min({block}, triton.next_power_of_2(n))
    dtypes = ({dtypes},)
{plans}    return None


{of_any_size_source(len(names))}'''


def _flat(sketch: Sketch) -> KernelBody:
    return sketch.bodies[0].flat or sketch.bodies[0]


def _indices(body: KernelBody, sketch: Sketch) -> dict[str, set[sympy.Expr]] | None:
    """Where each input is read, by its name; None where an element is computed from its place, or from several, or is
    stored elsewhere."""
    values = body.values()
    loads = [value for value in values if value.op == "load"]
    buffers = [sketch.buffers[name] for name in (*(v.detail[0] for v in loads), *(s.buffer for s in body.stores))]
    if any(value.op in ("reduce", "scan", "index") for value in values) or any(value.args for value in loads):
        return None
    if any(store.index != ROW for store in body.stores) or any(buffer.offset for buffer in buffers):
        return None
    found: dict[str, set[sympy.Expr]] = {}
    for value in loads:
        found.setdefault(sketch.names[sketch.buffers[value.detail[0]].base], set()).add(value.index)
    return found


def _axes(own: Shape, shape: Shape, indices: set[sympy.Expr], runs: dict[tuple[int, int], str]) -> Axes | None:
    """Of which sizes of the results' `shape` an input of the shape `own` is, which is read at `indices`; None where it
    is read otherwise. Notes in `runs` how the index of an input that is spread is written."""
    rank = len(shape)
    if math.prod(own) == 1:
        return (None,) * len(own) if indices <= {sympy.Integer(0)} else None
    if own == shape:
        return tuple(range(rank)) if indices <= {ROW} else None
    if len(own) > rank or len(indices) != 1:
        return None
    (index,) = indices
    aligned = tuple(None if size == 1 else rank - len(own) + n for n, size in enumerate(own))
    tried = [(axis,) for axis in range(rank)] if len(own) == 1 else [aligned]
    for axes in tried:
        kept = [axis for axis in axes if axis is not None]
        first, end = kept[0], kept[-1] + 1
        inner, count = math.prod(shape[end:]), math.prod(shape[first:end])
        read = ModularIndexing(ROW, inner, count) if first else FloorDiv(ROW, inner)
        fits = all(size == 1 if axis is None else size == shape[axis] for size, axis in zip(own, axes, strict=True))
        if fits and kept == list(range(first, end)) and index == read:
            runs[first, end] = index_text(index, {ROW: math.prod(shape)}, lambda symbol: "index")
            return axes
    return None


def _tuning(sketch: Sketch, elements: int, limits: LaunchLimits) -> Tuning:
    return choose(replace(_flat(sketch), rows=elements), limits)


def _product(axes: Sequence[int | None]) -> str:
    return " * ".join(f"shape[{axis}]" for axis in axes if axis is not None) or "1"


def _plan(one: AnySize, name: str, constants: dict[str, str]) -> str:
    """The `LaunchPlan`, called as those of the variants are."""
    sizes = {"n": "n"}
    for number, (first, end) in enumerate(one.runs):
        sizes |= {f"inner_{number}": _product(range(end, len(one.shape)))}
        sizes |= {f"count_{number}": _product(range(first, end))}
    options = {**sizes, "BLOCK": "block", **constants, "num_warps": str(one.kernel.tuning.warps)}
    launched = [name, "(triton.cdiv(n, block),)", *(f"{n}={v}" for n, v in options.items())]
    return launch_plan(one.arguments, len(one.axes), [(a, "shape, stride") for a in one.sketch.allocations], launched)

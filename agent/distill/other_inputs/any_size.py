"""A plan for inputs of any size, beside those for the shapes of the variants: of regions that are one pointwise kernel.

Such a region computes each element from the elements at the same place of contiguous tensors of one shape, and from
tensors of one element. Its kernel gets the number of elements as an argument, is compiled once, and computes what the
kernels of the variants compute. Inputs of other dtypes, of several shapes or with gaps get library calls.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from agent.distill.eager.op_effects import OpEffects, TensorLayout
from agent.distill.kernels.emit import KernelSource, emit
from agent.distill.kernels.host_program import Shape, Sketch
from agent.distill.kernels.launch_configs import LaunchLimits, Tuning, choose
from agent.distill.kernels.schedule import INDEX_LIMIT, KernelBody
from agent.distill.kernels.text_template import slot
from agent.distill.kernels.value_graph import ROW
from storage.graph.record import Graph, Op, op_name
from storage.records import Input, dtype_name

_OTHER_SIZES = ((5, 17), (7, 19), (3, 23), (11, 29), (13, 31), (2, 37))
"""Two sizes for each dimension of the shape for which a region is lowered once more."""
_SAME_ELEMENTS = frozenset("to float half double bfloat16 contiguous detach dropout type_as".split())
"""Ops that may launch nothing and have all elements of their operand at the same places, whatever its shape."""
_LIMIT = INDEX_LIMIT - 2**16
"""More elements might overflow an index: the last program's is larger than the last element's."""
_SIZES = (2**18, 2**16, 2**15)
"""Numbers of elements from which on programs have other sizes; the last stands for all below."""

Lower = Callable[[Graph, Sequence[Input]], Sketch | None]
"""Lowers a graph for these inputs; None where that cannot be."""
Called = Callable[[KernelSource], tuple[str, dict[str, str]]]
"""The name of a kernel in the module, and the constants that it is launched with."""


@dataclass(frozen=True)
class AnySize:
    """The kernel of a region for any number of elements, in the dtypes of one variant, whose sketch is `sketch`.

    `whole` says of each input whether it has all elements, or one.
    """

    sketch: Sketch
    kernel: KernelSource
    whole: tuple[bool, ...]

    @property
    def dtypes(self) -> tuple[torch.dtype, ...]:
        """The dtype of each input."""
        return tuple(dtype for dtype, _, _ in self.sketch.key)

    @property
    def shape(self) -> Shape:
        """The shape of all inputs that are `whole`."""
        return self.sketch.key[self.whole.index(True)][1]

    @property
    def others(self) -> tuple[Shape, ...]:
        """The shapes of the inputs of one element."""
        return tuple(shape for (_, shape, _), whole in zip(self.sketch.key, self.whole, strict=True) if not whole)

    @property
    def arguments(self) -> tuple[str, ...]:
        """The names of what the kernel's pointers point to."""
        return tuple(self.sketch.names[base] for base in self.kernel.pointers)


def any_size(sketch: Sketch, limits: LaunchLimits) -> AnySize | None:
    """The sketch's kernel for any size; None if it is not one pointwise kernel of contiguous tensors of one shape."""
    if len(sketch.bodies) != 1 or any(returned.view is not None for returned in sketch.returned):
        return None
    body = _flat(sketch)
    if body.columns != 1 or body.rows == 1 or not _by_places(body, sketch):
        return None
    counts = [math.prod(shape) for _, shape, _ in sketch.key]
    layouts = [(shape, stride) for count, (_, shape, stride) in zip(counts, sketch.key, strict=True) if count > 1]
    layouts += [(a.shape, a.stride) for a in sketch.allocations]
    if {*counts} - {1} != {body.rows} or any(stride != contiguous(shape) for shape, stride in layouts):
        return None
    if len({shape for shape, _ in layouts}) > 1:
        return None
    kernel = emit(body, sketch.buffers, replace(choose(body, limits), masked=True))
    size, block = f"index < {slot(body.rows)}", "BLOCK: tl.constexpr"
    text = kernel.text.replace(size, "index < n").replace(block, f"n, {block}", 1)
    return AnySize(sketch, replace(kernel, text=text), tuple(count > 1 for count in counts))


def is_of_any_size(graph: Graph, known: OpEffects, sketch: Sketch, lower: Lower) -> bool:
    """Whether the region has a kernel for any size. `known` are the effects of its ops in the variant of `sketch`.

    Asked are the ops, and the kernel for another shape, which must be the same.
    """
    found = any_size(sketch, LaunchLimits())
    if found is None or not all(_keeps_places(op, known, graph.inputs + n) for n, op in enumerate(graph.ops)):
        return False
    if len(found.shape) > len(_OTHER_SIZES):
        return False
    sizes = zip(found.shape, _OTHER_SIZES, strict=False)
    other = tuple(second if size == first else first for size, (first, second) in sizes)
    inputs = [
        Input("x", "input", dtype_name(dtype), other, contiguous(other))
        if whole
        else Input("x", "input", dtype_name(dtype), shape, stride)
        for (dtype, shape, stride), whole in zip(sketch.key, found.whole, strict=True)
    ]
    lowered = lower(graph, inputs)
    again = any_size(lowered, LaunchLimits()) if lowered is not None else None
    return again is not None and (again.kernel.text, again.arguments) == (found.kernel.text, found.arguments)


def alike(found: Sequence[AnySize]) -> list[AnySize]:
    """The same, if all differ in their dtypes and shapes alone; else none."""
    by_dtypes = {one.dtypes: one for one in found}
    same = all(one.kernel.text == by_dtypes[one.dtypes].kernel.text for one in found)
    forms = {(one.whole, one.others, one.arguments) for one in found}
    return list(found) if same and len(forms) == 1 else []


def plans_source(found: Sequence[AnySize], called: Called, limits: LaunchLimits) -> str:
    """The functions that make the plan of `alike` kernels for inputs of a new shape: `of_any_size` keeps it."""
    first = found[0]
    names = [f"in_{n}" for n in range(len(first.whole))]
    sized = [name for name, whole in zip(names, first.whole, strict=True) if whole]
    others = [name for name, whole in zip(names, first.whole, strict=True) if not whole]
    given = ", ".join(names)
    key = ", ".join(f"{name}.dtype, {name}.shape, {name}.stride(), {name}.device" for name in names)
    ranks = tuple(sorted({len(one.shape) for one in found}))
    refused = ["n == 0", f"n >= {_LIMIT}", f"{sized[0]}.dim() not in {ranks}"]
    refused += [f"{name}.shape != {sized[0]}.shape" for name in sized[1:]]
    refused += [f"{name}.stride() != stride" for name in sized]
    refused += [f"{name}.shape != {shape}" for name, shape in zip(others, first.others, strict=True)]
    refused += [f"{name}.device != {sized[0]}.device" for name in names if name != sized[0]]
    asked = "\n        or ".join(refused)
    dtypes = ", ".join(f"{name}.dtype" for name in names)
    plans = "".join(
        f"    if dtypes == ({', '.join(map(str, one.dtypes))},):\n        return ({_plan(one, *called(one.kernel))},)\n"
        for one in {one.dtypes: one for one in found}.values()
    )
    large, middle, small = (_tuning(first.sketch, n, limits).row_block for n in _SIZES)
    block = f"{large} if n >= {_SIZES[0]} else {middle} if n >= {_SIZES[1]} else {small}"
    return f'''SIZES = {{}}  # dtype, shape, stride and device of each input -> what `new_plan` says


def new_plan({given}):
    """What the wrapper launches for contiguous tensors of any one shape; None for others."""
    n, shape, stride = 1, tuple({sized[0]}.shape), ()
    for size in reversed(shape):
        n, stride = n * size, (n, *stride)
    if (
        {asked}
    ):
        return None
    block = min({block}, triton.next_power_of_2(n))
    dtypes = ({dtypes},)
{plans}    return None


def of_any_size({given}):
    key = ({key})
    if key not in SIZES:
        if len(SIZES) == 64:
            SIZES.clear()
        SIZES[key] = new_plan({given})
    return SIZES[key]
'''


def contiguous(shape: Sequence[int]) -> Shape:
    """The strides that a fresh tensor of this shape has."""
    return tuple(math.prod(shape[n + 1 :]) for n in range(len(shape)))


def _flat(sketch: Sketch) -> KernelBody:
    return sketch.bodies[0].flat or sketch.bodies[0]


def _by_places(body: KernelBody, sketch: Sketch) -> bool:
    """Whether each element that is stored is computed from those at the same place, and from the first of others."""
    values = body.values()
    loads = [value for value in values if value.op == "load"]
    buffers = [*(value.detail[0] for value in loads), *(store.buffer for store in body.stores)]
    return (
        not any(value.op in ("reduce", "scan", "index") for value in values)
        and not any(value.args for value in loads)
        and all(value.index in (ROW, 0) for value in loads)
        and all(store.index == ROW for store in body.stores)
        and all(sketch.buffers[name].offset == 0 for name in buffers)
    )


def _keeps_places(op: Op, known: OpEffects, number: int) -> bool:
    """Whether an op is no view: a view may have all elements of one shape, and a part of those of another."""
    launches = known.launches[number - len(known.values) + len(known.launches)]
    return isinstance(known.values[number], TensorLayout) and (
        launches > 0 or op_name(op).rpartition(".")[2] in _SAME_ELEMENTS
    )


def _tuning(sketch: Sketch, elements: int, limits: LaunchLimits) -> Tuning:
    return choose(replace(_flat(sketch), rows=elements), limits)


def _plan(one: AnySize, name: str, constants: dict[str, str]) -> str:
    """The `LaunchPlan`, called as those of the variants are."""
    inputs = [f"in_{n}" for n in range(len(one.whole)) if f"in_{n}" in one.arguments]
    numbers = {name: number for number, name in enumerate([*inputs, *(a.name for a in one.sketch.allocations)])}
    options = {"n": "n", "BLOCK": "block", **constants, "num_warps": str(one.kernel.tuning.warps)}
    fixed = ", ".join([name, "(triton.cdiv(n, block),)", *(f"{n}={v}" for n, v in options.items())])
    launch = f"(Launch({fixed}, enable_fp_fusion=False), {tuple(numbers[name] for name in one.arguments)})"
    made = [f"(shape, stride, {a.dtype})" for a in one.sketch.allocations]
    return f"LaunchPlan({', '.join([str(len(inputs)), *made, launch])})"

"""What the plans for inputs of any size have in common, whether a kernel goes over elements or over rows.

A pass keeps such a plan by the dtype, shape, stride and device of each input. `new_plan`, which the kind of kernel
writes, makes it.
"""

from collections.abc import Callable, Sequence
from enum import IntEnum

from agent.distill.eager.op_effects import OpEffects, TensorLayout
from agent.distill.kernels.emit import KernelSource
from agent.distill.kernels.host_program import Allocation, Sketch
from agent.distill.kernels.schedule import INDEX_LIMIT
from storage.graph.record import Graph, Op, op_name
from storage.records import Input

LIMIT = INDEX_LIMIT - 2**16
"""More elements might overflow an index: the last program's is larger than the last element's."""
_SAME_ELEMENTS = frozenset("to float half double bfloat16 contiguous detach dropout type_as unsqueeze".split())
"""Ops that may launch nothing and have all elements of their operand at the same places, whatever its shape."""

Lower = Callable[[Graph, Sequence[Input]], Sketch | None]
"""Lowers a graph for these inputs; None where that cannot be."""
Called = Callable[[KernelSource], tuple[str, dict[str, str]]]
"""The name of a kernel in the module, and the constants that it is launched with."""


class Layouts(IntEnum):
    """In which layouts tensors of all shapes have a region's kernel."""

    NONE = 0
    CONTIGUOUS = 1
    DENSE = 2
    """With their axes in any order in memory, the same for all, and no gaps."""


def keep_places(graph: Graph, known: OpEffects) -> bool:
    """Whether no op is a view: a view may have all elements of one shape, and a part of those of another."""
    return all(_keeps_places(op, known, graph.inputs + n) for n, op in enumerate(graph.ops))


def _keeps_places(op: Op, known: OpEffects, number: int) -> bool:
    launches = known.launches[number - len(known.values) + len(known.launches)]
    kept = op_name(op).rpartition(".")[2] in _SAME_ELEMENTS or _adds_axes(op)
    return isinstance(known.values[number], TensorLayout) and (launches > 0 or kept)


def _adds_axes(op: Op) -> bool:
    """Whether an op gives a tensor axes of one element by an index, as `x[:, None]` does."""
    index = op.args[1] if op.target == "operator.getitem" else 0
    return all(
        n is None or n is Ellipsis or n == slice(None) for n in (index if isinstance(index, tuple) else (index,))
    )


def launch_plan(
    arguments: Sequence[str], inputs: int, made: Sequence[tuple[Allocation, str]], launched: Sequence[str]
) -> str:
    """The `LaunchPlan` of one kernel, called as those of the variants are, as source.

    `arguments` are the names of what the kernel's pointers point to, `inputs` is how many inputs the region has, `made`
    are what it allocates and the shape and stride of each, and `launched` is what `Launch` gets.
    """
    given = [f"in_{n}" for n in range(inputs) if f"in_{n}" in arguments] or ["in_0"]
    numbers = {name: number for number, name in enumerate([*given, *(one.name for one, _ in made)])}
    launch = f"(Launch({', '.join(launched)}, enable_fp_fusion=False), {tuple(numbers[name] for name in arguments)})"
    fresh = [f"({layout}, {one.dtype})" for one, layout in made]
    return f"LaunchPlan({', '.join([str(len(given)), *fresh, launch])})"


def of_any_size_source(inputs: int) -> str:
    """The function that keeps what `new_plan` says of inputs, and the dict that it keeps it in."""
    names = [f"in_{n}" for n in range(inputs)]
    given = ", ".join(names)
    key = ", ".join(f"{name}.dtype, {name}.shape, {name}.stride(), {name}.device" for name in names)
    return f"""def of_any_size({given}):
    key = ({key})
    if key not in SIZES:
        if len(SIZES) == 64:
            SIZES.clear()
        SIZES[key] = new_plan({given})
    return SIZES[key]
"""


SIZES_SOURCE = "SIZES = {}  # dtype, shape, stride and device of each input -> what `new_plan` says\n"
"""Where `of_any_size` keeps plans, as source."""


def tuple_source(parts: Sequence[str]) -> str:
    """A tuple of these as source."""
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"

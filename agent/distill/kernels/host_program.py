"""One region of one variant as a host program: what to allocate, which kernels to launch, what to return."""

import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch._inductor import config as inductor_config
from torch._inductor import ir

from agent.distill.eager.op_effects import OpEffects, TensorLayout, find_effects
from agent.distill.eager.sum_order import SumOrder, order_of
from agent.distill.kernels.emit import KernelSource, emit
from agent.distill.kernels.formulas.decompositions import AS_EAGER
from agent.distill.kernels.formulas.small_products import SMALL_PRODUCTS, FlatLinears, any_order
from agent.distill.kernels.index_expressions import Unsupported
from agent.distill.kernels.launch_configs import LaunchLimits, Tuning, choose
from agent.distill.kernels.schedule import INDEX_LIMIT, Buffer, KernelBody, kernel_bodies, region_buffers
from extraction.kernels.lowering import Lowered, lowered
from storage.graph.effects import base_name
from storage.graph.record import Graph
from storage.records import Input, dtype_of

_LOWERING = {
    # eager rounds after every op and has no padded strides
    "emulate_precision_casts": True,
    "comprehensive_padding": False,
    "triton.mix_order_reduction": False,
    # the conversions of half types count as operations: what is one kernel without them is to be one with them
    "realize_opcount_threshold": 60,
}
"""TorchInductor's options while a region is lowered."""
_FEW_KERNELS = {
    # launches are what costs: few kernels, even if some of their accesses are strided
    "force_pointwise_cat": True,
    "split_reductions": False,
    "unroll_reductions_threshold": 3,  # two terms have one order
    "triton.tiling_prevents_pointwise_fusion": False,
    "triton.tiling_prevents_reduction_fusion": False,
}
"""Further options, unless the schedule is to be TorchInductor's own."""


_UNDECLARED_VIEWS = frozenset(
    "type_as atleast_1d atleast_2d atleast_3d broadcast_tensors meshgrid einsum cartesian_prod".split()
)
"""Ops that may return their input or a view of it, though their schemas declare no alias."""

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Allocation:
    """A buffer that the program allocates."""

    name: str
    shape: Shape
    stride: Shape
    dtype: torch.dtype


@dataclass(frozen=True)
class KernelLaunch:
    """A kernel, and for each of its pointers the name of what it points to, and how many elements it touches there at
    most."""

    kernel: KernelSource
    arguments: tuple[str, ...]
    touched: tuple[int, ...]


@dataclass(frozen=True)
class Returned:
    """A value that the program returns: `name` itself, or a `view` (shape, stride, offset) of it.

    The offset counts from the start of the storage. If `relative`, it counts from the first element of `name`.
    """

    name: str
    view: tuple[Shape, Shape, int] | None = None
    relative: bool = False


@dataclass(frozen=True)
class Program:
    """What the host does for one region of one variant.

    `key` is the dtype, shape and stride of each input, on which everything here relies. Inputs are called `in_0…`.
    `replaced` is how many launches eager needs for the same.
    """

    key: tuple[tuple[torch.dtype, Shape, Shape], ...]
    allocations: tuple[Allocation, ...]
    launches: tuple[KernelLaunch, ...]
    returned: tuple[Returned, ...]
    replaced: int

    @property
    def saving(self) -> int:
        """Launches that the program saves."""
        return self.replaced - len(self.launches)


@dataclass(frozen=True, eq=False)
class Sketch:
    """A program whose kernels have no launch configurations yet. `names` says what each buffer is called in it."""

    key: tuple[tuple[torch.dtype, Shape, Shape], ...]
    allocations: tuple[Allocation, ...]
    returned: tuple[Returned, ...]
    replaced: int
    bodies: tuple[KernelBody, ...]
    buffers: Mapping[str, Buffer]
    names: Mapping[str, str]

    def program(self, limits: LaunchLimits) -> Program:
        """The program with configurations within these limits."""
        launches = (self.launch(body, emit(body, self.buffers, tuning)) for body, tuning in self.tuned(limits))
        return Program(self.key, self.allocations, tuple(launches), self.returned, self.replaced)

    def tuned(self, limits: LaunchLimits) -> list[tuple[KernelBody, Tuning]]:
        """Its kernels with configurations within these limits."""
        bodies = (b.flat if b.flat is not None and not limits.tiles else b for b in self.bodies)
        return [(body, choose(body, limits)) for body in bodies]

    def launch(self, body: KernelBody, kernel: KernelSource) -> KernelLaunch:
        """The launch of a kernel that has been written of this body."""
        touched = tuple(body.touched(self.buffers, base) for base in kernel.pointers)
        return KernelLaunch(kernel, tuple(self.names[base] for base in kernel.pointers), touched)


def sketch(
    graph: Graph, inputs: Sequence[Input], own_schedule: bool = False, on_gpu: bool = False, products: bool = False
) -> Sketch:
    """Lowers a region, and makes sure that its kernels can be written as source.

    It has as few kernels as can be, or with `own_schedule` those that TorchInductor makes on a GPU. What is fused is
    decided for CPU tensors, or with `on_gpu` for those of a GPU, where loops are put in another order to fuse them.
    With `products` kernels compute small products of matrices, in no order of eager's.

    Raises Unsupported, LoweringError or OpEffectsError if generated kernels alone cannot compute the region.
    """
    known = find_effects(graph, inputs)
    _refuse_writes_to_undeclared_views(graph, known)
    if any(math.prod(i.shape) >= INDEX_LIMIT for i in inputs):
        raise Unsupported("tensors of 2^31 elements or more")
    options = _LOWERING if own_schedule else _LOWERING | _FEW_KERNELS
    device = "reference" if own_schedule or on_gpu else "cpu"
    decompositions = AS_EAGER | (SMALL_PRODUCTS if products else {})
    lowering = lowered(graph, inputs, device, decompositions=decompositions, short_indices=True)
    with inductor_config.patch(options), FlatLinears() if products else nullcontext(), lowering as result:
        made = _ProgramBuilder(graph, known, result, products).build()
    made.program(LaunchLimits())  # raises Unsupported if a kernel cannot be written
    return made


def _refuse_writes_to_undeclared_views(graph: Graph, known: OpEffects) -> None:
    """Raises Unsupported where eager writes to memory that one of `_UNDECLARED_VIEWS` reads: functionalization takes
    its result for new memory, so that the write would be missing in one of both."""
    written = frozenset().union(*known.writes)
    for number, op in enumerate(graph.ops):
        if base_name(op) in _UNDECLARED_VIEWS and not written.isdisjoint(known.reads[number]):
            raise Unsupported(f"a write to memory that the result of {base_name(op)} may share")


class _ProgramBuilder:
    def __init__(self, graph: Graph, known: OpEffects, result: Lowered, products: bool) -> None:
        self.graph, self.known, self.result, self.products = graph, known, result, products
        self.inputs: list[TensorLayout] = list(known.values[: graph.inputs])
        self.names = {name: f"in_{n}" for n, name in enumerate(result.lowering.graph_input_names)}
        self.buffers = region_buffers(result)
        self.allocations: list[Allocation] = []

    def _of_product(self, op: int) -> list[SumOrder]:
        """In what order a kernel adds what an op multiplies, if that is a product of matrices."""
        length = self.known.products_added(op)
        return [any_order(length)] if length else []

    def build(self) -> Sketch:
        written = self._written_inputs()
        outputs = [self.known.values[ref.index] for ref in self.graph.output]
        made = [
            self._made(output, node) for output, node in zip(outputs, self.result.lowering.graph_outputs, strict=True)
        ]
        needed = {buffer.base for buffer in made if buffer} | {self._base_of_input(n) for n in written}
        orders = [[order_of(addition) for addition in additions] for additions in self.known.additions]
        if self.products:
            orders = [order or self._of_product(number) for number, order in enumerate(orders)]
        bodies = kernel_bodies(self.result, self.buffers, needed, orders)
        returned = tuple(
            self._return(output, buffer) if buffer else self._alias(output)
            for output, buffer in zip(outputs, made, strict=True)
        )
        for base in dict.fromkeys(base for body in bodies for base in body.bases(self.buffers)):
            self._name(base)
        key = tuple((dtype_of(i.dtype), i.shape, i.stride) for i in self.inputs)
        replaced = sum(self.known.launches)
        allocations = tuple(self.allocations)
        return Sketch(key, allocations, returned, replaced, tuple(bodies), self.buffers, self.names)

    def _base_of_input(self, number: int) -> str:
        return self.result.lowering.graph_input_names[number]

    def _written_inputs(self) -> list[int]:
        """Inputs that eager writes to in place. Raises Unsupported where another input shares their memory."""
        writes = frozenset().union(*self.known.writes)
        numbers = [n for n, layout in enumerate(self.inputs) if layout.storage in writes]
        storages = [layout.storage for layout in self.inputs]
        if any(storages.count(self.inputs[n].storage) > 1 for n in numbers):
            raise Unsupported("writes in place to one of several inputs that share memory")
        return numbers

    def _made(self, output: TensorLayout, node: Any) -> Buffer | None:
        """The buffer that holds an output; None if eager returns an input or a view of one."""
        if any(layout.storage == output.storage for layout in self.inputs):
            return None
        layout = node.maybe_get_layout() if isinstance(node, ir.IRNode) else None
        if layout is None:
            raise Unsupported(f"an output that is {type(node).__name__}")
        buffer = self.buffers[node.get_name()]
        if buffer.base in self.names:
            raise Unsupported("TorchInductor returns an input where eager returns a copy")
        if layout.dtype != dtype_of(output.dtype):
            raise Unsupported(f"TorchInductor gives an output {layout.dtype}, eager {output.dtype}")
        shape, stride = (tuple(int(n) for n in numbers) for numbers in (layout.size, layout.stride))
        if shape != output.shape or _essential(shape, stride) != _essential(output.shape, output.stride):
            raise Unsupported(f"TorchInductor lays an output out with strides {stride}, eager with {output.stride}")
        return Buffer(buffer.base, buffer.offset + int(layout.offset), buffer.dtype)

    def _alias(self, output: TensorLayout) -> Returned:
        number = next(n for n, layout in enumerate(self.inputs) if layout.storage == output.storage)
        source = self.inputs[number]
        offset = output.offset - source.offset
        if (output.dtype, output.shape, output.stride, offset) == (source.dtype, source.shape, source.stride, 0):
            return Returned(f"in_{number}")
        return Returned(f"in_{number}", (output.shape, output.stride, offset), relative=True)

    def _return(self, output: TensorLayout, buffer: Buffer) -> Returned:
        whole = buffer.offset == 0 and _length(output.shape, output.stride) == self._storage_length(buffer.base)
        if buffer.base not in self.names and whole and dense(output.shape, output.stride):
            self._allocate(buffer.base, f"out_{len(self.allocations)}", output.shape, output.stride)
        name = self._name(buffer.base)
        allocation = next(a for a in self.allocations if a.name == name)
        if buffer.offset == 0 and (allocation.shape, allocation.stride) == (output.shape, output.stride):
            return Returned(name)
        return Returned(name, (output.shape, output.stride, buffer.offset))

    def _layout(self, base: str) -> tuple[Shape, Shape]:
        layout = self.result.lowering.get_buffer(base).get_layout()
        return tuple(int(n) for n in layout.size), tuple(int(n) for n in layout.stride)

    def _storage_length(self, base: str) -> int:
        return _length(*self._layout(base))

    def _allocate(self, base: str, name: str, shape: Shape, stride: Shape) -> None:
        self.names[base] = name
        self.allocations.append(Allocation(name, shape, stride, self.buffers[base].dtype))

    def _name(self, base: str) -> str:
        if base not in self.names:
            self._allocate(base, f"buffer_{len(self.allocations)}", *self._layout(base))
        return self.names[base]


def _essential(shape: Shape, stride: Shape) -> list[int]:
    """The strides of dimensions with more than one element: no others matter."""
    return [s for n, s in zip(shape, stride, strict=True) if n > 1]


def _length(shape: Shape, stride: Shape) -> int:
    return 1 + sum((n - 1) * s for n, s in zip(shape, stride, strict=True))


def dense(shape: Shape, stride: Shape) -> bool:
    """Whether the elements of such a tensor fill its memory without gaps and without overlapping."""
    return _length(shape, stride) == math.prod(shape) and all(s > 0 for s in _essential(shape, stride))

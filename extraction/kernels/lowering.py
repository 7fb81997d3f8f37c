"""Which ops share a kernel: one lowering of a graph through TorchInductor, up to its scheduler, no code generated.

The graph is traced to ATen on fake tensors (every ATen node remembers the op it came from), lowered to TorchInductor's
loop IR and scheduled by the Triton backend's fusion rules. Nothing runs, and no GPU is needed. The device is one of

- "reference": a GPU of fixed properties (`extraction.kernels.reference_gpu`). The answer is the same on every machine.
- "cuda": the GPU of this machine, whose number of multiprocessors decides which reductions are split.
- "cpu": CPU tensors under the Triton backend. It differs from a GPU: a convolution's bias belongs to the library call
  and not to a generated kernel behind it; `cat` writes part by part instead of in one kernel; reductions are split by
  the number of this machine's CPU cores; attention is another library call, with other wishes for its operands' layout.

All three leave out what `torch.compile` does to the ATen graph before it is lowered (patterns such as an addition
behind a matrix product that becomes `addmm`), and its change of convolutions to channels-last.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any
from unittest.mock import patch

import torch
from sympy import Expr, Symbol
from sympy.functions.elementary.miscellaneous import MinMaxBase
from torch import fx
from torch._inductor import config as inductor_config
from torch._inductor import graph as inductor_graph
from torch._inductor import sizevars
from torch._inductor.debug import DebugContext
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.fx_passes.post_grad import view_to_reshape
from torch._inductor.graph import GraphLowering
from torch._inductor.index_propagation import IndexPropagation
from torch._inductor.ir import MultiOutput, View
from torch._inductor.lowering import lowerings, make_fallback
from torch._inductor.scheduler import BaseSchedulerNode, ExternKernelSchedulerNode, NopKernelSchedulerNode, Scheduler
from torch._inductor.sizevars import SizeVarAllocator
from torch._inductor.virtualized import V
from torch._subclasses import FakeTensorMode
from torch.fx import _symbolic_trace
from torch.fx._lazy_graph_module import _use_lazy_graph_module
from torch.fx.experimental.proxy_tensor import get_proxy_mode, make_fx
from torch.utils._sympy.functions import FloorDiv, ModularIndexing

from extraction.analysis.prepared import prepare
from extraction.analysis.propagate import Invalid, Propagated, propagate
from extraction.kernels import reference_gpu
from extraction.kernels.computed_numbers import propagate_sympy
from extraction.kernels.digits import join_dimensions
from extraction.kernels.repeats import shortened
from extraction.kernels.reshapes import dynamic_reshape_indexer
from extraction.kernels.shared_kernels import CAT, early, is_view, pointwise_ops, with_shared_results
from storage.errors import PassNetError, in_one_line
from storage.graph.as_fx import to_fx
from storage.graph.record import Graph
from storage.records import Input, TracedGraph, dtype_of

Decompositions = Mapping[torch._ops.OperatorBase, Callable[..., Any]]
"""ATen overload → a function that computes the same of simpler ops."""

_DECIDE_DECOMPOSITIONS = (
    "fallback_random", "fallback_embedding_bag_byte_unpack", "emulate_precision_casts", "numerics",
)  # fmt: skip
"""Settings of TorchInductor that `select_decomp_table` reads; torch 2.11 has no `numerics`."""


class LoweringError(PassNetError):
    """TorchInductor cannot lower this graph; the message carries its reason."""


@dataclass(frozen=True)
class Kernel:
    """One scheduled kernel: `kind` is "generated" (Triton), "extern" (a library call) or "nop" (planning).

    `ops` are the numbers of the ops whose computation it contains, recomputed ones included, and of those through whose
    views it reads; `node` is TorchInductor's scheduler node.
    """

    kind: str
    ops: tuple[int, ...]
    node: BaseSchedulerNode


@dataclass(frozen=True)
class Lowered:
    """Kernels in execution order, with what they were scheduled from; `device` says for which device, in words."""

    kernels: tuple[Kernel, ...]
    lowering: GraphLowering
    aten: fx.GraphModule
    device: str = ""


@contextmanager
def lowered(
    graph: Graph,
    inputs: Sequence[Input],
    device: str = "cpu",
    decompositions: Decompositions | None = None,
    short_indices: bool = False,
) -> Iterator[Lowered]:
    """Yields the `Lowered` form of a graph; TorchInductor's context is alive inside the `with` block only.

    `device` is "cpu", "cuda" or "reference", see above. `decompositions` are used in place of TorchInductor's own.
    With `short_indices` reshapes are other arithmetic than TorchInductor's (`extraction.kernels.reshapes`): it takes a
    fraction of the time where they follow one another, and more ops may share a kernel.

    Raises LoweringError where TorchInductor cannot trace or lower the graph, or "cuda" is wanted and not there.
    """
    words = _in_words(device)
    with ExitStack() as stack:
        if device == "reference":
            stack.enter_context(reference_gpu.pretended())
        stack.enter_context(torch.no_grad())
        stack.enter_context(_use_lazy_graph_module(True))  # graphs are lowered, their Python source is never run
        stack.enter_context(patch.object(MinMaxBase, "_is_connected", classmethod(_is_connected)))
        stack.enter_context(patch.object(SizeVarAllocator, "_simplify_with_ranges", _simplified))
        stack.enter_context(patch.object(sizevars, "join_dimensions", join_dimensions))
        stack.enter_context(patch.object(IndexPropagation, "propagate_sympy", propagate_sympy))
        if short_indices:
            stack.enter_context(patch.object(View, "dynamic_reshape_indexer", classmethod(dynamic_reshape_indexer)))
        # Where the environment has `CI`, TorchInductor refuses to call a library for an op that has a decomposition.
        stack.enter_context(patch.object(inductor_graph, "make_fallback", partial(make_fallback, warn=False)))
        stack.enter_context(inductor_config.patch(cpu_backend="triton", layout_optimization=False))
        fake_mode = FakeTensorMode(allow_non_fake_inputs=True)
        try:
            aten, arguments = _to_aten(
                graph, inputs, fake_mode, device, {**_decompositions(), **(decompositions or {})}
            )
            stack.enter_context(V.set_fake_mode(fake_mode))
            lowering = GraphLowering(aten, is_inference=True)
            stack.enter_context(V.set_graph_handler(lowering))
            stack.enter_context(V.set_debug_handler(DebugContext()))
            lowering.run(*arguments)
            lowering._update_scheduler()
        except Exception as error:  # any op of any model may be missing in TorchInductor; its errors share no type
            raise LoweringError(f"TorchInductor cannot lower the graph: {in_one_line(error, None)}") from error
        kernels = tuple(_kernel(node) for node in lowering.scheduler.nodes)
        yield Lowered(kernels, lowering, aten, words)


@contextmanager
def for_reference_gpu(module: fx.GraphModule) -> Iterator[None]:
    """TorchInductor compiles the module, whose device is cuda:0, for the reference GPU inside the `with` block.

    Functions that need a real device are replaced in the module, as they are where a graph is lowered for that GPU.
    """
    for node in module.graph.nodes:
        if node.op == "call_function":
            node.target = reference_gpu.INSTEAD.get(node.target, node.target)
    module.recompile()
    with reference_gpu.pretended():
        yield


def kernels_by_op(
    graph: Graph,
    inputs: Sequence[Input],
    device: str = "reference",
    propagated: Propagated | Invalid | None = None,
) -> list[frozenset[int]]:
    """For each op, the kernels that exist because of it: empty for views and other free ops.

    A library call belongs to its own op alone. A generated kernel belongs to its last op and to every op of which it is
    the first to compute something. A kernel does not belong to an op that it computes again for a consumer, nor to an
    op that it only reads through a view.

    A range of ops may need less than its share of a whole graph's schedule; `extraction.kernels.shared_kernels` says
    where, and what is done about it. Of equal blocks in a row a few are lowered (`extraction.kernels.repeats`).
    `propagated` is what `propagate` says of the graph, where the caller has it.

    Raises LoweringError where TorchInductor cannot lower the graph.
    """
    propagated = propagated or propagate(graph, inputs)
    short = None if isinstance(propagated, Invalid) else shortened(graph, inputs, propagated)
    if short is not None:
        with suppress(LoweringError):  # then the whole graph has the message
            whole = short.whole(_scheduled(short.graph, short.inputs, device))
            if whole is not None:
                return whole
    return _scheduled(graph, inputs, device, propagated)


def _scheduled(
    graph: Graph, inputs: Sequence[Input], device: str, propagated: Propagated | Invalid | None = None
) -> list[frozenset[int]]:
    """As `kernels_by_op`, of the schedule of the whole graph."""
    prepared = prepare(TracedGraph("", 0, graph, tuple(inputs)), propagated)
    if isinstance(prepared, Invalid):
        raise LoweringError(f"op {prepared.op} does not accept its arguments: {prepared.message}")
    needs: list[set[int]] = [set() for _ in graph.ops]
    # Loops are merged for code that is not generated here, after it is settled what is fused.
    unmerged = patch.object(Scheduler, "merge_loops", lambda _: None)
    with patch.dict(lowerings, CAT), unmerged, lowered(with_shared_results(prepared), inputs, device) as result:
        kernels = [(n, kernel) for n, kernel in enumerate(result.kernels) if kernel.kind != "nop" and kernel.ops]
        called = {max(kernel.ops): number for number, kernel in kernels if kernel.kind == "extern"}
        seen: set[fx.Node] = set()
        for number, kernel in kernels:
            if kernel.kind == "extern":
                needs[max(kernel.ops)].add(number)
                continue
            # A copy that a library call wants of its operand is fused into the operand's kernel under the call's name.
            # What comes behind the call, such as a bias, is the call's own op.
            origins = [origin for origin in _origins(kernel.node) if not is_view(origin)]
            own = [origin for origin in origins if called.get(origin.meta["op"], -1) < number]
            ops = {origin.meta["op"] for origin in own or origins} or kernel.ops
            needs[max(ops)].add(number)
            for origin in own:
                if origin not in seen:
                    needs[origin.meta["op"]].add(number)
            seen.update(own)
        generated = {number for number, kernel in kernels if kernel.kind == "generated"}
        return early(prepared, [frozenset(kernels) for kernels in needs], generated, pointwise_ops(result.aten))


@lru_cache(maxsize=65_536)
def _is_connected(function: type, x: Expr, y: Expr) -> Any:
    """sympy's answer whether a minimum or maximum of two expressions is one of them, remembered.

    In a graph that pools, the scheduler asks 70 times for each pair. That was half of the time of lowering it.
    """
    return _SYMPY_IS_CONNECTED(function, x, y)


_SYMPY_IS_CONNECTED = MinMaxBase._is_connected.__func__


def _simplified(sizes: SizeVarAllocator, expr: Expr, ranges: dict[Symbol, Expr]) -> Expr:
    """TorchInductor's simpler form of an index within the ranges of its variables, remembered over graphs.

    Nothing but a division is made simpler; TorchInductor prepares for one where there is none.
    """
    if sizes.replacements or sizes.shape_env.var_to_range:  # what it knows of sizes without numbers counts, too
        return _INDUCTOR_SIMPLIFIED(sizes, expr, ranges)
    simple = sizes.simplify(expr)
    if not simple.has(FloorDiv, ModularIndexing):
        return simple
    return _simplified_division(expr, tuple(ranges.items()))


@lru_cache(maxsize=65_536)
def _simplified_division(expr: Expr, ranges: tuple[tuple[Symbol, Expr], ...]) -> Expr:
    return _INDUCTOR_SIMPLIFIED(SizeVarAllocator(), expr, dict(ranges))


_INDUCTOR_SIMPLIFIED = SizeVarAllocator._simplify_with_ranges


def _decompositions() -> Decompositions:
    """TorchInductor's own under its present settings."""
    return _decompositions_under(tuple(getattr(inductor_config, name, None) for name in _DECIDE_DECOMPOSITIONS))


@lru_cache
def _decompositions_under(settings: tuple[Any, ...]) -> Decompositions:
    """Made once for each set of settings: where eager's numerics are asked for, TorchInductor goes through all of its
    thousand decompositions, a fortieth of a small graph's lowering."""
    return select_decomp_table()


def _in_words(device: str) -> str:
    if device == "cpu":
        return "CPU tensors under Triton's rules"
    if device == "reference":
        return reference_gpu.NAME
    if device != "cuda":
        raise ValueError(f"{device!r} is not a device to lower for: cpu, cuda or reference")
    if not torch.cuda.is_available():
        raise LoweringError('there is no GPU to lower for; the device "reference" needs none')
    return torch.cuda.get_device_name()


def _to_aten(
    graph: Graph, inputs: Sequence[Input], fake_mode: FakeTensorMode, device: str, table: Decompositions
) -> tuple[fx.GraphModule, list[torch.Tensor]]:
    place = "cpu" if device == "cpu" else "cuda:0"
    interpreter = _TaggingInterpreter(torch.nn.Module(), graph=to_fx(graph, place))
    interpreter.pretends = device == "reference"
    with fake_mode:
        arguments = [torch.empty_strided(i.shape, i.stride, dtype=dtype_of(i.dtype), device=place) for i in inputs]
        function = torch.func.functionalize(interpreter.run)
        # No module is called in here. torch.fx replaces methods of all modules for the time of a trace, after which
        # Python looks up anew what it knew of a thousand classes: a twentieth of a small graph's lowering.
        with patch.object(_symbolic_trace._Patcher, "patch_method", lambda *_, **__: None):
            aten = make_fx(function, decomposition_table=table)(*arguments)
    aten.graph.eliminate_dead_code()
    view_to_reshape(aten)
    return aten, arguments


class _TaggingInterpreter(fx.Interpreter):
    """Marks each ATen node that is traced while op number n runs with `meta["op"] = n`."""

    pretends = False

    def run(self, *args: Any) -> Any:
        self.op = -1
        return super().run(*args)

    def call_function(self, target: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        instead = reference_gpu.INSTEAD.get(target, target) if self.pretends else target
        return super().call_function(instead, args, kwargs)

    def run_node(self, node: fx.Node) -> Any:
        if node.op not in ("call_function", "call_method"):
            return super().run_node(node)
        self.op += 1
        traced = get_proxy_mode().tracer.graph
        before = len(traced.nodes)
        result = super().run_node(node)
        newest = iter(reversed(traced.nodes))
        for _ in range(len(traced.nodes) - before):
            next(newest).meta["op"] = self.op
        return result


def _kernel(node: BaseSchedulerNode) -> Kernel:
    if isinstance(node, NopKernelSchedulerNode) or isinstance(node.node, MultiOutput):
        kind = "nop"
    elif isinstance(node, ExternKernelSchedulerNode):
        kind = "extern"
    else:
        kind = "generated"
    return Kernel(kind, tuple(sorted({origin.meta["op"] for origin in _origins(node)})), node)


def _origins(node: BaseSchedulerNode) -> list[fx.Node]:
    """The ATen nodes that a scheduled kernel computes or reads through, as far as they come from an op."""
    origins = (origin for part in node.get_nodes() if part.node is not None for origin in part.node.get_origins())
    return [origin for origin in dict.fromkeys(origins) if "op" in origin.meta]

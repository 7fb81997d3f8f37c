"""Which ops share a kernel: one lowering of a graph through TorchInductor, up to its scheduler, no code generated.

The graph is traced to ATen on fake CPU tensors (every ATen node remembers the op it came from), lowered to
TorchInductor's loop IR and scheduled by the Triton backend's fusion rules. No GPU is needed, and nothing runs.
"""

from collections.abc import Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._inductor import config as inductor_config
from torch._inductor.debug import DebugContext
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.fx_passes.post_grad import view_to_reshape
from torch._inductor.graph import GraphLowering
from torch._inductor.scheduler import BaseSchedulerNode, ExternKernelSchedulerNode, NopKernelSchedulerNode
from torch._inductor.virtualized import V
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import get_proxy_mode, make_fx

from storage.errors import PassNetError
from storage.graph import Graph
from storage.graph_fx import to_module
from storage.records import Input, dtype_of


class LoweringError(PassNetError):
    """TorchInductor cannot lower this graph; the message carries its reason."""


@dataclass(frozen=True)
class Kernel:
    """One scheduled kernel: `kind` is "generated" (Triton), "extern" (a library call) or "nop" (memory planning).

    `ops` are the numbers of the ops whose computation it contains, recomputed ones included; `node` is
    TorchInductor's scheduler node.
    """

    kind: str
    ops: tuple[int, ...]
    node: BaseSchedulerNode


@dataclass(frozen=True)
class Lowered:
    """Kernels in execution order, with what they were scheduled from."""

    kernels: tuple[Kernel, ...]
    lowering: GraphLowering
    aten: fx.GraphModule


@contextmanager
def lowered(graph: Graph, inputs: Sequence[Input]):
    """Yields the `Lowered` form of a graph; TorchInductor's context is alive inside the `with` block only.

    Raises LoweringError where TorchInductor cannot trace or lower the graph.
    """
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.enter_context(inductor_config.patch(cpu_backend="triton", layout_optimization=False))
        fake_mode = FakeTensorMode(allow_non_fake_inputs=True)
        try:
            aten, arguments = _to_aten(graph, inputs, fake_mode)
            stack.enter_context(V.set_fake_mode(fake_mode))
            lowering = GraphLowering(aten, is_inference=True)
            stack.enter_context(V.set_graph_handler(lowering))
            stack.enter_context(V.set_debug_handler(DebugContext()))
            lowering.run(*arguments)
            lowering._update_scheduler()
        except Exception as error:  # any op of any model may be missing in TorchInductor; its errors share no type
            lines = str(error).strip().splitlines() or [""]
            raise LoweringError(f"TorchInductor cannot lower the graph: {type(error).__name__}: {lines[0]}") from error
        kernels = tuple(_kernel(node) for node in lowering.scheduler.nodes)
        yield Lowered(kernels, lowering, aten)


def kernels_by_op(graph: Graph, inputs: Sequence[Input]) -> list[frozenset[int]]:
    """For each op, the kernels that exist because of it: empty for views and other free ops.

    A library call belongs to its own op alone. A generated kernel belongs to its last op and to every op that no
    earlier kernel computes; kernels in which an op is merely computed again, fused into later consumers, are theirs.
    Raises LoweringError where TorchInductor cannot lower the graph.
    """
    needs: list[set[int]] = [set() for _ in graph.ops]
    with lowered(graph, inputs) as result:
        extern_ops = {max(kernel.ops) for kernel in result.kernels if kernel.kind == "extern" and kernel.ops}
        seen: set[int] = set()
        for number, kernel in enumerate(result.kernels):
            if kernel.kind == "nop" or not kernel.ops:
                continue
            if kernel.kind == "extern":
                needs[max(kernel.ops)].add(number)
                continue
            # A copy that a library call wants of its operand is fused into the operand's kernel under the call's name.
            ops = [op for op in kernel.ops if op not in extern_ops] or list(kernel.ops)
            needs[max(ops)].add(number)
            for op in ops:
                if op not in seen:
                    seen.add(op)
                    needs[op].add(number)
    return [frozenset(kernels) for kernels in needs]


def _to_aten(
    graph: Graph, inputs: Sequence[Input], fake_mode: FakeTensorMode
) -> tuple[fx.GraphModule, list[torch.Tensor]]:
    interpreter = _TaggingInterpreter(to_module(graph, "cpu"))
    with fake_mode:
        arguments = [torch.empty_strided(i.shape, i.stride, dtype=dtype_of(i.dtype)) for i in inputs]
        function = torch.func.functionalize(interpreter.run)
        aten = make_fx(function, decomposition_table=select_decomp_table())(*arguments)
    aten.graph.eliminate_dead_code()
    aten.recompile()
    view_to_reshape(aten)
    return aten, arguments


class _TaggingInterpreter(fx.Interpreter):
    """Marks each ATen node that is traced while op number n runs with `meta["op"] = n`."""

    def run(self, *args: Any) -> Any:
        self.op = -1
        return super().run(*args)

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
    if isinstance(node, NopKernelSchedulerNode):
        kind = "nop"
    elif isinstance(node, ExternKernelSchedulerNode):
        kind = "extern"
    else:
        kind = "generated"
    origins = (origin for part in node.get_nodes() if part.node is not None for origin in part.node.get_origins())
    ops = {origin.meta["op"] for origin in origins if "op" in origin.meta}
    return Kernel(kind, tuple(sorted(ops)), node)

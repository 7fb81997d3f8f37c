"""The code that TorchInductor generates for a graph on a GPU, as text; nothing of it is run, and no GPU is needed.

Everything is done that `torch.compile` does up to its output code, patterns and layouts included, for the reference GPU
(`extraction.kernels.lowering`). Attention is one library call where that GPU has a fused kernel.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any, NoReturn
from unittest.mock import patch

import torch
import torch._dynamo.repro.after_aot
import torch._functorch.aot_autograd
import torch._functorch.config
import torch._inductor.compile_fx
from torch import fx
from torch._inductor import config as inductor_config
from torch._inductor.fx_passes import joint_graph
from torch._inductor.graph import GraphLowering
from torch._subclasses import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from agent.distill.kernels.index_expressions import Unsupported
from extraction.kernels.lowering import for_reference_gpu
from passbench.compilers import strict_options
from storage.errors import in_one_line
from storage.graph.as_fx import to_fx
from storage.graph.record import Graph
from storage.records import Input, dtype_of

_DEVICE = "cuda:0"
_OPTIONS = {
    # each buffer has memory of its own: a pass's host code says who has made what
    "inplace_buffers": False,
    "allow_buffer_reuse": False,
    # products are padded where a measurement says so, and here is nothing to measure on
    "shape_padding": False,
    "compile_threads": 1,
    "fx_graph_cache": False,
}


class _Generated(BaseException):
    """Ends a compilation that has generated its code; no handler of TorchInductor's catches it."""

    def __init__(self, code: str) -> None:
        super().__init__()
        self.code = code


class _OnHost(TorchDispatchMode):
    """Computes on the CPU whatever is computed."""

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        return func(*args, **(kwargs | {"device": "cpu"} if "device" in kwargs else kwargs))


class _FoldedOnHost(joint_graph.UniformValueConstantFolder):
    """Finds constants of one value without the device."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        with _OnHost():
            super().__init__(*args, **kwargs)

    def _deduce_value(self, node: fx.Node) -> Any:
        with _OnHost():
            return super()._deduce_value(node)


def generated_code(graph: Graph, inputs: Sequence[Input], strict: bool) -> str:
    """TorchInductor's output code for a graph, with eager's numerics if `strict`.

    Raises Unsupported where TorchInductor cannot compile it.
    """
    module = fx.GraphModule(torch.nn.Module(), to_fx(graph, _DEVICE))
    with (
        for_reference_gpu(module),
        _without_device(),
        inductor_config.patch(_OPTIONS | (strict_options() if strict else {})),
    ):
        with FakeTensorMode(allow_non_fake_inputs=True):
            given = [torch.empty_strided(i.shape, i.stride, dtype=dtype_of(i.dtype), device=_DEVICE) for i in inputs]
        try:
            torch._inductor.compile(module, given)
        except _Generated as generated:
            return generated.code
        except Exception as error:  # any op of any model may be missing in TorchInductor; its errors share no type
            raise Unsupported(f"TorchInductor does not compile it: {in_one_line(error, None)}") from error
    raise Unsupported("TorchInductor generates no code for it")


def _stop(lowering: GraphLowering) -> NoReturn:
    """In place of loading the code."""
    raise _Generated(lowering.codegen()[0].value)


@contextmanager
def _without_device() -> Iterator[None]:
    """TorchInductor compiles up to its code, and asks no device."""
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.enter_context(torch._functorch.config.patch(enable_autograd_cache=False))
        for holder, name, value in (
            (GraphLowering, "compile_to_module", _stop),
            (joint_graph, "UniformValueConstantFolder", _FoldedOnHost),
            (torch._functorch.aot_autograd, "preserve_rng_state", nullcontext),
            (torch._inductor.compile_fx, "_check_triton_bf16_support", lambda _: None),
            (torch.utils._triton, "triton_hash_with_backend", lambda: ""),
            # a program to repeat the compilation by: for the trace log alone, and names the GPUs that are there
            (torch._dynamo.repro.after_aot, "save_graph_repro", lambda *_, **__: None),
        ):
            stack.enter_context(patch.object(holder, name, value))
        yield

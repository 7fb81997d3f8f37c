"""What `torch._dynamo` captures of a module, with symbolic sizes, and each captured graph as a record."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any
from unittest.mock import patch

import torch
import torch._dynamo
from torch import fx
from torch._dynamo import convert_frame, eval_frame, symbolic_convert
from torch._dynamo.utils import counters
from torch.fx.experimental import _config as shape_config
from torch.nn.modules import module as module_calls

from extraction.classify import classify
from extraction.examples.inputs import Example
from extraction.examples.sessions import Session
from extraction.failures import MAX_MESSAGE, ModelError
from extraction.tracing.known_layouts import KnownLayouts
from extraction.tracing.normalise import graph_record, input_records, normalise, take_out_numbers
from extraction.tracing.shared_expressions import visited_once
from extraction.tracing.symbolic import MAX_CONDITIONS, Constants, Dims, Layout, constants_of, is_number
from storage.graph.record import Graph, GraphError
from storage.records import Input


@dataclass(frozen=True)
class CapturedGraph:
    """A captured graph as a record; the fields are those of `TracedGraph`. `fixed` says why sizes are no symbols."""

    graph: Graph
    inputs: tuple[Input, ...]
    symbols: Mapping[str, int]
    symbolic: tuple[Layout | None, ...]
    fixed: tuple[str, ...]


@dataclass(frozen=True)
class Captured:
    """A graph as dynamo captured it.

    `inputs` are records of its tensors that come in, or why there are none; `dims` names their dimensions.
    """

    module: fx.GraphModule
    inputs: list[Input] | GraphError
    dims: Mapping[str, Dims] = field(default_factory=dict)

    def record(self) -> CapturedGraph:
        """The graph as a record. Raises GraphError or TargetError where a record cannot hold it."""
        if isinstance(self.inputs, GraphError):
            raise self.inputs
        graph = self.module.graph
        tensors = [n for n in graph.nodes if n.op == "placeholder" and not is_number(n.meta.get("example_value"))]
        named = {  # after a graph break, a variable of an argument's name may hold another tensor
            node: self.dims[each.name]
            for node, each in zip(tensors, self.inputs, strict=True)
            if each.role == "input" and each.name in self.dims and len(self.dims[each.name]) == len(each.shape)
        }
        inputs = [*self.inputs, *normalise(self.module)]
        constants = constants_of(graph, named)
        numbers = take_out_numbers(graph, constants)
        record = graph_record(graph, numbers)
        if not constants.symbols:
            return CapturedGraph(record, tuple(inputs), {}, (), constants.sizes.fixed)
        values = [node for node in graph.nodes if node.op != "output" and node not in numbers]
        symbolic = [_layout(node, constants) for node in values]
        for number, each in enumerate(inputs):
            shape, stride = symbolic[number] or (_texts(each.shape), _texts(each.stride))
            symbolic[number] = (shape, stride)
            inputs[number] = replace(each, symbolic_shape=shape, symbolic_stride=stride)
        return CapturedGraph(record, tuple(inputs), constants.symbols, tuple(symbolic), constants.sizes.fixed)


class CaptureSizes(Enum):
    """What the named dimensions of the inputs are in a capture.

    `ANY`: symbols without assumptions; dynamo does not ask whether one is 1, for example. `LARGE`: symbols that are at
    least 2. `FIXED`: numbers. `ANY` takes half the time of `LARGE`, and its graphs hold for more sizes. But some code
    needs the assumption, such as slices in torch 2.11.
    """

    ANY = "any"
    LARGE = "large"
    FIXED = "fixed"


def capture(
    module: torch.nn.Module, inputs: Mapping[str, Any], sizes: CaptureSizes = CaptureSizes.ANY
) -> tuple[list[Captured], list[str]]:
    """The graphs that dynamo captures while `module(**inputs)` runs without gradients, and its graph breaks.

    `sizes` says what the named dimensions of each `Example` among the inputs are.

    Raises ModelError where dynamo or the model fails.
    """
    captured: list[Captured] = []
    symbolic = sizes is not CaptureSizes.FIXED
    dims = {name: each.dims for name, each in inputs.items() if isinstance(each, Example)} if symbolic else {}
    arguments = {name: _argument(each, symbolic) for name, each in inputs.items()}

    def collect(graph: fx.GraphModule, examples: list[Any]) -> Callable[..., Any]:
        try:  # dynamo forgets where its inputs came from once this returns
            records: list[Input] | GraphError = input_records(graph.graph, examples)
        except GraphError as error:
            records = error
        captured.append(Captured(graph, records, dims))
        if len(captured) == 1 and _ends_the_call(graph, module):
            raise _Whole
        return graph.forward

    torch._dynamo.reset()
    counters.clear()
    patience = {
        "backed_size_oblivious": sizes is CaptureSizes.ANY,
        "symbol_guard_limit_before_specialize": MAX_CONDITIONS,
    }
    # Making an entry costs as much as the operator, and `KnownLayouts` has the repeated ones already.
    without_cache = torch._dynamo.config.patch(fake_tensor_cache_enabled=False)
    # Dynamo tokenizes every source file for lines of a log that nobody reads.
    without_names = patch.object(symbolic_convert, "get_funcname", lambda *_: None)
    with (
        torch.no_grad(),
        shape_config.patch(patience),
        without_cache,
        without_names,
        KnownLayouts().used(),
        visited_once(),
    ):
        try:
            torch.compile(module, backend=collect, dynamic=False)(**arguments)
        except _Whole:
            pass
        except Exception as error:  # a model's forward may raise anything
            raise ModelError(*classify(error)) from error
    return captured, [_reason(text) for text in counters["graph_break"]]


class _Whole(BaseException):
    """The call is one graph, which is captured: dynamo need not make guards of it and run it."""


def _ends_the_call(graph: fx.GraphModule, module: torch.nn.Module) -> bool:
    """Whether `module` returns where this graph of it ends, its first: nothing broke off, and the frame that dynamo
    compiles is called by torch's call of a module, so no code of the model's comes behind it."""
    if graph.compile_subgraph_reason.graph_break or module._forward_hooks:
        return False
    files = []
    frame = sys._getframe(1)
    while frame.f_code is not capture.__code__:
        files.append(frame.f_code.co_filename)
        frame = frame.f_back
    inside = max(number for number, file in enumerate(files) if file == convert_frame.__file__)
    return {eval_frame.__file__, module_calls.__file__}.issuperset(files[inside + 1 :])


def _argument(example: Any, symbolic: bool) -> Any:
    """What stands for an example in the call; dynamo finds the marks of symbolic dimensions on the tensor itself."""
    if isinstance(example, Session):
        return example.make()
    if not isinstance(example, Example):
        return example
    tensor = example.tensor.clone()
    for dim, name in enumerate(example.dims):
        if symbolic and name is not None:
            torch._dynamo.maybe_mark_dynamic(tensor, dim)
    return tensor


def _layout(node: fx.Node, constants: Constants) -> Layout | None:
    example = node.meta.get("example_value")
    strided = isinstance(example, torch.Tensor) and example.layout == torch.strided
    return constants.layout(example) if strided else None


def _texts(numbers: tuple[int, ...]) -> tuple[str, ...]:
    return tuple(str(number) for number in numbers)


def _reason(text: str) -> str:
    """A graph break's title and explanation in one line, without dynamo's hints to the programmer."""
    return " ".join(text.partition("  Hint:")[0].split())[:MAX_MESSAGE]

"""A graph and a recipe in, a callable out: regions rewritten, parameters' parts computed, the rest compiled."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._dynamo.utils import detect_fake_mode
from torch._guards import TracingContext, tracing
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from passbench.compilers import trust_cpp_compiler_with
from passbench.models.graph_facts import GraphFacts, calls_of, graph_facts
from passbench.models.parameters.parameter_parts import ParameterParts, take_parameter_parts
from passbench.models.parameters.weight_merging import merge_weights
from passbench.models.recipes import Recipe
from passbench.models.warm_start.beside_capture import hashing, wait_for_kernels


@dataclass(frozen=True)
class GraphCall:
    """One graph with tensors of one call: what is lowered.

    `module` takes `moving`, which every call brings, then `held`, which stay. `facts` are the module's.
    """

    module: fx.GraphModule
    moving: tuple[torch.Tensor, ...]
    held: tuple[torch.Tensor, ...]
    facts: GraphFacts

    @property
    def device(self) -> torch.device:
        """Where the graph computes: its one GPU, or the CPU."""
        found = {device for device in self.facts.devices if device.type == "cuda"}
        return next(iter(found)) if len(found) == 1 else torch.device("cpu")


@dataclass(frozen=True)
class LoweredGraph:
    """`call(*moving)` gives the graph's outputs in order. `parts` says what was computed once; `refresh` does so again.

    `served` counts the matches of passes by entry of the library, `replaced` are the graph's operators that they serve.
    `compiler` is the recipe's. `sources` are the files that TorchInductor wrote for it, empty where this process had
    them already.
    """

    call: Callable[..., Sequence[torch.Tensor]]
    parts: ParameterParts
    served: dict[str, int]
    replaced: tuple[str, ...]
    compiler: str
    sources: tuple[str, ...] = ()

    def refresh(self) -> None:
        """Compute what follows from parameters again."""
        self.parts.refresh()


Serve = Callable[[fx.GraphModule, Sequence[str]], dict[str, int]]
"""Rewrites a module in place so that passes serve regions of it; returns the matches by rule."""


def lower(given: GraphCall, recipe: Recipe, serve: Serve | None = None) -> LoweredGraph:
    """The callable of a graph by a recipe, without the CUDA graph that it may ask for (`passbench.models.replayed`).

    Compilation takes place here. Raises whatever the compiler raises.
    """
    wait_for_kernels()
    module, facts = copy_of(given.module), given.facts
    served: dict[str, int] = {}
    replaced: tuple[str, ...] = ()
    if recipe.passes and serve is not None:
        before = [node.name for node in calls_of(module.graph)]
        served = serve(module, recipe.passes)
        left = {node.name for node in module.graph.nodes}
        replaced = tuple(name for name in before if name not in left)
    if served:
        facts = graph_facts(module, [*given.moving, *given.held])
    if recipe.merged:
        _, facts = merge_weights(module, facts, len(given.moving))
    if recipe.once:
        parts = take_parameter_parts(module, facts, len(given.moving), given.held)
    else:
        parts = ParameterParts(module, given.held, (), None, (), ())
    with torch.no_grad(), _written() as sources:
        function = _compiled(parts.main, [*given.moving, *parts.statics], recipe)
    return LoweredGraph(_bound(function, parts.statics), parts, served, replaced, recipe.compiler, tuple(sources))


def copy_of(module: fx.GraphModule) -> fx.GraphModule:
    """The same graph in a module of its own; tensors that it holds are shared."""
    graph = fx.Graph()
    graph.output(graph.graph_copy(module.graph, {}))
    return fx.GraphModule(module, graph)


@contextlib.contextmanager
def _written() -> Iterator[list[str]]:
    """The files of Python that TorchInductor loads meanwhile."""
    from torch._inductor.codecache import PyCodeCache

    known, found = len(PyCodeCache.modules), []
    yield found
    found += [str(module.__file__) for module in PyCodeCache.modules[known:]]


def _bound(function: Callable, statics: tuple) -> Callable[..., Sequence[torch.Tensor]]:
    def call(*moving: torch.Tensor) -> Sequence[torch.Tensor]:
        with torch.no_grad():
            return function(*moving, *statics)

    return call


def _compiled(module: fx.GraphModule, inputs: list[torch.Tensor], recipe: Recipe) -> Callable:
    if recipe.compiler == "eager":
        return module.forward
    return compile_graph(module, inputs, dict(recipe.options))


def compile_graph(module: fx.GraphModule, inputs: Sequence[Any], options: dict[str, Any]) -> Callable:
    """TorchInductor's artefact for inputs of exactly these sizes, called without guards.

    It goes through TorchInductor's caches on disk, so that the same graph compiles in little time the next time, in
    other processes too.
    """
    from torch._inductor.compile_fx import compile_fx

    hashing().join()
    trust_cpp_compiler_with(inputs)
    fake = detect_fake_mode(list(inputs)) or FakeTensorMode(shape_env=ShapeEnv())
    with tracing(TracingContext(fake)):
        return compile_fx(module, list(inputs), ignore_shape_env=True, config_patches=options or None)

"""The backend "passnet" of torch.compile: `torch.compile(model, backend="passnet", options={"effort": "quick"})`.

dynamo's guards stay, as with every backend; so it works for models of several graphs. A graph that needs no gradients,
writes nothing, draws nothing and has fixed sizes runs by the recipe that measures fastest in its first call. All other
graphs go to TorchInductor (with `strict`, those without gradients to eager): training, dynamic sizes, BatchNorm in
training mode, dropout.
"""

import dataclasses
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from passbench.compilers import strict_options, trust_cpp_compiler_with
from passbench.models.choosing import RunningGraph, choose, start
from passbench.models.graph_facts import GraphFacts, UnknownGraphFacts, graph_facts
from passbench.models.lowering import GraphCall
from passbench.models.model_capture import reordered
from passbench.models.optimized_model import OptimizeSettings
from passbench.models.recipes import check_asked, recipes
from storage.errors import PassNetError

LOGGER = logging.getLogger("passnet.models")


def passnet_backend(
    module: fx.GraphModule, examples: Sequence[Any], *, options: dict[str, Any] | None = None, **_: Any
) -> Callable:
    """A callable for a graph of dynamo's. `options` are the fields of `OptimizeSettings`; raises PassNetError on
    others."""
    settings = settings_from(options)
    why = _why_not_fixed(module, examples)
    if why:
        LOGGER.info("passnet: a graph of %d nodes goes to its compiler: %s", len(module.graph.nodes), why)
        return _plainly(module, examples, settings)
    facts = _facts_of(module, examples)
    if facts is None or facts.written or facts.random:
        LOGGER.info("passnet: a graph of %d nodes writes, draws or cannot be looked into", len(module.graph.nodes))
        return _plainly(module, examples, settings)
    return _BackendGraph(module, facts, settings)


def settings_from(options: dict[str, Any] | None) -> OptimizeSettings:
    """Settings from a dictionary. Raises PassNetError that names the options that there are, or the parts."""
    known = {field.name for field in dataclasses.fields(OptimizeSettings)}
    unknown = sorted(set(options or {}) - known)
    if unknown:
        raise PassNetError(f"backend passnet has no option {unknown[0]!r}: it has {', '.join(sorted(known))}")
    settings = OptimizeSettings(**(options or {}))
    check_asked(settings.effort, settings.without, settings.seconds)
    return settings


def _why_not_fixed(module: fx.GraphModule, examples: Sequence[Any]) -> str:
    if not all(isinstance(x, torch.Tensor) for x in examples):
        return "its sizes change from call to call"
    if torch.is_grad_enabled() and any(x.requires_grad for x in examples):
        return "it needs gradients"
    if any(not isinstance(size, int) for x in examples for size in x.shape):
        return "its sizes change from call to call"
    if any(x.is_inference() for x in examples):
        return "it takes inference tensors"
    return ""


def _facts_of(module: fx.GraphModule, examples: Sequence[Any]) -> GraphFacts | None:
    try:
        return graph_facts(module, examples)
    except UnknownGraphFacts as error:
        LOGGER.info("passnet: %s", error)
        return None


def _plainly(module: fx.GraphModule, examples: Sequence[Any], settings: OptimizeSettings) -> Callable:
    from torch._inductor.compile_fx import compile_fx

    if settings.strict and not (torch.is_grad_enabled() and any(getattr(x, "requires_grad", False) for x in examples)):
        return module.forward
    trust_cpp_compiler_with(examples)
    return compile_fx(module, list(examples), config_patches=strict_options() if settings.strict else None)


def _is_static(node: fx.Node) -> bool:
    """Whether dynamo takes a placeholder for a parameter or buffer."""
    kept = node.meta.get("tensor_dict") or {}
    return kept.get("_dynamo_static_input_type") is not None


class _BackendGraph:
    """A graph of dynamo's that decides in its first call how it is run."""

    def __init__(self, module: fx.GraphModule, facts: GraphFacts, settings: OptimizeSettings) -> None:
        static = [_is_static(node) for node in module.graph.nodes if node.op == "placeholder"]
        self._moving = [n for n, kept in enumerate(static) if not kept]
        self._fixed = [n for n, kept in enumerate(static) if kept]
        order = [*self._moving, *self._fixed]
        self._module = reordered(module, order)
        self._facts = dataclasses.replace(facts, same=tuple(None if n is None else order.index(n) for n in facts.same))
        self._settings = settings
        self._lock = threading.RLock()
        self._running: RunningGraph | None = None
        self._held: list[tuple[torch.Tensor, int, int]] = []
        self._kept: list[torch.Tensor] = []

    def __call__(self, *inputs: torch.Tensor) -> Sequence[torch.Tensor]:
        moving = [inputs[n] for n in self._moving]
        fixed = [inputs[n] for n in self._fixed]
        with self._lock:
            if self._running is None:
                self._begin(moving, fixed)
            elif not self._still(fixed):
                self._take_up(moving, fixed)
            outputs = self._running.call(*moving)
        given = [*moving, *fixed]
        return [x if n is None else given[n] for x, n in zip(outputs, self._facts.same, strict=True)]

    def _begin(self, moving: list[torch.Tensor], fixed: list[torch.Tensor]) -> None:
        given = self._given(moving, fixed)
        settings = self._settings
        if settings.recipe is not None:
            self._running = start(given, settings.recipe)
        else:
            candidates = recipes(given.device, strict=settings.strict, effort=settings.effort, without=settings.without)
            if self._facts.aliased:
                candidates = [recipe for recipe in candidates if not recipe.graphed]
            self._running, _ = choose(
                given, candidates, strict=settings.strict, double=settings.double, seconds=settings.seconds
            )
        LOGGER.info("passnet: a graph of %d nodes runs as %s", len(self._module.graph.nodes), self._running.recipe.name)
        self._note(fixed)

    def _given(self, moving: list[torch.Tensor], fixed: list[torch.Tensor]) -> GraphCall:
        return GraphCall(self._module, tuple(moving), tuple(fixed), self._facts)

    def _note(self, fixed: list[torch.Tensor]) -> None:
        self._kept = [x.detach() for x in fixed]  # the memory that a CUDA graph reads stays alive
        self._held = [(x, x.data_ptr(), x._version) for x in fixed]

    def _still(self, fixed: list[torch.Tensor]) -> bool:
        return all(
            now is x and now._version == version and now.data_ptr() == pointer
            for now, (x, pointer, version) in zip(fixed, self._held, strict=True)
        )

    def _take_up(self, moving: list[torch.Tensor], fixed: list[torch.Tensor]) -> None:
        if all(now.data_ptr() == pointer for now, (_, pointer, _) in zip(fixed, self._held, strict=True)):
            self._running.lowered.refresh()
        else:
            self._running = start(self._given(moving, fixed), self._running.recipe)
        self._note(fixed)

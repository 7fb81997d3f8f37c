"""A model's forward as one graph, with dynamo's own guards and the way from a call to the graph's inputs and back.

dynamo captures once. What it makes of Python around the graph is learnt by watching one call: which of the call's
tensors and of the model's parameters the graph takes, and where its outputs are in what the model returns.
"""

import math
import re
import threading
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import patch

import torch
import torch._dynamo
from torch import fx
from torch._dynamo import convert_frame, symbolic_convert
from torch._dynamo.eval_frame import _debug_get_cache_entry_list
from torch._dynamo.guards import CheckFunctionManager
from torch.utils._pytree import tree_leaves

from passbench.models.graph_facts import GraphFacts, graph_facts
from passbench.models.parameters.held_tensors import HeldTensor, place_at, places_of
from passbench.models.parameters.parameter_parts import ModuleState
from passbench.models.result_form import NoResultForm, ResultForm, result_form
from storage.errors import PassNetError, in_one_line

_CAPTURING = threading.RLock()
"""Held by the thread that captures, since what it replaces in dynamo is there for all threads."""


class NotWhole(PassNetError):
    """The model's forward cannot be called as one graph; the message says why. torch.compile can still serve it."""


@dataclass(frozen=True)
class Read:
    """What dynamo said of a capture: the expressions of its guards, its globals, and the code that it traced."""

    expressions: frozenset[str]
    names: Mapping[str, Any]
    code: frozenset[types.CodeType]


@dataclass(frozen=True)
class ModelCapture:
    """`graph` takes `moving` (tensors of the call), then `held` (of the model); `fetch(args, kwargs)` gives those of a
    call. `guarded(args, kwargs)` asks dynamo's guards, and what they leave out; `why_not` says what failed. `draws` are
    calls that draw the random numbers that the model draws and does not use, as for layers that it skips in training
    alone: a function, its arguments, and those by name. `draw()` makes them.
    `rebuild(outputs, moving)` makes what the model would have returned of the graph's outputs, as `form` says.

    `read` is what dynamo read to make it, None where another process made it; `renew(args, kwargs)` makes it anew then.
    """

    graph: fx.GraphModule
    facts: GraphFacts
    moving: tuple[torch.Tensor, ...]
    moving_names: tuple[str, ...]
    held: tuple[HeldTensor, ...]
    fetch: Callable[[tuple, dict], tuple]
    guarded: Callable[[tuple, dict], bool]
    why_not: Callable[[tuple, dict], str]
    draws: tuple[tuple[Callable, tuple, dict], ...]
    rebuild: Callable[[Sequence[torch.Tensor], Sequence[torch.Tensor]], Any]
    form: ResultForm
    read: Read | None = field(default=None, repr=False)
    renew: Callable[[tuple, dict], "ModelCapture"] | None = None

    def draw(self) -> None:
        """Draw what the model draws."""
        for function, args, kwargs in self.draws:
            function(*args, **kwargs)


def capture_model(model: torch.nn.Module, args: tuple, kwargs: Mapping[str, Any]) -> ModelCapture:
    """Capture `model(*args, **kwargs)`, without gradients, in the state that the model and torch are in now.

    Nothing is computed, unless an output is no plain tensor in memory. Raises NotWhole with the reason:
    a graph break, a forward that changes Python objects, tensors that are neither the call's nor the model's, outputs
    that are made outside of the graph, or no tensor at all.
    """
    entry = _entry(model)
    seen = _Seen(entry.__code__)
    # dynamo tokenizes every source file of the model and of torch.nn for lines of a log
    without_names = patch.object(symbolic_convert, "get_funcname", lambda *_: None, create=True)
    noting = patch.object(convert_frame, "CheckFunctionManager", seen.guards)
    with _CAPTURING, torch.no_grad(), without_names, noting:
        try:
            result = torch.compile(entry, backend=seen.backend, fullgraph=True, dynamic=False)(*args, **kwargs)
        except Exception as error:  # dynamo and the model may raise anything
            if seen.problem:
                raise NotWhole(seen.problem) from None
            raise NotWhole(_why_dynamo_failed(error)) from error
    if seen.graph is None or seen.inputs is None:
        raise NotWhole("the model computes nothing that dynamo puts into a graph")
    (cached,) = _debug_get_cache_entry_list(entry.__code__)
    read = Read(seen.expressions, dict(entry.__globals__), seen.code - {entry.__code__})
    return _captured(model, seen, cached.guard_manager, result, _zero_signs(args, kwargs), read)


def _why_dynamo_failed(error: Exception) -> str:
    """dynamo's reason in one line, with the error that an operator raised on fake tensors where there is one."""
    raised = re.search(r": got (\w+\(.*\))$", str(error), re.MULTILINE)
    return in_one_line(error, None) + (f" got {raised[1][:300]}" if raised else "")


class _Seen:
    """A backend that keeps the one graph it is given, and the tensors that go in and out of its first call.

    That call computes nothing: which output stands where in the model's result does not depend on values, since a
    branch on them would have broken the graph. On a GPU it would cost a second, most of it to load eager's kernels.
    """

    def __init__(self, entry: types.CodeType) -> None:
        self._entry = entry
        self.graph: fx.GraphModule | None = None
        self.facts: GraphFacts | None = None
        self.sources: tuple[str, ...] = ()
        self.inputs: tuple | None = None
        self.outputs: Sequence[torch.Tensor] = ()
        self.problem = ""
        self.expressions: frozenset[str] = frozenset()
        self.code: frozenset[types.CodeType] = frozenset()

    def guards(self, code: types.CodeType, output: Any, *rest: Any, **named: Any) -> Any:
        """In the place of dynamo's class that builds the guards: by then all of them are known."""
        if code is self._entry:
            self.expressions = frozenset(_name_of(guard) for guard in output.guards)
            self.code = frozenset(output.tracing_context.traced_code)
        return CheckFunctionManager(code, output, *rest, **named)

    def backend(self, graph: fx.GraphModule, examples: list[Any]) -> Callable:
        self.graph = graph
        self.sources = tuple(_source(node) for node in graph.graph.nodes if node.op == "placeholder")
        self.problem = _python_effects() or self._problem(graph, examples)
        if self.problem:
            raise NotWhole(self.problem)

        def run(*inputs: Any) -> Any:
            self.inputs, self.outputs = inputs, _stand_ins(graph, self.facts, inputs)
            return self.outputs

        return run

    def _problem(self, graph: fx.GraphModule, examples: list[Any]) -> str:
        if not all(isinstance(x, torch.Tensor) for x in examples):
            return "the graph takes something that is not a tensor"
        try:
            self.facts = graph_facts(graph, examples)
        except PassNetError as error:
            return str(error)
        if self.facts.written:
            return f"the forward writes to {self.sources[self.facts.written[0]]}"
        return ""


def _stand_ins(graph: fx.GraphModule, facts: GraphFacts, inputs: Sequence[Any]) -> Sequence[torch.Tensor]:
    """Tensors of the sizes, strides and dtypes of the graph's outputs with no values in them; an output that is an
    input is that input."""
    (returned,) = graph.graph.output_node().args
    values = [node.meta.get("example_value") if isinstance(node, fx.Node) else None for node in returned]
    if not all(isinstance(value, torch.Tensor) and value.layout == torch.strided for value in values):
        return graph.forward(*inputs)
    return tuple(
        torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device=value.device)
        if number is None
        else inputs[number]
        for value, number in zip(values, facts.same, strict=True)
    )


def _entry(model: torch.nn.Module) -> types.FunctionType:
    """A function with code of its own, since dynamo keeps what it compiled beside the code."""

    def entry(*args, **kwargs):
        return model(*args, **kwargs)

    code = entry.__code__.replace(co_name=f"entry_{id(model):x}")
    return types.FunctionType(code, entry.__globals__, code.co_name, entry.__defaults__, entry.__closure__)


def _source(node: fx.Node) -> str:
    return _name_of(getattr(node, "_dynamo_source", None) or node)


def _name_of(source: Any) -> str:
    """The expression of a source or of a guard: an attribute, or in other versions of torch a method."""
    return source.name() if callable(source.name) else str(source.name)


def _python_effects() -> str:
    """What of Python's objects the forward changes, while dynamo still knows; empty if nothing."""
    from torch._dynamo.variables import base

    existing = tuple(
        getattr(base, name) for name in ("AttributeMutationExisting", "ValueMutationExisting") if hasattr(base, name)
    )
    effects = symbolic_convert.InstructionTranslator.current_tx().output.side_effects
    for variable in effects.id_to_variable.values():
        mutated = isinstance(getattr(variable, "mutation_type", None), existing) and effects.is_modified(variable)
        if mutated and not _is_as_before(variable, effects.store_attr_mutations.get(variable)):
            name = getattr(variable.source, "name", "an object")
            text = name() if callable(name) else name
            return f"the forward changes {text}; if that is a cache, call the model once before"
    return ""


def _is_as_before(variable: Any, stored: Mapping[str, Any] | None) -> bool:
    """Whether an object whose attributes the forward sets ends up with the values that it has now: a flag that is set
    and reset, as transformers does."""
    if not stored or not hasattr(variable, "value"):
        return False
    for name, now in stored.items():
        if not now.is_python_constant():
            return False
        value, before = now.as_python_constant(), getattr(variable.value, name, stored)
        if type(value) is not type(before) or value != before:
            return False
    return True


_OF_THE_CALL = re.compile(r"L\['(args|kwargs)'\](\[\d+\]|\['[^'\\]+'\]|\.[A-Za-z_]\w*)*")


def _zero_signs(args: tuple, kwargs: Mapping[str, Any]) -> list[float]:
    """The signs of the numbers of a call that are zero, 1 or -1: to dynamo's guards 0.0 and -0.0 are the same."""
    return [math.copysign(1, x) for x in tree_leaves((args, kwargs)) if isinstance(x, float) and x == 0]


def _captured(
    model: torch.nn.Module, seen: _Seen, guards: Any, result: Any, signs: Sequence[float], read: Read
) -> ModelCapture:
    moving, held = _roles_of_inputs(model, seen)
    order = [*moving, *held]
    same = tuple(None if n is None else order.index(n) for n in seen.facts.same)
    draws = _taken_draws(seen.graph.graph, seen.facts)
    facts = replace(seen.facts, same=same, random=seen.facts.random and not draws)
    graph = reordered(seen.graph, order)
    fetched, fetch = fetching([seen.sources[number] for number in moving])
    tensors = tuple(seen.inputs[number] for number in moving)
    try:
        form = result_form(result, seen.outputs, tensors)
    except NoResultForm as error:
        raise NotWhole(str(error)) from None
    fitting = _Fitting(model, guards, signs)
    return ModelCapture(
        graph=graph,
        facts=facts,
        moving=tensors,
        moving_names=tuple(fetched),
        held=tuple(held.values()),
        fetch=fetch,
        guarded=fitting.fits,
        why_not=fitting.why_not,
        draws=tuple(draws),
        rebuild=form.builder(),
        form=form,
        read=read,
    )


def _roles_of_inputs(model: torch.nn.Module, seen: _Seen) -> tuple[list[int], dict[int, HeldTensor]]:
    """The numbers of the graph's inputs that are the call's, and of those that the model holds. Raises NotWhole for an
    input that is neither's."""
    places = places_of(model)
    moving: list[int] = []
    held: dict[int, HeldTensor] = {}
    for number, (source, tensor) in enumerate(zip(seen.sources, seen.inputs, strict=True)):
        if tensor.is_inference():
            raise NotWhole(f"{source} is an inference tensor, whose changes nobody counts")
        if id(tensor) in places:
            name, found = places[id(tensor)]
            held[number] = HeldTensor(name, tensor, tuple(found))
        elif _OF_THE_CALL.fullmatch(source):
            moving.append(number)
        elif (place := place_at(source, model)) is not None:
            held[number] = HeldTensor(source, tensor, (place,))
        else:
            raise NotWhole(f"the forward reads {source}, a tensor that is neither the call's nor the model's")
    return moving, held


def _taken_draws(graph: fx.Graph, facts: GraphFacts) -> list[tuple[Callable, tuple, dict]]:
    """Takes draws of random numbers that nothing reads out of the graph, and what computes nothing; returns the
    draws."""
    idle = [node for node in graph.nodes if node.name in facts.idle_draws]
    logging = [node for node in graph.nodes if node.target is torch._C._log_api_usage_once]
    draws = [(node.target, node.args, dict(node.kwargs)) for node in idle]
    for node in (*idle, *logging):
        graph.erase_node(node)
    return draws


class _Fitting:
    """Whether what was captured of a model is right for another call: by dynamo's guards, the modules as they are now,
    and the signs of a call's zeros."""

    def __init__(self, model: torch.nn.Module, guards: Any, signs: Sequence[float]) -> None:
        self._model, self._guards, self._signs = model, guards, signs
        self._modules = ModuleState(model)

    def fits(self, args: tuple, kwargs: dict) -> bool:
        """Whether it is."""
        guarded = self._guards.check(self._frame(args, kwargs)) and self._modules.unchanged()
        return guarded and self._same_signs(args, kwargs)

    def why_not(self, args: tuple, kwargs: dict) -> str:
        """Why it is not, in one line."""
        if not self._modules.unchanged():
            return "a module of the model was replaced, or a hook was added or removed"
        if not self._same_signs(args, kwargs):
            return "a zero of the call has the other sign"
        return _reason(self._guards.check_verbose(self._frame(args, kwargs)))

    def _frame(self, args: tuple, kwargs: dict) -> dict[str, Any]:
        return {"args": args, "kwargs": kwargs, "model": self._model}

    def _same_signs(self, args: tuple, kwargs: dict) -> bool:
        return not self._signs or _zero_signs(args, kwargs) == self._signs


def fetching(sources: Sequence[str]) -> tuple[list[str], Callable[[tuple, dict], tuple]]:
    """How the tensors at these places of a call are written, and a function that gives them. Raises NotWhole on what is
    no place of a call."""
    if unknown := [source for source in sources if not _OF_THE_CALL.fullmatch(source)]:
        raise NotWhole(f"{unknown[0]} is no place of a call")
    texts = [source.replace("L['args']", "args").replace("L['kwargs']", "kwargs") for source in sources]
    return texts, eval(f"lambda args, kwargs: ({''.join(f'{text}, ' for text in texts)})")


def reordered(module: fx.GraphModule, order: Sequence[int]) -> fx.GraphModule:
    """The module with its placeholders in this order."""
    graph = fx.Graph()
    old = [node for node in module.graph.nodes if node.op == "placeholder"]
    values = {old[number]: graph.node_copy(old[number]) for number in order}
    graph.output(graph.graph_copy(module.graph, values))
    return fx.GraphModule(module, graph)


def _reason(verbose: Any) -> str:
    parts = [" ".join(str(part).split()) for part in getattr(verbose, "verbose_code_parts", ())]
    return parts[0][:300] if parts else "a guard of dynamo failed"

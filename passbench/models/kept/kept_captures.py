"""Captures of models in a library: made by dynamo once, and taken up by later starts where nothing has changed.

LIBRARY/captures/KEY.json      a graph as data, how a call becomes its inputs and its outputs a result, and a witness

KEY is of the model's class, the kinds of its tensors and of the call's, and all of `witness.state_of`.
"""

import hashlib
import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch._dynamo.mutation_guard import install_generation_tagging_init
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from passbench.library.model_choices import ModelChoices, call_key
from passbench.models.graph_facts import GraphFacts
from passbench.models.kept.paths import PathTable, UnknownPath, walk
from passbench.models.kept.watch import Watch
from passbench.models.kept.witness import NoWitness, Witness, state_of, witness_of
from passbench.models.model_capture import ModelCapture, NotWhole, fetching
from passbench.models.parameters.held_tensors import HeldTensor, place_at, places_of
from passbench.models.result_form import ResultForm
from storage.errors import PassNetError
from storage.graph.as_fx import from_fx, to_fx
from storage.graph.as_json import from_json, to_json
from storage.records import dtype_of

LOGGER = logging.getLogger("passnet.models")

FORMAT = 3
"""Raised when a file says something else than before."""

Capturing = Callable[[torch.nn.Module, tuple, Mapping[str, Any]], ModelCapture]
_UNFIT = (PassNetError, UnknownPath, NoWitness, KeyError, TypeError, ValueError, IndexError, AttributeError)
"""What a capture raises that cannot be told to another process."""


class KeptCaptures:
    """The capture that a library has of a model and a call, if any. `why_not` says why `get` gave none, or `put` kept
    none."""

    def __init__(
        self, library: str, model: torch.nn.Module, args: tuple, kwargs: Mapping[str, Any], capturing: Capturing
    ) -> None:
        self._kept = ModelChoices(library, "captures")
        self._model, self._args, self._kwargs, self._capturing = model, args, kwargs, capturing
        self.why_not = ""
        install_generation_tagging_init()  # dynamo replaces two methods of all modules when it begins
        try:
            with torch.no_grad():
                state = json.dumps(state_of(model, args, kwargs))
            self._key = call_key(model, [], ["capture", FORMAT, hashlib.sha256(state.encode()).hexdigest()])
        except (NoWitness, TypeError, ValueError, AttributeError) as error:
            self._key, self.why_not = "", str(error)

    def get(self) -> ModelCapture | None:
        """The capture that an earlier process made, if all that it depended on is as it was then."""
        known = self._kept.get(self._key) if self._key else None
        if not isinstance(known, dict):
            self.why_not = self.why_not or "the library has none of this model in this state"
            LOGGER.info("passnet: no capture is taken up: %s", self.why_not)
            return None
        try:
            witness = Witness(**known["witness"])
            self.why_not, values = witness.compare(self._model, self._args, self._kwargs)
            LOGGER.info("passnet: a capture of another process %s", self.why_not or "is taken up")
            return None if self.why_not else self._capture(known, witness, values)
        except Exception as error:  # anybody may have written the library
            self.why_not = f"{type(error).__name__}: {error}"
            return None

    def put(self, capture: ModelCapture) -> None:
        """Keep a capture that was made in this process, if it can be told to another one."""
        if not self._key or capture.read is None:
            return
        try:
            witness = witness_of(capture.read, self._model, self._args, self._kwargs)
            data = {"witness": {"steps": witness.steps, "told": witness.told}, **_as_data(capture)}
            data = json.loads(json.dumps(data))
            again = self._capture(data, witness, [None] * len(witness.steps))
            if again.graph.code != capture.graph.code or again.facts != capture.facts:
                raise ValueError("the graph is another one when it is read again")
        except _UNFIT as error:
            self.why_not = f"{type(error).__name__}: {error}"
            LOGGER.info("passnet: the capture is not kept: %s", self.why_not)
            return
        self._kept.put(self._key, data)

    def _capture(self, data: Mapping[str, Any], witness: Witness, values: Sequence[Any]) -> ModelCapture:
        model, args, kwargs = self._model, self._args, self._kwargs
        texts, fetch = fetching(data["moving"])
        roots = {"model": model, "args": args, "kwargs": kwargs}
        _look_at(data["moving"], roots)
        moving = fetch(args, dict(kwargs))
        held = tuple(_held(data["held"], model, roots))
        graph = _graph_of(data, str(data["device"]))
        form = ResultForm.from_json(data["result"])
        places = [place for each in held for place in each.places]
        with torch.no_grad():
            watch = Watch(model, args, kwargs, witness.steps, values, places)

        def renew(args: tuple, kwargs: dict) -> ModelCapture:
            return self._capturing(model, args, kwargs)

        return ModelCapture(
            graph,
            _facts_of(data["facts"]),
            moving,
            tuple(texts),
            held,
            fetch,
            watch.unchanged,
            lambda args, kwargs: "something that the forward depends on has changed",
            tuple((torch.rand, ((),), {}) for _ in data["facts"]["idle_draws"]),
            form.builder(),
            form,
            renew=renew,
        )


_TYPES = (None, torch.Tensor, torch.nn.Parameter)
"""What dynamo annotates an input with; it is part of the graph's code, and so of its key in TorchInductor's caches."""


_SPELT = {"__eq__": "eq", "__ne__": "ne", "__lt__": "lt", "__le__": "le", "__gt__": "gt", "__ge__": "ge"}
"""Methods that a stored graph spells otherwise; `nodes` has them as dynamo does, for the graph's key."""


def _plain(graph: fx.Graph) -> fx.Graph:
    """A copy with the methods of `_SPELT` as a stored graph has them."""
    copy = fx.Graph()
    copy.output(copy.graph_copy(graph, {}))
    for node in copy.nodes:
        if node.op == "call_method":
            node.target = _SPELT.get(node.target, node.target)
    return copy


def _as_data(capture: ModelCapture) -> dict[str, Any]:
    """The capture without its witness as plain data. Raises ValueError, or PassNetError, where it is none."""
    if not all(
        function is torch.rand and args in (((),), ([],)) and not kwargs for function, args, kwargs in capture.draws
    ):
        raise ValueError("it draws random numbers otherwise than one by one with torch.rand")
    graph = capture.graph.graph
    nodes = [node for node in graph.nodes if node.op != "output"]
    devices = {str(device) for device in capture.facts.devices}
    if len(devices) > 1:
        raise ValueError("it computes on several devices")
    facts = capture.facts
    return {
        "graph": to_json(from_fx(_plain(graph))),
        "device": next(iter(devices), "cpu"),
        "nodes": [[node.name, str(node.target), _TYPES.index(node.type)] for node in nodes],
        "values": [_kinds(node.meta.get("example_value")) for node in nodes],
        "moving": [re.sub(r"^(args|kwargs)", r"L['\1']", text) for text in capture.moving_names],
        "held": [each.name for each in capture.held],
        "result": capture.form.to_json(),
        "facts": {
            "written": facts.written,
            "random": facts.random,
            "idle_draws": facts.idle_draws,
            "same": facts.same,
            "aliased": facts.aliased,
            "devices": sorted(devices),
            "node_storages": {name: sorted(numbers) for name, numbers in facts.node_storages.items()},
            "written_storages": sorted(facts.written_storages),
        },
    }


def _facts_of(data: Mapping[str, Any]) -> GraphFacts:
    return GraphFacts(
        written=tuple(data["written"]),
        random=data["random"],
        idle_draws=tuple(data["idle_draws"]),
        same=tuple(data["same"]),
        aliased=data["aliased"],
        devices=frozenset(map(torch.device, data["devices"])),
        node_storages={name: frozenset(numbers) for name, numbers in data["node_storages"].items()},
        written_storages=frozenset(data["written_storages"]),
    )


def _look_at(expressions: Sequence[str], roots: Mapping[str, Any]) -> None:
    """Raises NotWhole where an expression leads to no tensor, UnknownPath where it asks what `paths` does not."""
    table = PathTable({})
    numbers = [table.add(each) for each in expressions]
    values = walk(table.steps, roots)
    for number, expression in zip(numbers, expressions, strict=True):
        if not isinstance(values[number], torch.Tensor):
            raise NotWhole(f"{expression} is no tensor")


def _held(names: Sequence[str], model: torch.nn.Module, roots: Mapping[str, Any]) -> list[HeldTensor]:
    places = dict(places_of(model).values())
    _look_at([name for name in names if name not in places], roots)
    tensors = {name: group[key] for name, found in places.items() for group, key in found[:1]}
    held = []
    for name in names:
        if name in places:
            held.append(HeldTensor(name, tensors[name], tuple(places[name])))
        elif (place := place_at(name, model)) is not None:
            held.append(HeldTensor(name, place[0][place[1]], (place,)))
        else:
            raise NotWhole(f"the model has no {name}")
    return held


def _kinds(value: Any) -> Any:
    """A value without what it holds: a tensor's dtype, shape, strides and device; sequences of them."""
    if isinstance(value, torch.Tensor):
        return [str(value.dtype).removeprefix("torch."), list(value.shape), list(value.stride()), str(value.device)]
    if isinstance(value, tuple | list):
        return {"each": [_kinds(each) for each in value]}
    return None


def _graph_of(data: Mapping[str, Any], device: str) -> fx.GraphModule:
    """The graph with the names that its nodes had, and with values of their kinds. Raises ValueError on names that
    cannot be."""
    graph = to_fx(from_json(data["graph"]), device)
    nodes = [node for node in graph.nodes if node.op != "output"]
    fake = FakeTensorMode(shape_env=ShapeEnv())
    with fake:
        for node, (name, target, kind), kinds in zip(nodes, data["nodes"], data["values"], strict=True):
            if not name.isidentifier() or (node.op == "placeholder" and not target.isidentifier()):
                raise ValueError(f"{name} is no name")
            node._rename(name)
            node.type = _TYPES[kind]
            if node.op == "placeholder" or (node.op == "call_method" and _SPELT.get(target) == node.target):
                node.target = target
            if kinds is not None:
                node.meta["example_value"] = _value(kinds)
    if [node.name for node in nodes] != [name for name, _, _ in data["nodes"]]:
        raise ValueError("its nodes cannot have their names")
    return fx.GraphModule(torch.nn.Module(), graph)


def _value(kinds: Any) -> Any:
    if isinstance(kinds, dict):
        return tuple(map(_value, kinds["each"]))
    if kinds is None:
        return None
    dtype, shape, stride, device = kinds
    return torch.empty_strided(shape, stride, dtype=dtype_of(dtype), device=device)

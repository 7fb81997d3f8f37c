"""What a captured graph does besides computing its outputs, found by running it on fake tensors."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch._dynamo.config
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from storage.errors import PassNetError


class UnknownGraphFacts(PassNetError):
    """The graph does not run on fake tensors, so that nothing is known of what it does; the message says why."""


@dataclass(frozen=True)
class GraphFacts:
    """`written`: positions of the placeholders whose memory the graph changes. `random`: it draws random numbers.
    `idle_draws`: the nodes that draw them, if nothing uses what any of them draws.

    `same`: for each output the placeholder that it is, or None. `aliased`: which output is a view of an input, empty
    where none is. `devices`: where its values are, but those of `idle_draws`. `node_storages`: the memory (a number)
    that each node's tensors lie in; `written_storages`: the memory that some node writes to after it was made.
    """

    written: tuple[int, ...]
    random: bool
    idle_draws: tuple[str, ...]
    same: tuple[int | None, ...]
    aliased: str
    devices: frozenset[torch.device]
    node_storages: dict[str, frozenset[int]] = field(repr=False)
    written_storages: frozenset[int] = field(repr=False)

    @property
    def pure(self) -> bool:
        """Whether a call leaves everything as it was and gives memory that is not its inputs'."""
        return not (self.written or self.random or self.aliased)


def graph_facts(module: fx.GraphModule, inputs: Sequence[Any]) -> GraphFacts:
    """Facts of a graph on inputs like these; nothing is computed. Nodes without an example value get one.

    Raises UnknownGraphFacts where an operator has no fake form, or its output's size depends on values.
    """
    try:
        return _facts(module, inputs)
    except Exception as error:  # an operator's fake form may raise anything
        raise UnknownGraphFacts(f"the graph does not run on fake tensors: {type(error).__name__}: {error}") from error


def _facts(module: fx.GraphModule, inputs: Sequence[Any]) -> GraphFacts:
    sizes = _sizes()
    fake = FakeTensorMode(allow_non_fake_inputs=True, shape_env=sizes)
    made = [fake.from_tensor(x, static_shapes=True) if isinstance(x, torch.Tensor) else x for x in inputs]
    watch = _EffectWatch()
    runner = _Noting(module, watch)
    with torch.no_grad(), fake, watch:
        outputs = runner.run(*made)
    if sizes.var_to_range:
        raise ValueError("a number or a size depends on values")
    flat = [leaf for leaf in tree_leaves(outputs) if isinstance(leaf, torch.Tensor)]
    storage_of = [_storage(x) if isinstance(x, torch.Tensor) else None for x in made]
    same = tuple(next((n for n, x in enumerate(made) if x is out), None) for out in flat)
    idle = _idle(module, runner.drawing)
    used = [x for name, found in runner.tensors.items() if name not in idle for x in found]
    return GraphFacts(
        written=tuple(n for n, number in enumerate(storage_of) if number in watch.written),
        random=watch.random,
        idle_draws=idle,
        same=same,
        aliased=_aliases(flat, same, storage_of),
        devices=frozenset(x.device for x in (*made, *used) if isinstance(x, torch.Tensor)),
        node_storages=runner.storages,
        written_storages=frozenset(watch.written),
    )


def _sizes() -> ShapeEnv:
    """What dynamo has for a whole graph: with the same settings, torch's cache of fake operators knows what dynamo ran.
    It gives a symbol to what depends on values."""
    later = torch._dynamo.config.prefer_deferred_runtime_asserts_over_guards
    return ShapeEnv(
        allow_scalar_outputs=True,
        allow_dynamic_output_shape_ops=True,
        prefer_deferred_runtime_asserts_over_guards=later,
    )


def _aliases(outputs: Sequence[torch.Tensor], same: Sequence[int | None], inputs: Sequence[int | None]) -> str:
    for number, (out, whole) in enumerate(zip(outputs, same, strict=True)):
        place = _storage(out)
        if whole is None and place in inputs:
            return f"output {number} is a view of input {inputs.index(place)}"
    return ""


def _idle(module: fx.GraphModule, drawing: Sequence[str]) -> tuple[str, ...]:
    """The nodes that draw, if nobody uses their values and they use none."""
    nodes = [node for node in module.graph.nodes if node.name in drawing]
    if any(node.users or node.all_input_nodes or node.op != "call_function" for node in nodes):
        return ()
    return tuple(node.name for node in nodes)


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


def calls_of(graph: fx.Graph) -> list[fx.Node]:
    """The nodes that compute: calls of functions and methods."""
    return [node for node in graph.nodes if node.op in ("call_function", "call_method")]


class _Noting(fx.Interpreter):
    """Runs a graph, and notes in which memory each node's tensors lie; all of them are kept, so that no two share a
    number."""

    def __init__(self, module: fx.GraphModule, watch: "_EffectWatch") -> None:
        super().__init__(module, garbage_collect_values=False)
        self._watch = watch
        self.drawing: list[str] = []
        self.storages: dict[str, frozenset[int]] = {}
        self.tensors: dict[str, list[torch.Tensor]] = {}

    def run_node(self, node: fx.Node) -> Any:
        draws = self._watch.draws
        value = super().run_node(node)
        if self._watch.draws > draws:
            self.drawing.append(node.name)
        node.meta.setdefault("example_value", value)  # without it TorchInductor keeps no graph in its caches
        found = [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]
        self.tensors[node.name] = found
        self.storages[node.name] = frozenset(_storage(x) for x in found)
        return value


class _EffectWatch(TorchDispatchMode):
    """Notes writes and random numbers of every operator that runs."""

    def __init__(self) -> None:
        super().__init__()
        self.written: set[int] = set()
        self.draws = 0

    @property
    def random(self) -> bool:
        return self.draws > 0

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        named = {a.name: a.default_value for a in func._schema.arguments if a.has_default_value()}
        named |= {a.name: v for a, v in zip(func._schema.arguments, args, strict=False)} | kwargs
        if torch.Tag.nondeterministic_seeded in func.tags and not _draws_nothing(named):
            self.draws += 1
        for argument in func._schema.arguments:
            if argument.alias_info is not None and argument.alias_info.is_write:
                self._write(named.get(argument.name))
        if (named.get("training") or named.get("use_input_stats")) and named.get("running_mean") is not None:
            self._write((named["running_mean"], named.get("running_var")))  # older schemas do not say so
        return func(*args, **kwargs)

    def _write(self, value: Any) -> None:
        self.written |= {_storage(x) for x in tree_leaves(value) if isinstance(x, torch.Tensor)}


def _draws_nothing(named: dict[str, Any]) -> bool:
    """Whether an operator that can draw random numbers does not: dropout that drops nothing."""
    return named.get("dropout_p") == 0.0 or named.get("train") is False

"""What depends on parameters alone: taken out of a graph, computed once, and computed again when parameters change.

Examples: a normalised weight, a bias table gathered by position, a mask, a rotary table. The operators are eager's and
the values are, too, to the bit. `HeldState` notices the change, `ModuleState` that modules were replaced.
"""

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter, is_
from typing import Any

import torch
from torch import fx
from torch.amp.autocast_mode import _enter_autocast

from passbench.models.graph_facts import GraphFacts

MOST_BYTES = 4 << 30
"""Memory that values computed once may take beyond that of the parameters; a graph that needs more stays whole."""

_versions = attrgetter("_version")
_same_pointers = getattr(torch._C, "_tensors_data_ptrs_at_indices_equal", None)


@dataclass(frozen=True)
class ParameterParts:
    """`main` takes the moving inputs, then `statics`. `refresh()` computes those of them again that follow from
    parameters, into the same memory. `taken` are the names of the nodes that are no longer in `main`."""

    main: fx.GraphModule
    statics: tuple[torch.Tensor, ...]
    taken: tuple[str, ...]
    _part: fx.GraphModule | None
    _held: tuple[torch.Tensor, ...]
    _computed: tuple[torch.Tensor, ...]

    @property
    def computes(self) -> bool:
        """Whether anything follows from parameters: in-place changes of them need `refresh` then."""
        return self._part is not None

    def refresh(self) -> None:
        """Compute again what follows from the parameters, which must lie where they lay. Calls on any stream of a GPU
        that are under way end before, and later ones see what is new."""
        if self._part is None:
            return
        on_gpu = any(x.is_cuda for x in self._computed)
        if on_gpu:
            torch.cuda.synchronize(self._computed[0].device)
        with torch.no_grad():
            for old, new in zip(self._computed, self._part.forward(*self._held), strict=True):
                old.copy_(new)
        if on_gpu:
            torch.cuda.synchronize(self._computed[0].device)


def take_parameter_parts(
    module: fx.GraphModule, facts: GraphFacts, moving: int, held: Sequence[torch.Tensor]
) -> ParameterParts:
    """Split a graph that takes `moving` tensors of a call, then `held`, which stay the same from call to call.

    `facts` are those of this very graph. Nothing is taken out where the graph enters autocast, or where it would need
    more than `MOST_BYTES`.
    """
    whole = ParameterParts(module, tuple(held), (), None, (), ())
    if _autocasts(module.graph):
        return whole
    static = _static_nodes(module.graph, facts, moving)
    given = {number for node in _placeholders(module.graph)[moving:] for number in facts.node_storages[node.name]}
    cut = [
        node
        for node in static
        if node.op != "placeholder"
        and any(user not in static for user in node.users)
        and not facts.node_storages[node.name] & given  # a view of a parameter costs nothing
    ]
    if not cut:
        return whole
    part = _part(module, cut, moving)
    with torch.no_grad():
        made = part.forward(*held)
    if sum(x.numel() * x.element_size() for x in made) > MOST_BYTES:
        return whole
    computed = tuple(x.clone() if _overlaps(x) else x for x in made)
    main, used = _main(module, cut, moving)
    statics = (*(held[number] for number in used), *computed)
    left = {node.name for node in main.graph.nodes}
    taken = tuple(n.name for n in module.graph.nodes if n.op != "placeholder" and n.name not in left)
    return ParameterParts(main, statics, taken, part, tuple(held), computed)


def _autocasts(graph: fx.Graph) -> bool:
    """Whether the dtypes of some operators depend on where they stand: then none may be moved."""
    around = any(torch.is_autocast_enabled(kind) for kind in ("cpu", "cuda"))
    enters = [node for node in graph.nodes if node.target is _enter_autocast]
    return any(around or len(node.args) < 3 or node.args[2] is not False for node in enters)


def _placeholders(graph: fx.Graph) -> list[fx.Node]:
    return [node for node in graph.nodes if node.op == "placeholder"]


def _static_nodes(graph: fx.Graph, facts: GraphFacts, moving: int) -> dict[fx.Node, None]:
    """Nodes whose values are the same in every call, in order: they read held inputs and constants, give tensors,
    and nothing ever writes to their memory."""
    static = dict.fromkeys(_placeholders(graph)[moving:])
    if facts.random:
        return static
    for node in graph.nodes:
        if node.op not in ("call_function", "call_method", "get_attr"):
            continue
        memory = facts.node_storages.get(node.name, frozenset())
        fits = all(each in static for each in node.all_input_nodes) and memory
        taken_apart = len(memory) == 1 or all(user.target is operator.getitem for user in node.users)
        if fits and taken_apart and not memory & facts.written_storages:
            static[node] = None
    return static


def _part(module: fx.GraphModule, cut: Sequence[fx.Node], moving: int) -> fx.GraphModule:
    """A graph of the held inputs that gives the nodes in `cut`."""
    graph = fx.Graph()
    values: dict[fx.Node, fx.Node] = {}
    held = _placeholders(module.graph)[moving:]
    for node in held:
        values[node] = graph.node_copy(node)
    needed = _needed(cut)
    for node in module.graph.nodes:
        if node in needed and node not in values:
            values[node] = graph.node_copy(node, lambda old: values[old])
    graph.output(tuple(values[node] for node in cut))
    return fx.GraphModule(module, graph)


def _needed(nodes: Sequence[fx.Node]) -> set[fx.Node]:
    found: set[fx.Node] = set()
    ahead = [*nodes]
    while ahead:
        node = ahead.pop()
        if node not in found:
            found.add(node)
            ahead += node.all_input_nodes
    return found


def _main(module: fx.GraphModule, cut: Sequence[fx.Node], moving: int) -> tuple[fx.GraphModule, list[int]]:
    """The graph with the nodes in `cut` as further inputs, and which of the held inputs it still takes."""
    graph = fx.Graph()
    values: dict[fx.Node, fx.Node] = {}
    given = _placeholders(module.graph)
    for node in given:
        values[node] = graph.node_copy(node)
    for number, node in enumerate(cut):
        values[node] = graph.placeholder(f"computed_{number}")
        values[node].meta = {k: v for k, v in node.meta.items() if k == "example_value"}
    graph.output(graph.graph_copy(module.graph, values))
    graph.eliminate_dead_code(lambda node: node.op == "placeholder" or node.is_impure() or _writes(node))
    used = [n for n, node in enumerate(given[moving:]) if values[node].users]
    for node in given[moving:]:
        if not values[node].users:
            graph.erase_node(values[node])
    return fx.GraphModule(module, graph), used


def _writes(node: fx.Node) -> bool:
    """Whether a node does something by being run: its name ends in an underscore, it assigns or enters a context."""
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    if name in ("_enter_autocast", "_exit_autocast", "_set_grad_enabled"):
        return True
    return (name.endswith("_") and not name.endswith("__")) or name in _ASSIGNS or "out" in node.kwargs


_ASSIGNS = frozenset(
    "setitem iadd iand ifloordiv ilshift imatmul imod imul ior ipow irshift isub itruediv ixor".split()
)


def _overlaps(tensor: torch.Tensor) -> bool:
    """Whether elements share memory, as those of an expanded tensor do: it cannot be written to."""
    return any(stride == 0 and size > 1 for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


class ModuleState:
    """The modules of a model and their hooks as they are now: dynamo's guards do not ask for either.

    `unchanged` is asked in every call, for hundreds of modules, so it loops in C.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        modules = dict.fromkeys(model.modules())
        found = [(module._modules, key, child) for module in modules for key, child in module._modules.items()]
        self._groups = [group for group, _, _ in found]
        self._keys = [key for _, key, _ in found]
        self._children = [child for _, _, child in found]
        hooks = [vars(module)[name] for module in modules for name in _HOOKS] + _hooks_of_all()
        self._unhooked = [group for group in hooks if not group]
        self._hooked = [(group, dict(group)) for group in hooks if group]

    def unchanged(self) -> bool:
        """Whether each module stands in its place, with the hooks that it had."""
        if any(self._unhooked) or not all(map(is_, map(dict.get, self._groups, self._keys), self._children)):
            return False
        return all(group == before for group, before in self._hooked)


_HOOKS = ("_forward_hooks", "_forward_pre_hooks")


def _hooks_of_all() -> list[dict[int, Any]]:
    return [getattr(torch.nn.modules.module, f"_global{name}") for name in _HOOKS]


class HeldState:
    """Parameters as they are now: triples of a dictionary of a module, a key and the tensor that stands there.

    `unchanged` is asked in every call, for hundreds of tensors, so it loops in C where it can.
    """

    def __init__(self, places: Iterable[tuple[dict[str, Any], str, torch.Tensor]]) -> None:
        found = list(places)
        self._groups = [group for group, _, _ in found]
        self._keys = [key for _, key, _ in found]
        self._tensors = [tensor for _, _, tensor in found]
        self._pointers = [tensor.data_ptr() for tensor in self._tensors]
        self._versions = [tensor._version for tensor in self._tensors]
        self._indices = list(range(len(found)))

    def unchanged(self) -> bool:
        """Whether each tensor stands in its place, in the same memory, and nobody has written to it."""
        if not all(map(is_, map(dict.get, self._groups, self._keys), self._tensors)):
            return False
        return list(map(_versions, self._tensors)) == self._versions and self._in_place()

    def same_memory(self, tensors: Sequence[torch.Tensor]) -> bool:
        """Whether these are the tensors, in the memory of then."""
        pointers = {id(x): pointer for x, pointer in zip(self._tensors, self._pointers, strict=True)}
        return all(pointers.get(id(x)) == x.data_ptr() for x in tensors)

    def _in_place(self) -> bool:
        if _same_pointers is not None:
            return _same_pointers(self._tensors, self._pointers, self._indices)
        return list(map(torch.Tensor.data_ptr, self._tensors)) == self._pointers

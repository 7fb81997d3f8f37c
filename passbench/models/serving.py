"""Regions of a graph served by passes: each match becomes an operator of torch's, which every compiler leaves whole."""

import hashlib
import os
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.node import map_aggregate, map_arg

from passbench.contract import PassRule, load_rules
from passbench.library.pass_library import LibraryEntry, PassLibrary
from passbench.matching.rewrite import apply_pass
from passbench.models.graph_facts import calls_of
from storage.graph.as_fx import to_fx
from storage.records import dtype_of

NAMESPACE = "passnet_serving"
_library = torch.library.Library(NAMESPACE, "FRAGMENT")
_defined: dict[str, Callable] = {}


def server(
    entries: Sequence[LibraryEntry], device: torch.device
) -> Callable[[fx.GraphModule, Sequence[str]], dict[str, int]]:
    """A function that rewrites a module in place so that the entries of these names serve it, in their order.

    It returns the matches by entry. A match is served only where its replacement gets arguments of the very kinds
    (dtypes, shapes, strides, constants) that PassBench has found right: a pass that is right for one shape may be wrong
    for another. Using an entry runs its code in this process: give entries that may serve here. The module's nodes must
    bear dynamo's example values. It raises ContractError for a malformed pass.
    """
    known = {entry.name: entry for entry in entries}

    def serve(module: fx.GraphModule, names: Sequence[str]) -> dict[str, int]:
        matches: dict[str, int] = {}
        for name in names:
            entry = known[name]
            files = entry.files()
            rules = load_rules(entry.pass_directory, files.names)
            measured = _measured_calls(entry, rules, device)
            applied = apply_pass(module.graph, rules, lambda rule, given, m=measured: (rule.name, _kinds(given)) in m)
            digest = hashlib.sha256(repr(sorted(files.files.items())).encode()).hexdigest()
            for call in applied.inserted:
                _make_operator(call, digest)
                call.meta["entry"] = name
            if applied.total:
                matches[name] = applied.total
        module.graph.lint()
        module.recompile()
        return matches

    return serve


def _measured_calls(entry: LibraryEntry, rules: list[PassRule], device: torch.device) -> set[tuple[str, tuple]]:
    """The calls that the pass becomes in the variants that were measured here: rule, and kinds of arguments."""
    found = set()
    for row in entry.here(device):
        graph = to_fx(entry.graph, device)
        module = fx.GraphModule(torch.nn.Module(), graph)
        with FakeTensorMode(), torch.no_grad():
            inputs = [_example(given, device) for given in entry.problem["variants"][row["variant_hash"]]]
            _WithExamples(module).run(*inputs)
        for call in apply_pass(module.graph, rules).inserted:
            found.add((call.meta["rule"], _kinds(call.args)))
    return found


class _WithExamples(fx.Interpreter):
    """Runs a graph and leaves each value at its node, as dynamo does."""

    def run_node(self, node: fx.Node) -> Any:
        node.meta["example_value"] = super().run_node(node)
        return node.meta["example_value"]


def _example(given: dict[str, Any], device: torch.device) -> Any:
    if given["dtype"] == "int":
        return 1
    return torch.empty_strided(given["shape"], given["stride"], dtype=dtype_of(given["dtype"]), device=device)


def _kinds(arguments: Any) -> tuple:
    """What a replacement gets, without values: of tensors dtype, shape and stride, constants as text."""

    def kind(value: Any) -> Any:
        if isinstance(value, fx.Node):
            example = value.meta.get("example_value")
            if not isinstance(example, torch.Tensor):
                return repr(example)
            return repr((example.dtype, tuple(example.shape), tuple(example.stride())))
        if isinstance(value, dict):
            return (*value.keys(), *_kinds([*value.values()]))
        return repr(value) if not isinstance(value, tuple | list) else _kinds(value)

    return tuple(kind(value) for value in arguments)


def passes_for(library: str | None, graph: fx.Graph, device: torch.device) -> tuple[list[LibraryEntry], dict[str, str]]:
    """The passes of a library that may serve the graph, the largest first, and why others may not."""
    if library is None:
        return [], {}
    fit = fitting(PassLibrary(library).entries(), graph)
    reasons = {
        entry.name: entry.why_not(device) or _no_triton(entry, device) or _slower(entry, device) for entry in fit
    }
    may = [entry for entry in fit if not reasons[entry.name]]
    by_size = sorted(may, key=lambda entry: (-len(entry.graph.ops), entry.name))
    return by_size, {name: why for name, why in reasons.items() if why}


def _no_triton(entry: LibraryEntry, device: torch.device) -> str:
    kernels = any("triton" in text for text in entry.files().modules.values())
    if device.type == "cuda" or not kernels or os.environ.get("TRITON_INTERPRET") == "1":
        return ""
    return "Triton's kernels run on a CPU in its interpreter alone (TRITON_INTERPRET=1)"


def _slower(entry: LibraryEntry, device: torch.device) -> str:
    """The device's clock decides where there is one, since a CUDA graph takes the host's part away."""
    speedup = entry.speedup(device, "device") or entry.speedup(device)
    return "" if speedup is None or speedup > 1 else f"it was no faster than eager when it was measured ({speedup:.2f})"


def fitting(entries: Sequence[LibraryEntry], graph: fx.Graph) -> list[LibraryEntry]:
    """Entries whose operators the graph has, whatever they are spelt as: others cannot match."""
    have = {_plain_name(node.target) for node in calls_of(graph)}
    return [entry for entry in entries if {_plain_name(name) for name in entry.graph.op_sequence} <= have]


def _plain_name(target: Any) -> str:
    name = target if isinstance(target, str) else getattr(target, "__name__", str(target))
    return name.rpartition(".")[2].strip("_")


def _make_operator(call: fx.Node, digest: str) -> None:
    """Turn a call of a replacement into one of an operator of the same tensors; other arguments become part of it."""
    examples = call.meta["replaced"]
    tensors: list[fx.Node] = []

    def place(node: fx.Node) -> Any:
        if node not in tensors:
            tensors.append(node)
        return _Slot(tensors.index(node))

    arguments = map_arg(call.args, place)
    kinds = [(tuple(x.shape), tuple(x.stride()), str(x.dtype), str(x.device)) for x in examples]
    said = repr((digest, call.target.__name__, arguments, kinds, call.meta["single"]))
    name = f"{call.target.__name__}_{hashlib.sha256(said.encode()).hexdigest()[:16]}"
    if name not in _defined:
        _defined[name] = _define(name, call.target, arguments, len(tensors), examples, call.meta["single"])
    call.target, call.args = _defined[name], tuple(tensors)


class _Slot:
    """Stands for a tensor among an operator's arguments."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __repr__(self) -> str:
        return f"<{self.number}>"


def _define(
    name: str, replacement: Callable, arguments: tuple, count: int, examples: Sequence[torch.Tensor], single: bool
) -> Callable:
    kinds = [(tuple(x.shape), tuple(x.stride()), x.dtype) for x in examples]
    result = "Tensor" if single else "Tensor[]"
    _library.define(f"{name}({', '.join(f'Tensor a{n}' for n in range(count))}) -> {result}")

    def run(*tensors: torch.Tensor) -> Any:
        made = replacement(*map_aggregate(arguments, lambda x: tensors[x.number] if isinstance(x, _Slot) else x))
        outputs = [made] if isinstance(made, torch.Tensor) else list(made)
        own = [_as_eager(x, kind, tensors) for x, kind in zip(outputs, kinds, strict=True)]
        return own[0] if single else own

    def fake(*tensors: torch.Tensor) -> Any:
        made = [tensors[0].new_empty_strided(shape, stride, dtype=dtype) for shape, stride, dtype in kinds]
        return made[0] if single else made

    _library.impl(name, run, "CompositeExplicitAutograd")
    torch.library.register_fake(f"{NAMESPACE}::{name}", fake, lib=_library)
    return getattr(getattr(torch.ops, NAMESPACE), name).default


def _as_eager(x: torch.Tensor, kind: tuple, inputs: Sequence[torch.Tensor]) -> torch.Tensor:
    """An output with eager's strides, in memory of its own."""
    shape, stride, dtype = kind
    if tuple(x.shape) != shape or x.dtype != dtype:
        raise ValueError(f"a pass gave {tuple(x.shape)} {x.dtype} where eager has {shape} {dtype}")
    shared = any(x.untyped_storage().data_ptr() == given.untyped_storage().data_ptr() for given in inputs)
    if x.stride() == stride and not shared:
        return x
    return torch.empty_strided(shape, stride, dtype=dtype, device=x.device).copy_(x)

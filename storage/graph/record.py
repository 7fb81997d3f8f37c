"""A graph as data: numbered values, ops by name. `storage.graph.as_fx` and `storage.graph.as_json` convert it.

Values are numbered: inputs first, then the result of each op in order. An op's arguments refer to values by number
(`Ref`), so a record holds no names. Devices do not belong to a graph's identity: every device constant becomes
`RUN_DEVICE`, the device on which the graph is run.
"""

import copyreg
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from storage.errors import PassNetError


class GraphError(PassNetError):
    """A graph that cannot be stored or rebuilt: malformed, or outside what a record can say."""


@dataclass(frozen=True, order=True)
class Ref:
    """The value with this number: an input if below the graph's input count, else the result of an op."""

    index: int


@dataclass(frozen=True)
class RunDevice:
    """The device on which the graph runs; stands for every device constant."""


RUN_DEVICE = RunDevice()


@dataclass(frozen=True)
class Sym:
    """A number that follows the sizes of a model's inputs: an expression such as `batch*(height//4)`.

    Graphs between tracing and varying hold them; `storage.graph.symbols.at` puts numbers there. A dataset has none.
    """

    expression: str


Value = Any
"""None, bool, int, float, complex, str, Ref, RunDevice, Sym, Ellipsis, torch dtype/layout/memory format, and tuples,
lists, slices and string-keyed dicts of these."""


def _memory_format(name: str) -> torch.memory_format:
    return getattr(torch, name)


copyreg.pickle(torch.memory_format, lambda form: (_memory_format, (str(form).removeprefix("torch."),)))
"""By itself a memory format is pickled as an attribute of whichever module pickle finds first to hold it. That was
`__main__` once, and the process that read the graph has another one."""


@dataclass(frozen=True)
class Op:
    """One operation: `kind` is "function" or "method", `target` a name in the allowlist."""

    kind: str
    target: str
    args: tuple
    kwargs: dict[str, Value]

    def __hash__(self) -> int:
        return hash((self.kind, self.target))


@dataclass(frozen=True)
class Graph:
    """`inputs` values go in, `ops` run in order, `output` (a Ref, or a tuple/list/dict of them) comes out."""

    inputs: int
    ops: tuple[Op, ...]
    output: Value

    @property
    def op_sequence(self) -> list[str]:
        """Op targets in order; methods carry a leading dot."""
        return [op_name(op) for op in self.ops]


def op_name(op: Op) -> str:
    """The op's target, with a leading dot for methods: `torch.relu`, `.view`."""
    return op.target if op.kind == "function" else f".{op.target}"


def refs(value: Value) -> Iterator[Ref]:
    """All references in a value, depth first, left to right; repeated ones repeatedly."""
    if isinstance(value, Ref):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from refs(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from refs(item)
    elif isinstance(value, slice):
        for item in (value.start, value.stop, value.step):
            yield from refs(item)


def map_refs(value: Value, f: Callable[[Ref], Any]) -> Value:
    """`value` with `f(ref)` in place of every reference."""
    if isinstance(value, Ref):
        return f(value)
    if isinstance(value, tuple):
        return tuple(map_refs(item, f) for item in value)
    if isinstance(value, list):
        return [map_refs(item, f) for item in value]
    if isinstance(value, dict):
        return {key: map_refs(item, f) for key, item in value.items()}
    if isinstance(value, slice):
        return slice(map_refs(value.start, f), map_refs(value.stop, f), map_refs(value.step, f))
    return value


@dataclass(frozen=True)
class Cut:
    """Ops `[start, end)` of a graph as a graph of its own.

    `inputs` and `outputs` are the numbers, in the whole graph, of the values that go in and come out.
    """

    graph: Graph
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def last_uses(graph: Graph) -> list[int]:
    """For each value the number of the last op that reads it: −1 for none, the op count if the graph returns it."""
    last = [-1] * (graph.inputs + len(graph.ops))
    for number, op in enumerate(graph.ops):
        for ref in refs((op.args, op.kwargs)):
            last[ref.index] = number
    for ref in refs(graph.output):
        last[ref.index] = len(graph.ops)
    return last


def cut(graph: Graph, start: int, end: int, last: Sequence[int] | None = None) -> Cut:
    """The subgraph of ops `[start, end)`: inputs are what it reads, in order of first use; outputs are what is read
    later or returned (its last value if nothing is). Its output is always a tuple.

    `last` is `last_uses(graph)`; who cuts one graph often passes it, and a cut costs its own length.
    Raises ValueError on an empty or outlying range.
    """
    if not 0 <= start < end <= len(graph.ops):
        raise ValueError(f"no ops in [{start}, {end}) of a graph of {len(graph.ops)}")
    first, beyond = graph.inputs + start, graph.inputs + end
    ops = graph.ops[start:end]
    inputs = list(dict.fromkeys(r.index for op in ops for r in refs((op.args, op.kwargs)) if r.index < first))
    last = last_uses(graph) if last is None else last
    outputs = [number for number in range(first, beyond) if last[number] >= end] or [beyond - 1]
    renumbered = {old: Ref(new) for new, old in enumerate([*inputs, *range(first, beyond)])}

    def renumber(ref: Ref) -> Ref:
        return renumbered[ref.index]

    new_ops = tuple(Op(op.kind, op.target, map_refs(op.args, renumber), map_refs(op.kwargs, renumber)) for op in ops)
    return Cut(Graph(len(inputs), new_ops, tuple(renumbered[n] for n in outputs)), tuple(inputs), tuple(outputs))

"""Rows of the dataset as typed records: what rooms hand to each other, and what Parquet holds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

import torch

from storage.graph.as_json import from_json, to_json
from storage.graph.record import Graph
from storage.graph.symbols import at


def dtype_name(dtype: torch.dtype) -> str:
    """`torch.float32` → "float32"."""
    return str(dtype).removeprefix("torch.")


def dtype_of(name: str) -> torch.dtype:
    """ "float32" → `torch.float32`. Raises ValueError on anything that is not a dtype."""
    dtype = vars(torch).get(name)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"{name!r} is not a torch dtype")
    return dtype


def contiguous_stride(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of a contiguous tensor, in elements."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


@dataclass(frozen=True)
class Input:
    """One input of a subgraph: shape in elements, stride in elements, and how its values are drawn.

    Values come uniformly from [low, high] if `low` is given, else from a normal distribution of `mean` and `std`.
    `role` is "input", "parameter" or "buffer". `symbolic_shape` and `symbolic_stride` are expressions of
    `storage.graph.symbols` in the symbols of its model, one a dimension; None where the model was traced with fixed
    sizes.
    """

    name: str
    role: str
    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    symbolic_shape: tuple[str, ...] | None = None
    low: float | None = None
    high: float | None = None
    mean: float | None = None
    std: float | None = None
    symbolic_stride: tuple[str, ...] | None = None

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """From one element of the `inputs` column."""
        values = {name: row[name] for name in cls.__dataclass_fields__}
        for name in ("shape", "stride", "symbolic_shape", "symbolic_stride"):
            values[name] = None if values[name] is None else tuple(values[name])
        return cls(**values)

    def to_row(self) -> dict[str, Any]:
        """As one element of the `inputs` column."""
        return {f.name: _plain(getattr(self, f.name)) for f in fields(self)}


@dataclass(frozen=True)
class Output:
    """One output of a subgraph: dtype, shape and stride in elements."""

    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]


@dataclass(frozen=True)
class Source:
    """Where a subgraph stood: ops `[start, end)` of the graph of a model (`timm:resnet18`, or `…#2` for its third
    graph)."""

    model: str
    start: int
    end: int


@dataclass(frozen=True)
class TracedGraph:
    """One graph that dynamo captured from a model, before it is cut.

    `kernels[n]` are the numbers of the TorchInductor kernels that op n needs
    (`extraction.kernels.lowering.kernels_by_op`); `kernels` is None where TorchInductor cannot lower the graph, and
    `lowering_error` says why.

    `symbols` are the sizes that may change, by name, with their values in this trace; constants that follow them are
    `Sym` in `graph`. `symbolic[v]` are the expressions of shape and of stride of value v of the graph, None for what
    is no tensor; it is empty where there are no symbols.
    """

    model: str
    index: int
    graph: Graph
    inputs: tuple[Input, ...]
    kernels: tuple[tuple[int, ...], ...] | None = None
    lowering_error: str = ""
    symbols: Mapping[str, int] = field(default_factory=dict)
    symbolic: tuple[tuple[tuple[str, ...], tuple[str, ...]] | None, ...] = ()

    @property
    def concrete(self) -> Graph:
        """The graph with the numbers of this trace in place of expressions."""
        return at(self.graph, self.symbols)

    @property
    def source(self) -> str:
        """The model's name, with `#n` for its graphs after the first."""
        return f"{self.model}#{self.index}" if self.index else self.model


@dataclass(frozen=True)
class Variant:
    """A subgraph with concrete inputs: one row of the `subgraphs` table. Hashes are empty until dedup sets them.

    `symbols` are the sizes that its shapes and constants follow, by name, with their values here. Before it is varied,
    a subgraph may hold `Sym` constants; variants have numbers. `direction` is "forward", or "backward" for the graph
    of the gradients of a forward subgraph.
    """

    category: str
    graph: Graph
    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    sources: tuple[Source, ...] = ()
    kernels: int | None = None
    code: str = ""
    variant_hash: str = ""
    graph_hash: str = ""
    family_hash: str = ""
    occurrences: int = 1
    direction: str = "forward"
    symbols: Mapping[str, int] = field(default_factory=dict)

    def with_changes(self, **changes: Any) -> Self:
        """A copy with these fields changed."""
        return replace(self, **changes)

    @classmethod
    def from_row(cls, row: Mapping[str, Any], graph: Graph | None = None) -> Self:
        """From a row of the `subgraphs` table (`Table.to_pylist()`). `graph` is the row's, where it has been read.

        Raises GraphError on a malformed graph.
        """
        return cls(
            category=row["category"],
            graph=from_json(row["graph"]) if graph is None else graph,
            inputs=tuple(Input.from_row(r) for r in row["inputs"]),
            outputs=tuple(Output(r["dtype"], tuple(r["shape"]), tuple(r["stride"])) for r in row["outputs"]),
            sources=tuple(Source(**r) for r in row["sources"]),
            **{k: row[k] for k in ("kernels", "code", "variant_hash", "graph_hash", "family_hash", "occurrences")},
            direction=row["direction"] or "forward",
            symbols=dict(row["symbols"] or {}),
        )

    def to_row(self) -> dict[str, Any]:
        """As a row of the `subgraphs` table."""
        return {
            "category": self.category,
            "op_sequence": self.graph.op_sequence,
            "graph": to_json(self.graph),
            "inputs": [i.to_row() for i in self.inputs],
            "outputs": [{k: _plain(v) for k, v in vars(o).items()} for o in self.outputs],
            "sources": [vars(s) for s in self.sources],
            **{
                k: getattr(self, k)
                for k in ("kernels", "code", "variant_hash", "graph_hash", "family_hash", "occurrences", "direction")
            },
            "symbols": dict(self.symbols),
        }


@dataclass(frozen=True)
class Sample:
    """A task: all variants of one family in one category."""

    sample: str
    family_hash: str
    category: str
    split: str
    variants: tuple[Variant, ...]
    rarity: float = 0.0
    reason: str = ""

    def to_row(self) -> dict[str, Any]:
        """As a row of the `samples` table; variants by hash."""
        return {
            **{k: getattr(self, k) for k in ("sample", "family_hash", "category", "split", "rarity", "reason")},
            "variants": [v.variant_hash for v in self.variants],
            "op_sequence": self.variants[0].graph.op_sequence,
        }


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value

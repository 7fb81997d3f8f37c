"""Graphs for tests: random ones from hypothesis, and small real ones from dynamo."""

import functools
import math
from collections.abc import Sequence

import torch
from hypothesis import assume
from hypothesis import strategies as st

from extraction.kernels.lowering import kernels_by_op
from storage.graph.as_fx import from_fx, to_module
from storage.graph.record import RUN_DEVICE, Graph, Op, Ref, map_refs, refs
from storage.records import Input, TracedGraph, dtype_name, dtype_of

constants = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.complex_numbers(),
    st.text(max_size=8),
    st.just(Ellipsis),
    st.just(RUN_DEVICE),
    st.sampled_from([torch.float32, torch.int64, torch.bool, torch.strided, torch.channels_last]),
)


@functools.cache  # what a strategy does not hold yet is made anew with each graph, and takes most of its time
def values(available: int) -> st.SearchStrategy:
    """Argument values over references below `available`."""
    leaves = st.one_of(constants, st.integers(0, available - 1).map(Ref)) if available else constants
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.lists(inner, max_size=3).map(tuple),
            st.builds(slice, inner, inner, inner),
            st.dictionaries(st.text(max_size=4), inner, max_size=2),
        ),
        max_leaves=6,
    )


@st.composite
def records(draw: st.DrawFn) -> Graph:
    """Well-formed graphs with every kind of constant; most would not run."""
    inputs = draw(st.integers(1, 4))
    ops = []
    for number in range(draw(st.integers(1, 6))):
        available = inputs + number
        names = st.sampled_from(["input", "dim", "dtype", "value", "alpha"])
        kwargs = draw(st.dictionaries(names, values(available), max_size=2))
        args = tuple(draw(st.lists(values(available), max_size=3)))
        if draw(st.booleans()):
            self = Ref(draw(st.integers(0, available - 1)))
            ops.append(Op("method", draw(st.sampled_from(["view", "add", "relu_", "sum"])), (self, *args), kwargs))
        else:
            target = draw(st.sampled_from(["torch.relu", "torch.cat", "torch.nn.functional.pad", "torch.tensor"]))
            ops.append(Op("function", target, args, kwargs))
    return Graph(inputs, tuple(ops), draw(values(inputs + len(ops))))


_UNARY = ("torch.relu", "torch.sigmoid", "torch.tanh", "torch.abs", "operator.neg")
_BINARY = ("operator.add", "operator.sub", "operator.mul", "torch.maximum", "operator.matmul")
_IN_PLACE = ("operator.iadd", "operator.imul")
SIDE = 3


@st.composite
def runnable(draw: st.DrawFn, in_place: bool = False) -> Graph:
    """Graphs over SIDE×SIDE matrices that run, on SIDE×SIDE inputs; with `in_place` also views and changes."""
    inputs = draw(st.integers(1, 3))
    ops: list[Op] = []
    for number in range(draw(st.integers(1, 10))):
        pick = st.integers(0, inputs + number - 1).map(Ref)
        kind = draw(
            st.sampled_from(["unary", "binary", "constant", *(["view", "in place", "method", "row"] * in_place)])
        )
        if kind == "unary":
            ops.append(Op("function", draw(st.sampled_from(_UNARY)), (draw(pick),), {}))
        elif kind == "binary":
            ops.append(Op("function", draw(st.sampled_from(_BINARY)), (draw(pick), draw(pick)), {}))
        elif kind == "constant":
            ops.append(Op("function", "operator.mul", (draw(pick), draw(st.sampled_from([2, 0.5, -1.0]))), {}))
        elif kind == "view":
            ops.append(Op("method", "transpose", (draw(pick), 0, 1), {}))
        elif kind == "in place":
            ops.append(Op("function", draw(st.sampled_from(_IN_PLACE)), (draw(pick), draw(pick)), {}))
        elif kind == "method":
            ops.append(Op("method", draw(st.sampled_from(["relu_", "tanh_", "neg_"])), (draw(pick),), {}))
        else:
            ops.append(Op("function", "torch.nn.functional.relu", (draw(pick),), {"inplace": draw(st.booleans())}))
    outputs = draw(st.lists(st.integers(0, inputs + len(ops) - 1).map(Ref), min_size=1, max_size=3))
    graph = Graph(inputs, tuple(ops), tuple(outputs))
    assume(_runs(graph))
    return graph


def _runs(graph: Graph) -> bool:
    try:
        run(graph, matrices(graph.inputs))
    except RuntimeError as error:  # x += x.T is not allowed
        assert "memory location" in str(error)
        return False
    return True


def listed(graph: Graph, ops: Sequence[int], inputs: Sequence[int]) -> Graph:
    """The same graph with its ops and its inputs listed in another order."""
    numbers = {old: Ref(new) for new, old in enumerate([*inputs, *(graph.inputs + op for op in ops)])}

    def renumber(ref: Ref) -> Ref:
        return numbers[ref.index]

    chosen = [graph.ops[op] for op in ops]
    return Graph(
        graph.inputs,
        tuple(Op(o.kind, o.target, map_refs(o.args, renumber), map_refs(o.kwargs, renumber)) for o in chosen),
        map_refs(graph.output, renumber),
    )


@st.composite
def reordered(draw: st.DrawFn, graph: Graph) -> Graph:
    """The graph with its inputs permuted and its ops in another order that their arguments allow."""
    inputs = draw(st.permutations(range(graph.inputs)))
    needs = {
        number: {r.index - graph.inputs for r in refs((op.args, op.kwargs)) if r.index >= graph.inputs}
        for number, op in enumerate(graph.ops)
    }
    order: list[int] = []
    while needs:
        ready = sorted(number for number, needed in needs.items() if needed <= set(order))
        order.append(draw(st.sampled_from(ready)))
        needs.pop(order[-1])
    return listed(graph, order, inputs)


def matrices(count: int, seed: int = 0) -> list[torch.Tensor]:
    """SIDE×SIDE float64 matrices with entries in [−1, 1]."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.rand(SIDE, SIDE, generator=generator, dtype=torch.float64) * 2 - 1 for _ in range(count)]


def run(graph: Graph, inputs: Sequence[torch.Tensor]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Outputs, and what the inputs are afterwards."""
    copies = [tensor.clone() for tensor in inputs]
    with torch.no_grad():
        outputs = to_module(graph, "cpu").forward(*copies)
    return [tensor.clone() for tensor in outputs], copies


def same(left: Sequence[torch.Tensor], right: Sequence[torch.Tensor]) -> bool:
    """Whether two lists of tensors are equal, NaN where the other has NaN."""
    return len(left) == len(right) and all(
        torch.equal(a.nan_to_num(nan=7.0), b.nan_to_num(nan=7.0)) for a, b in zip(left, right, strict=True)
    )


def capture(module: torch.nn.Module, *arguments: torch.Tensor, model: str = "test") -> TracedGraph:
    """The graph that dynamo captures from a module in evaluation, with TorchInductor's kernels."""
    captured = []

    def backend(graph_module: torch.fx.GraphModule, examples: list[torch.Tensor]) -> object:
        placeholders = [node.name for node in graph_module.graph.nodes if node.op == "placeholder"]
        inputs = tuple(_input(n, t) for n, t in zip(placeholders, examples, strict=True))
        captured.append((from_fx(graph_module.graph), inputs))
        return graph_module.forward

    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(module.eval(), backend=backend, dynamic=False)(*arguments)
    ((graph, inputs),) = captured
    kernels = tuple(tuple(sorted(needed)) for needed in kernels_by_op(graph, inputs))
    return TracedGraph(model, 0, graph, inputs, kernels)


def _input(name: str, tensor: torch.Tensor) -> Input:
    role = "parameter" if isinstance(tensor, torch.nn.Parameter) else "buffer" if "buffers" in name else "input"
    ranges = {"mean": 0.0, "std": 0.5} if tensor.is_floating_point() else {"low": 0.0, "high": 1.0}
    if "running_var" in name:
        ranges = {"low": 0.5, "high": 1.5}
    return Input(name, role, dtype_name(tensor.dtype), tuple(tensor.shape), tuple(tensor.stride()), None, **ranges)


def drawn(inputs: Sequence[Input], seed: int = 0) -> list[torch.Tensor]:
    """Tensors drawn as `Input` says."""
    generator = torch.Generator().manual_seed(seed)
    return [_drawn(each, generator) for each in inputs]


def _drawn(each: Input, generator: torch.Generator) -> torch.Tensor:
    dtype = dtype_of(each.dtype)
    steps = zip(each.shape, each.stride, strict=True)
    size = 1 + sum((extent - 1) * stride for extent, stride in steps) if math.prod(each.shape) else 0
    if not dtype.is_floating_point:
        flat = torch.randint(int(each.low), int(each.high) + 1, (size,), generator=generator)
    elif each.low is not None:
        flat = torch.rand(size, generator=generator) * (each.high - each.low) + each.low
    else:
        flat = torch.randn(size, generator=generator) * each.std + each.mean
    return flat.to(dtype).as_strided(each.shape, each.stride)


class Block(torch.nn.Module):
    """A pre-norm attention block with an MLP: views, unbind, dropout, two residuals."""

    def __init__(self, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.qkv, self.projection = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 2 * width), torch.nn.Linear(2 * width, width)
        self.dropout = torch.nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).reshape(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, length, width)
        x = x + self.dropout(self.projection(y))
        return x + self.dropout(self.down(torch.nn.functional.gelu(self.up(self.norm2(x)))))


class Residual(torch.nn.Module):
    """Convolutions with batch norm, in-place activations and an in-place residual."""

    def __init__(self, channels: int = 8) -> None:
        super().__init__()
        self.conv1 = torch.nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.conv2 = torch.nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm1, self.norm2 = torch.nn.BatchNorm2d(channels), torch.nn.BatchNorm2d(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.nn.functional.relu(self.norm1(self.conv1(x)), inplace=True)
        y = self.norm2(self.conv2(y))
        y += x
        return torch.nn.functional.relu(y, inplace=True)


class Embedder(torch.nn.Module):
    """Token and position embeddings, a masked softmax and a root: integers, masks and positive numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = torch.nn.Embedding(11, 8), torch.nn.Embedding(7, 8)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        mask = ids.ne(1)
        positions = mask.int().cumsum(1).long() * mask
        x = self.tokens(ids) + self.positions(positions)
        scores = (x @ x.transpose(1, 2)).masked_fill(~mask[:, None, :], -1e4).softmax(-1)
        x = scores @ x
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


@functools.cache
def corpus() -> tuple[TracedGraph, ...]:
    """Three small real graphs: two blocks of attention, two residual blocks, embeddings."""
    with torch.device("meta"):
        blocks, convolutions = torch.nn.Sequential(Block(), Block()), torch.nn.Sequential(Residual(), Residual())
        embedder = Embedder()
        sequence, image = torch.zeros(1, 16, 32), torch.zeros(1, 8, 10, 10)
        tokens = torch.zeros(1, 6, dtype=torch.int64)
    return (
        capture(blocks, sequence, model="test:attention"),
        capture(convolutions, image, model="test:convolution"),
        capture(embedder, tokens, model="test:embedding"),
    )

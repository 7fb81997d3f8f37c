"""What eager does with a graph, found out on fake tensors: layouts, aliases, writes and launches of every op."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from math import prod
from typing import Any

import torch
from torch import fx
from torch._prims_common import suggest_memory_format
from torch._subclasses import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from agent.distill.eager.layouts import as_eager_lays_out
from storage.errors import PassNetError, in_one_line
from storage.graph.as_fx import to_fx
from storage.graph.as_json import to_json
from storage.graph.record import RUN_DEVICE, Graph, refs
from storage.records import Input, contiguous_stride, dtype_name, dtype_of


class OpEffectsError(PassNetError):
    """Eager itself does not run this graph on fake tensors; the message carries its reason."""


@dataclass(frozen=True)
class TensorLayout:
    """A tensor's dtype, shape and stride in elements, offset into its storage, and which storage that is."""

    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    storage: int

    def as_input(self, name: str) -> Input:
        """As the description of an input."""
        return Input(name, "input", self.dtype, self.shape, self.stride)


@dataclass(frozen=True)
class Addition:
    """A tensor that eager adds up along its `reduced` dimensions. `op` is "sum", "mean", "layer_norm", "rms_norm",
    "group_norm", whose tensor has a row for each group, "batch_norm", "softmax", which adds the exponentials, "norm",
    which adds the squares and takes the root, or the backward of one of these: "softmax_backward" adds the products of
    gradient and output, "layer_norm_backward" and "batch_norm_backward" the gradient and its products. "index_put" adds
    to places: its tensor (B, N, S) has what N places get, of B in the dimensions before theirs and S in those behind;
    where S is more than `WARP_SLICE`, the first of N is what is there before. "cumsum" adds up to each element, along a
    dimension with others behind it. "weight_norm" adds the squares of a contiguous tensor along all dimensions but its
    first or its last. The tensor begins `apart` bytes behind a vector of eager's kernels, 0 where it begins with
    one."""

    op: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    reduced: tuple[int, ...]
    apart: int = 0

    @property
    def along_last(self) -> bool:
        """Whether the last dimension is reduced."""
        return len(self.shape) - 1 in self.reduced

    @property
    def turn(self) -> tuple[int, ...]:
        """The reduced dimensions as eager goes along them, the outermost first. Sums, means and norms go along memory
        wherever it lies, the others along contiguous copies or by the dimensions' numbers."""
        if self.op not in ("sum", "mean", "norm"):
            return self.reduced
        return tuple(sorted(self.reduced, key=lambda d: -self.stride[d]))


@dataclass(frozen=True)
class OpEffects:
    """Facts about the values of one graph, by value number, and about its ops, by op number.

    `values` holds a TensorLayout for a tensor, a tuple for a tuple or list of values, None for anything else.
    `launches` counts the library calls of an op that run something on the device, views and allocations excluded.
    `reads` and `writes` are the storages that an op touches. `on_host` are the values that stay on the CPU wherever the
    graph runs. `additions` is what each op adds along dimensions. `flops` are each op's floating operations in matrix
    products, convolutions and attention. `apart` are the linears whose bias eager adds in a launch of its own, behind
    the product: those of inputs of three and more dimensions that are not contiguous. `turns` are those of a loop that
    each thread of an op's kernel goes through however small its tensors are: over all channels of all images, in an
    interpolation. `waits` are the ops for which the host waits for the device: numbers of the host go there, or a
    decomposition of matrices tells how it went.
    """

    values: tuple[Any, ...]
    launches: tuple[int, ...]
    reads: tuple[frozenset[int], ...]
    writes: tuple[frozenset[int], ...]
    on_host: frozenset[int] = frozenset()
    additions: tuple[tuple[Addition, ...], ...] = ()
    flops: tuple[int, ...] = ()
    apart: frozenset[int] = frozenset()
    turns: tuple[int, ...] = ()
    waits: frozenset[int] = frozenset()

    def products_added(self, op: int) -> int:
        """How many products an op adds to each element of its result, if it is one product of matrices, else 0; what a
        convolution or attention would add if it were one."""
        made, flops = self.values[len(self.values) - len(self.flops) + op], self.flops[op]
        elements = prod(made.shape) if isinstance(made, TensorLayout) else 0
        return flops // (2 * elements) if elements else 0


def find_effects(graph: Graph, inputs: Sequence[Input]) -> OpEffects:
    """Runs the graph on fake CPU tensors and notes what happens. Raises OpEffectsError where that fails.

    The latest answers are kept: an author asks the same of a graph for each way of rounding, and of equal regions.
    """
    return _effects(_Question(to_json(graph), tuple((i.dtype, i.shape, i.stride) for i in inputs), graph))


@dataclass(frozen=True)
class _Question:
    """What the effects of a graph depend on; and the graph itself, which is no key."""

    text: str
    tensors: tuple[tuple[str, tuple[int, ...], tuple[int, ...]], ...]
    graph: Graph = field(compare=False)


@lru_cache(maxsize=1000)
def _effects(asked: _Question) -> OpEffects:
    try:
        with torch.no_grad(), FakeTensorMode(allow_non_fake_inputs=True):
            tensors = asked.tensors
            arguments = [torch.empty_strided(shape, stride, dtype=dtype_of(dtype)) for dtype, shape, stride in tensors]
            observer = _Observer(torch.nn.Module(), graph=to_fx(asked.graph, "cpu"))  # no source of it is run
            observer.run(*arguments)
    except PassNetError as error:  # of ours
        raise OpEffectsError(str(error)) from error
    except Exception as error:  # any op of any model may fail on fake tensors; the errors share no type
        raise OpEffectsError(f"the graph does not run on fake tensors: {in_one_line(error, None)}") from error
    effects = tuple(observer.launches), tuple(observer.reads), tuple(observer.writes)
    on_host = _on_host(asked.graph, observer.values)
    found = tuple(observer.additions), tuple(observer.flops), frozenset(observer.apart), tuple(observer.turns)
    waits = frozenset(n for n in observer.waits if asked.graph.inputs + n not in on_host)
    return OpEffects(tuple(observer.values), *effects, on_host, *found, waits)


def _on_host(graph: Graph, values: Sequence[Any]) -> frozenset[int]:
    """Values that eager keeps in the CPU's memory even where the graph's inputs are on a GPU.

    A factory without a device, as `torch.arange(64)`, makes a CPU tensor, and so does an op whose operands all are
    such. Every device in a graph is the one it runs on, so an op that names one is not among them.
    """
    found: set[int] = set()
    for number, op in enumerate(graph.ops, graph.inputs):
        tensors = [r.index for r in refs((op.args, op.kwargs)) if isinstance(values[r.index], TensorLayout | tuple)]
        makes = isinstance(values[number], TensorLayout | tuple)
        if makes and found.issuperset(tensors) and not _names_a_device((op.args, op.kwargs)):
            found.add(number)
    return frozenset(found)


def _names_a_device(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_names_a_device, value.values()))
    return any(map(_names_a_device, value)) if isinstance(value, tuple | list) else value == RUN_DEVICE


_PUTS = ("index_put", "index_put_", "_unsafe_index_put")
_SORTS = 12
"""Launches of an op that adds to places: eager makes numbers of these, sorts them, and then adds."""
_PLAIN_LINALG = {"linalg_vector_norm", "linalg_cross"}
_FREE = {"alias", "detach", "_unsafe_view", "lift_fresh", "empty", "empty_like", "empty_strided", "new_empty"}


@dataclass
class _Counter(TorchDispatchMode):
    """Counts launches, turns and floating operations, and notes what is called, which storages are written to and what
    is added, while it is active."""

    launches: int = 0
    called: set[str] = field(default_factory=set)
    flops: int = 0
    turns: int = 0
    writes: set[int] = field(default_factory=set)
    additions: list[Addition] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        result = as_eager_lays_out(func, args, kwargs, _SHUFFLES.get(func, func)(*args, **kwargs))
        schema = func._schema
        view = any(r.alias_info is not None and not r.alias_info.is_write for r in schema.returns)
        namespace, _, name = schema.name.partition("::")
        if not view and namespace != "prim" and name not in _FREE:
            self.launches += _SORTS if name in _PUTS and len(args) > 3 and args[3] else 1
        if name == "upsample_bilinear2d" and suggest_memory_format(args[0]) != torch.channels_last:
            self.turns += prod(args[0].shape[:2])
        self.called.add(name)
        if func.overloadpacket in flop_registry:
            self.flops += flop_registry[func.overloadpacket](*args, **kwargs, out_val=result)
        if name in _ADDS and args[0].dim():  # a single number is added to nothing
            self.additions += _additions(_ADDS[name], args, result)
        for number, argument in enumerate(schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                value = args[number] if number < len(args) else kwargs.get(argument.name)
                self.writes.update(_storage(t) for t in tree_leaves(value) if isinstance(t, torch.Tensor))
        return result


def _shuffle(func: torch._ops.OpOverload) -> Callable[..., Any]:
    """As on a GPU, which returns a contiguous tensor; a CPU keeps channels-last memory."""
    return partial(func._op_dk, torch._C.DispatchKey.CompositeExplicitAutogradNonFunctional)


_SHUFFLES = {
    func: _shuffle(func) for func in (torch.ops.aten.pixel_shuffle.default, torch.ops.aten.pixel_unshuffle.default)
}

_VECTOR_BYTES = 16
WARP_SLICE = 32
"""Of slices of so many elements eager adds up what belongs to one place before it adds it to what is there."""
_ADDS = {
    "sum": "sum",
    "mean": "mean",
    "native_layer_norm": "layer_norm",
    "_fused_rms_norm": "rms_norm",
    "native_group_norm": "group_norm",
    "native_batch_norm": "batch_norm",
    "linalg_vector_norm": "norm",
    "_softmax": "softmax",
    "_softmax_backward_data": "softmax_backward",
    "native_layer_norm_backward": "layer_norm_backward",
    "native_batch_norm_backward": "batch_norm_backward",
    "cumsum": "cumsum",
    "_weight_norm_interface": "weight_norm",
} | dict.fromkeys(_PUTS, "index_put")
"""ATen ops that add along dimensions, and what that is called here."""


def _additions(op: str, args: tuple[Any, ...], result: Any) -> list[Addition]:
    """What one of `_ADDS` adds, from its arguments and its result."""
    x, given = args[0], args[1] if len(args) > 1 else None
    if op == "cumsum":
        dim, shape = given % x.dim(), tuple(x.shape)  # of a contiguous copy in the result's dtype
        behind = dim < x.dim() - 1 and shape[dim] < x.numel()
        return [Addition(op, result.dtype, shape, contiguous_stride(shape), (dim,))] if behind else []
    if op == "index_put":
        return _put(x, *args[1:4])
    if op == "softmax_backward":
        given = args[2]
    if op == "layer_norm_backward":
        rows = x.dim() - len(args[2])
        return [_addition(op, x, dims) for dims in (range(rows, x.dim()), range(rows))]
    if op == "norm":
        if len(args) > 1 and args[1] != 2:
            return []
        given = args[2] if len(args) > 2 else None
        return [_addition(op, x, given or range(x.dim()))]
    if op == "weight_norm":
        whole, kept = x.contiguous(), (args[2] if len(args) > 2 else 0) % x.dim()
        return [_addition(op, whole, (d for d in range(x.dim()) if d != kept))]
    if op == "group_norm":
        batch, channels, places, groups = args[3:7]
        return [_addition(op, x.reshape(batch * groups, channels // groups * places), [1])]
    if op == "batch_norm":  # with weight and bias by cuDNN, and with given moments nothing is added
        weight, bias, training = args[1], args[2], args[5]
        by_aten = training and (weight is None or bias is None)
        return [_addition(op, x, (0, *range(2, x.dim())))] if by_aten else []
    if op == "batch_norm_backward":  # without the first gradient in kernels of its own
        return [_addition(op, args[1], (0, *range(2, x.dim())))] if args[9][0] else []
    if isinstance(given, int):
        given = [given]
    dims = range(x.dim() - len(given), x.dim()) if op.endswith("_norm") else given or range(x.dim())
    return [_addition(op, x, dims)]


def _put(
    x: torch.Tensor, indices: Sequence[torch.Tensor | None], values: torch.Tensor, accumulate: bool = False
) -> list[Addition]:
    """What is added to places, if something is, and these are in neighbouring dimensions."""
    given = [d for d, index in enumerate(indices) if index is not None]
    masks = any(indices[d].dtype in (torch.bool, torch.uint8) for d in given)
    if not accumulate or not given or masks or given[-1] - given[0] >= len(given):
        return []
    count = prod(torch.broadcast_shapes(*(indices[d].shape for d in given)))
    before, behind = prod(x.shape[: given[0]]), prod(x.shape[given[-1] + 1 :])
    shape = before, count + (behind > WARP_SLICE), behind
    return [Addition("index_put", x.dtype, shape, contiguous_stride(shape), (1,))]


def _addition(op: str, x: torch.Tensor, dims: Iterable[int]) -> Addition:
    reduced = tuple(sorted(d % x.dim() for d in dims))
    apart = x.storage_offset() * x.dtype.itemsize % _VECTOR_BYTES
    return Addition(op, x.dtype, tuple(x.shape), tuple(x.stride()), reduced, apart)


class _Observer(fx.Interpreter):
    """Runs a module op by op and notes the facts of `OpEffects`."""

    def run(self, *args: Any) -> Any:
        self.values: list[Any] = []
        self.launches: list[int] = []
        self.reads: list[frozenset[int]] = []
        self.writes: list[frozenset[int]] = []
        self.additions: list[tuple[Addition, ...]] = []
        self.flops: list[int] = []
        self.turns: list[int] = []
        self.apart: list[int] = []
        self.waits: list[int] = []
        self.alive: list[Any] = []  # a freed storage's number could come back for another one
        return super().run(*args)

    def run_node(self, node: fx.Node) -> Any:
        if node.op == "output":
            return super().run_node(node)
        if node.op == "placeholder":
            result = super().run_node(node)
        else:
            used = [self.env[n] for n in node.all_input_nodes]
            before = _describe(used)
            with _Counter() as counter:
                result = super().run_node(node)
            if _describe(used) != before:
                raise PassNetError(f"{node.target} changes the size, strides or memory of a tensor that it is given")
            if node.target is torch.nn.functional.linear and counter.called & {"add", "add_"}:
                self.apart.append(len(self.launches))
            if any(map(_waits, counter.called)):
                self.waits.append(len(self.launches))
            self.launches.append(counter.launches)
            self.flops.append(counter.flops)
            self.turns.append(counter.turns)
            self.reads.append(frozenset(_storage(t) for t in tree_leaves(used) if isinstance(t, torch.Tensor)))
            self.writes.append(frozenset(counter.writes))
            self.additions.append(tuple(counter.additions))
            if "rms_norm" in str(node.target):  # composed of other ops on a CPU
                self.additions[-1] = tuple(replace(a, op="rms_norm") for a in counter.additions)
        self.alive.append(result)
        self.values.append(_describe(result))
        return result


def _waits(name: str) -> bool:
    """Whether this ATen op copies numbers of the host, or is of linear algebra with a look at its outcome."""
    return name == "lift_fresh" or (name.lstrip("_").startswith("linalg_") and name not in _PLAIN_LINALG)


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _describe(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        layout = (tuple(value.shape), tuple(value.stride()), value.storage_offset())
        return TensorLayout(dtype_name(value.dtype), *layout, _storage(value))
    if isinstance(value, tuple | list):
        return tuple(_describe(v) for v in value)
    return None

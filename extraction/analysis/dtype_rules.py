"""Dtype rules that eager kernels enforce and fake tensors do not: without them propagation calls invalid graphs valid.

Found by calling each op with mixed float dtypes on real and on fake CPU tensors (torch 2.15); the tests repeat that.
"""

import math
from collections.abc import Sequence

from extraction.analysis.values import TensorValue, ValueInfo
from storage.graph.effects import argument, base_name, operand_in_front
from storage.graph.record import Graph, Op, Ref, Value, refs

# All tensor operands have one dtype.
_ONE_DTYPE = frozenset(
    """linear bilinear matmul imatmul mm bmm mv dot addmm addmv baddbmm addbmm einsum grid_sample grid_sampler cdist
    conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d lstm gru rnn_tanh rnn_relu
    lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell""".split()
)
# Positions and names of the parameters and statistics of normalisations.
_NORMS = {
    "torch.nn.functional.layer_norm": ((2, "weight"), (3, "bias")),
    "torch.layer_norm": ((2, "weight"), (3, "bias")),
    "torch.nn.functional.group_norm": ((2, "weight"), (3, "bias")),
    "torch.group_norm": ((2, "weight"), (3, "bias")),
    "torch.nn.functional.batch_norm": ((3, "weight"), (4, "bias"), (1, "running_mean"), (2, "running_var")),
    "torch.nn.functional.instance_norm": ((3, "weight"), (4, "bias"), (1, "running_mean"), (2, "running_var")),
    "torch.batch_norm": ((1, "weight"), (2, "bias"), (3, "running_mean"), (4, "running_var")),
    "torch.instance_norm": ((1, "weight"), (2, "bias"), (3, "running_mean"), (4, "running_var")),
}
_HALVES = frozenset(("float16", "bfloat16"))
# Of half precision, a GPU keeps the statistics that these want in float32, a CPU in the half precision: no subgraph
# whose input they are runs on both.
_WITH_SAVED_STATISTICS = frozenset(("native_batch_norm_backward", "native_layer_norm_backward"))
# Position and name of what is written into the first operand, where the two must agree.
_WRITTEN = {"index_add": (3, "source"), "index_add_": (3, "source"), "index_put": (2, "values"),
            "index_put_": (2, "values")}  # fmt: skip


class DtypeRefused(TypeError):
    """A rule of this module refuses an op's dtypes; no tensor was asked."""


def check_dtypes(op: Op, infos: Sequence[ValueInfo]) -> None:
    """Raises DtypeRefused where eager execution would refuse the op for the dtypes of its operands."""
    op, name = operand_in_front(op), base_name(op)
    if name in _ONE_DTYPE:
        found = {infos[ref.index].dtype for ref in refs((op.args, op.kwargs)) if _is_tensor(infos[ref.index])}
        if len(found) > 1:
            raise DtypeRefused(f"{name} wants operands of one dtype, not {', '.join(sorted(found))}")
    elif op.target in _NORMS:
        parameters = {_dtype(argument(op, *where), infos) for where in _NORMS[op.target]} - {None}
        given = _dtype(op.args[0] if op.args else None, infos)
        if len(parameters) > 1 or not (parameters <= {given} or (given in _HALVES and parameters == {"float32"})):
            raise DtypeRefused(
                f"{name} of dtype {given} does not take parameters of dtype {', '.join(sorted(parameters))}"
            )
    elif name in _WITH_SAVED_STATISTICS:
        if _dtype(argument(op, 1, "input"), infos) in _HALVES:
            raise DtypeRefused(f"{name} of half precision wants statistics of another dtype on a GPU than on a CPU")
    elif name in _WRITTEN or (name == "setitem" and _is_tensor_index(op, infos)):
        target = _dtype(op.args[0], infos)
        source = _dtype(argument(op, *_WRITTEN.get(name, (2, "value"))), infos)
        if None not in (target, source) and target != source:
            raise DtypeRefused(f"{name} wants source and destination of one dtype, not {source} and {target}")


def largest_constant(graph: Graph) -> float:
    """The largest finite magnitude among the float constants of a graph: a dtype that cannot hold it will not do."""
    return max((_largest((op.args, op.kwargs)) for op in graph.ops), default=0.0)


def _largest(value: Value) -> float:
    if isinstance(value, tuple | list):
        return max((_largest(item) for item in value), default=0.0)
    if isinstance(value, dict):
        return _largest(tuple(value.values()))
    return abs(value) if isinstance(value, float) and math.isfinite(value) else 0.0


def _is_tensor(info: ValueInfo) -> bool:
    return isinstance(info, TensorValue)


def _dtype(value: Value, infos: Sequence[ValueInfo]) -> str | None:
    info = infos[value.index] if isinstance(value, Ref) else None
    return info.dtype if isinstance(info, TensorValue) else None


def _is_tensor_index(op: Op, infos: Sequence[ValueInfo]) -> bool:
    return any(_is_tensor(infos[ref.index]) for ref in refs(op.args[1:2]))

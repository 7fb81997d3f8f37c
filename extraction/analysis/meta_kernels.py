"""Ops that meta tensors describe as fake CPU tensors do, at a fifth of the cost.

A fake tensor asks the op's meta kernel, and has rules of its own for what a device decides: the layout of a
convolution's or an attention's result, say. The ops of this table have no such rule. It was found by propagating the
quickstart's subgraphs, forward and backward, both ways, and tests/extraction/analysis/test_meta_kernels.py compares the
two again, in several layouts. An op that is not in it is propagated on fake
tensors, which is right for every op.
"""

from storage.graph.effects import base_name
from storage.graph.record import Graph, Op, RunDevice

_ELEMENTWISE = """abs add and_ ceil clamp clamp_max clamp_min cos div elu eq erf exp floor ge gelu gelu_backward gt
    hardsigmoid hardsigmoid_backward hardswish hardswish_backward hardtanh iadd imul invert isub itruediv le leaky_relu
    log log1p logical_and logical_not logical_or lt masked_fill maximum minimum mish mul ne neg or_ pow reciprocal relu
    relu6 relu_ rsqrt rsub sigmoid sigmoid_backward sign silu silu_backward sin softplus sqrt square sub tanh
    tanh_backward threshold_backward truediv where""".split()
_VIEWS = """_unsafe_view alias broadcast_to chunk contiguous detach expand expand_as flatten getitem movedim narrow
    permute reshape reshape_as select slice split split_with_sizes squeeze swapaxes t transpose unbind unflatten
    unsqueeze view view_as""".split()
_CASTS = "_to_copy bfloat16 clone copy double float half int long to type_as".split()
_REDUCTIONS = "amax amin argmax argmin cumsum max mean min std sum var".split()
_NORMS = """_log_softmax _safe_softmax _softmax _softmax_backward_data batch_norm dropout layer_norm log_softmax
    native_batch_norm_backward native_layer_norm native_layer_norm_backward rms_norm softmax""".split()
_PRODUCTS = "addmm baddbmm bmm linear matmul mm".split()
_POOLS = """adaptive_avg_pool1d adaptive_avg_pool2d avg_pool2d avg_pool2d_backward max_pool2d
    max_pool2d_with_indices max_pool2d_with_indices_backward""".split()
_ARRANGED = """cat concat embedding embedding_dense_backward flip full_like gather index index_put index_select
    new_empty_strided new_ones new_zeros ones_like pad repeat roll slice_backward stack tril triu zeros_like""".split()
_SAME = frozenset((*_ELEMENTWISE, *_VIEWS, *_CASTS, *_REDUCTIONS, *_NORMS, *_PRODUCTS, *_POOLS, *_ARRANGED))
_FACTORIES = frozenset("arange full ones scalar_tensor zeros".split())
"""Factories: without a device among their arguments they would make real tensors."""


def described_by_meta_tensors(graph: Graph) -> bool:
    """Whether meta tensors tell of every op of the graph what fake CPU tensors tell."""
    return all(_is_same(op) for op in graph.ops)


def is_described(name: str) -> bool:
    """Whether meta tensors tell of an op of this name without its namespace, given tensors, what fake ones tell."""
    return name in _SAME


def _is_same(op: Op) -> bool:
    name = base_name(op)
    return is_described(name) or (name in _FACTORIES and isinstance(op.kwargs.get("device"), RunDevice))

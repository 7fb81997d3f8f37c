"""Ops that meta tensors describe as fake CPU tensors do, at a fifth of the cost.

A fake tensor asks the op's meta kernel, and has rules of its own for what a device decides: the layout of a
convolution's or an attention's result, say. The ops of this table have no such rule. Of the few frequent ones that have
one a fake tensor is asked op by op (`is_asked`), so that the rest of their graph stays on meta tensors. The table was
found by propagating the quickstart's subgraphs, forward and backward, both ways, and
tests/extraction/analysis/test_meta_kernels.py compares the two again, in several layouts. A graph with an op that is in
neither list is propagated on fake tensors, which is right for every op.
"""

import torch

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
    new_empty_strided new_ones new_zeros ones_like pad repeat roll select_backward slice_backward stack tril triu
    zeros_like""".split()
_ASKED = frozenset(
    """_native_batch_norm_legit_no_training conv1d conv2d conv3d conv_transpose1d conv_transpose2d convolution
    convolution_backward scaled_dot_product_attention""".split()
)
"""Ops of which a fake tensor is asked by itself (`extraction.analysis.fake_answers`)."""
_REMEMBERED = frozenset(
    """batch_norm hardsigmoid hardswish layer_norm native_batch_norm native_batch_norm_backward native_layer_norm
    native_layer_norm_backward""".split()
)
"""Ops that are slow on meta tensors and occur in many subgraphs."""
_RESHAPES = frozenset("_unsafe_view contiguous flatten reshape reshape_as unflatten view view_as".split())
_SAME = frozenset((*_ELEMENTWISE, *_VIEWS, *_CASTS, *_REDUCTIONS, *_NORMS, *_PRODUCTS, *_POOLS, *_ARRANGED))
DESCRIBED_FACTORIES = frozenset("arange empty full ones scalar_tensor zeros".split())
"""Factories: without a device among their arguments they would make real tensors."""


def described_by_meta_tensors(graph: Graph) -> bool:
    """Whether meta tensors tell of every op of the graph what fake CPU tensors tell, or such a one is asked of it."""
    return all(_is_same(op) or is_asked(base_name(op)) for op in graph.ops)


def is_asked(name: str) -> bool:
    """Whether a fake tensor is to be asked of an op of this name without its namespace."""
    return name in _ASKED


def is_remembered(name: str) -> bool:
    """Whether an op of this name without its namespace, if it changes no operand, is called once for all meta tensors
    of the same description (`extraction.analysis.fake_answers.remembered`)."""
    return name in _REMEMBERED


def asks(graph: Graph) -> bool:
    """Whether a fake tensor is to be asked of an op of the graph."""
    return any(is_asked(base_name(op)) for op in graph.ops)


def is_doubtful(name: str, operand: object, result: object) -> bool:
    """Whether an op may give a dimension of one element another stride on a meta tensor than on a fake one: where a
    tensor that does not lie row by row takes another shape. Nobody sees that stride but in a record."""
    if name not in _RESHAPES or not (isinstance(operand, torch.Tensor) and isinstance(result, torch.Tensor)):
        return False
    step = 1
    rows = True
    for size, stride in zip(reversed(operand.shape), reversed(operand.stride()), strict=True):
        rows = rows and stride == step
        step *= size
    return not rows and 1 in (*operand.shape, *result.shape)


def is_described(name: str) -> bool:
    """Whether meta tensors tell of an op of this name without its namespace, given tensors, what fake ones tell."""
    return name in _SAME


def _is_same(op: Op) -> bool:
    name = base_name(op)
    return is_described(name) or (name in DESCRIBED_FACTORIES and isinstance(op.kwargs.get("device"), RunDevice))

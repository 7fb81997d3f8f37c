"""What fake tensors say otherwise than eager: layouts and dtypes of pointwise results, and changed sizes."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from agent.distill.eager.op_effects import OpEffectsError, find_effects
from agent.distill.kernels.host_program import sketch
from agent.distill.kernels.index_expressions import Unsupported
from tests.agent.support import tensor, variant

aten = torch.ops.aten
SHAPE = (4, 2, 8)
STRIDES = st.sampled_from([(16, 8, 1), (1, 32, 4), (2, 1, 8), (0, 8, 1), (8, 0, 1), (32, 16, 2), (16, 1, 2)])
OPS = {
    "hardswish_backward": aten.hardswish_backward.default,
    "hardsigmoid_backward": aten.hardsigmoid_backward.default,
    "hardtanh_backward": lambda x, y: aten.hardtanh_backward.default(x, y, 0.0, 6.0),
    "elu_backward": lambda x, y: aten.elu_backward.default(x, 1.0, 1.0, 1.0, False, y),
    "leaky_relu_backward": lambda x, y: aten.leaky_relu_backward.default(x, y, 0.1, False),
    "softplus_backward": lambda x, y: aten.softplus_backward.default(x, y, 1, 20),
    "mse_loss_backward": lambda x, y: aten.mse_loss_backward.default(x, y, x, 0),
    "floor_divide": lambda x, y: x // y,
    "copysign": torch.copysign,
    "logaddexp": torch.logaddexp,
    "logical_and": torch.logical_and,
    "mul": torch.mul,
}


@given(st.sampled_from(sorted(OPS)), STRIDES, STRIDES, st.sampled_from(["float32", "bfloat16"]))
def test_layouts_are_eagers(name, first, second, dtype):
    inputs = [tensor(*SHAPE, dtype=dtype, stride=stride) for stride in (first, second)]
    one = variant(lambda x, y: (OPS[name](x, y),), *inputs)
    made = [torch.empty_strided(i.shape, i.stride, dtype=getattr(torch, dtype)).fill_(1) for i in inputs]
    result = OPS[name](*made)
    found = find_effects(one.graph, one.inputs).values[-1]
    assert (found.shape, found.stride) == (tuple(result.shape), result.stride())


def test_another_dtype_than_eagers_is_left_to_eager():
    mixed = variant(lambda x, y: aten.threshold_backward.default(x, y, 0), tensor(3, 16), tensor(16, dtype="float64"))
    with pytest.raises(OpEffectsError, match=r"gives torch\.float64 in eager, and torch\.float32 on fake tensors"):
        find_effects(mixed.graph, mixed.inputs)
    half = variant(
        lambda x, y: (aten.silu_backward.default(x, y),), tensor(9, dtype="bfloat16"), tensor(9, dtype="int64")
    )
    with pytest.raises(Unsupported, match=r"TorchInductor gives an output torch\.int64, eager bfloat16"):
        sketch(half.graph, half.inputs)


@pytest.mark.parametrize("change", [lambda x: x.t_(), lambda x: x.unsqueeze_(0), lambda x: x.squeeze_()])
def test_a_graph_that_changes_a_tensors_sizes_is_left_to_eager(change):
    one = variant(lambda x, y: (change(x) * 2.0, y + 1.0), tensor(1, 8), tensor(1, 8))
    with pytest.raises(OpEffectsError, match="changes the size, strides or memory of a tensor"):
        find_effects(one.graph, one.inputs)

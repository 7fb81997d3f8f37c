"""Batch norms by the moments of what they normalise, as of weights that are standardised: eager's order, and values."""

import pytest
import torch
import torch.nn.functional as F

from agent.ahead.quick_measure import QuickMeasure
from agent.distill.eager.emulated_sums import channels, fused, rows_of
from agent.distill.eager.op_effects import Addition, find_effects
from agent.distill.eager.order_probe import ProbedOrders
from agent.distill.eager.sum_order import Deal, SumOrder, order_of
from agent.distill.lowered_regions import Sketches
from agent.distill.rounding import Rounding
from agent.distill.static import Distill
from tests.agent.support import ANY, in_dtype, sample, tensor, variant

SKETCHES = Sketches()
"""What has been lowered is known to all tests of this file."""

SHAPES = {
    "long rows": (1, 6, 1300),
    "short rows": (1, 6, 18),
    "images": (3, 6, 5, 7),
    "more images than rows of threads": (40, 4, 20),
}


def _normalised(x, w):
    return F.batch_norm(x, None, None, w, None, True, 0.0, 1e-6) * 2.0


def _standardised(x, w):
    """As a layer does it whose weights have a mean of 0 and a deviation of 1."""
    scaled = F.batch_norm(x.reshape(1, 6, -1), None, None, (w * 0.5).view(-1), training=True, momentum=0.0, eps=1e-6)
    return scaled.reshape_as(x)


def _addition(shape, dtype=torch.float32, stride=None):
    plain = torch.empty(shape, device="meta").stride()
    return Addition("batch_norm", dtype, shape, stride or plain, (0, *range(2, len(shape))))


def test_the_order_follows_from_shape_and_strides():
    order = order_of(_addition((2, 256, 30)))
    assert order == SumOrder(60, 32, 16, 1, False, "channels", idle=2, deal=Deal(2, 30, 32, 16))
    assert order_of(_addition((1, 256, 2304))).deal == Deal(1, 2304, 512, 1)
    others = [(8, 16, 1, 1), (8, 1, 6, 6)]  # of one place, and of one channel
    assert [order_of(_addition(shape)) for shape in others] == [None, None]
    assert order_of(_addition((8, 16, 6, 6), stride=(576, 1, 96, 16))) is None
    assert order_of(_addition((8, 16, 36), stride=(1152, 36, 1))) is None


@pytest.mark.parametrize(
    ("function", "adds"),
    [
        (lambda x, w, b: F.batch_norm(x, None, None, w * b, None, True, 0.0, 1e-6), 1),
        (lambda x, w, b: F.batch_norm(x, None, None, w, b, True, 0.0, 1e-6), 0),
        (lambda x, w, b: F.batch_norm(x, w, b, w, None, False, 0.0, 1e-6), 0),
    ],
    ids=["moments", "moments by cuDNN", "given moments"],
)
def test_moments_that_are_given_or_that_cudnn_finds_have_no_order(function, adds):
    one = variant(function, tensor(2, 6, 20), tensor(6), tensor(6))
    assert len([a for each in find_effects(one.graph, one.inputs).additions for a in each]) == adds


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("name", SHAPES)
def test_batch_norms_have_the_moments_of_cudas_kernels(name, dtype, tmp_path, interpreter):
    shape = SHAPES[name]
    generator = torch.Generator().manual_seed(5)
    x = (torch.randn(shape, generator=generator) * 3.0 + 1.0).to(getattr(torch, dtype))
    w = torch.randn(shape[1], generator=generator).to(x.dtype)
    one = variant(_normalised, tensor(*shape, dtype=dtype), tensor(shape[1], dtype=dtype))
    written = Distill(margin=ANY, rounding=Rounding.EXACT, sketches=SKETCHES).write(sample(one), tmp_path / "pass")
    assert written.compiler == "pass", written.reason
    assert "join_neighbours(" in "".join(file.read_text() for file in (tmp_path / "pass").glob("fuse_*.py"))
    (found,) = interpreter.results(tmp_path / "pass", one, [x, w])
    rows = rows_of(x, (0, *range(2, x.dim()))).float()
    mean, distances = channels(rows, order_of(_addition(shape, x.dtype)))
    inverse = torch.rsqrt(distances / torch.tensor(float(rows.shape[1])) + 1e-6)

    def spread(each):
        return each.float().view(-1, *[1] * (x.dim() - 2)).expand_as(x)

    scaled = spread(w) * (x.float() - spread(mean))
    expected = fused(scaled, spread(inverse), torch.zeros_like(scaled)).to(x.dtype) * 2.0
    assert torch.equal(found, expected)
    if dtype == "float32":  # a CPU has another formula for half types
        assert interpreter.problems(tmp_path / "pass", one, draws=1) == []


def test_standardised_weights_are_one_kernel(tmp_path, interpreter):
    one = variant(_standardised, tensor(6, 4, 3, 3), tensor(6, 1, 1, 1))
    written = Distill(margin=ANY, rounding=Rounding.EXACT, sketches=SKETCHES).write(sample(one), tmp_path / "pass")
    (source,) = (file.read_text() for file in written.pass_dir.glob("fuse_*.py"))
    assert "in one kernel" in source and source.count("join_neighbours(") == source.count("join_row(") == 2
    assert interpreter.problems(tmp_path / "pass", one, draws=1) == []


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", [*SHAPES.values(), (1, 1024, 2304), (2, 64, 56, 56), (1, 256, 512)])
def test_the_order_is_eagers_on_a_gpu(shape, dtype):
    said = []
    assert ProbedOrders("cuda", said.append)(order_of(_addition(shape, dtype))), said


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("shape", [*SHAPES.values(), (1, 1024, 2304), (2, 64, 56, 56)])
def test_batch_norms_give_eagers_bits_on_a_gpu(shape, dtype, tmp_path):
    one = variant(_normalised, *in_dtype((tensor(*shape), tensor(shape[1])), dtype))
    Distill(margin=ANY, rounding=Rounding.EXACT, sketches=SKETCHES).write(sample(one), tmp_path / "pass")
    (result,) = QuickMeasure(torch.device("cuda"))(sample(one), tmp_path / "pass")
    assert (result.status, result.t_min) == ("ok", -10), result

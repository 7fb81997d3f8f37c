"""Products of one column and one row, and of few numbers, are kernels with their neighbours; all others are calls."""

import pytest
import torch
import torch.nn.functional as F

from agent.ahead.quick_measure import QuickMeasure
from agent.distill.candidates import Options, find_candidates
from agent.distill.lowered_regions import Sketches
from agent.distill.rewrites.sample_graphs import float_dtypes
from agent.distill.rounding import Rounding
from agent.distill.static import Distill
from agent.distill.ways import Ways
from passbench.policy.check import check_dir
from tests.agent.distill.test_ordered import _pass
from tests.agent.support import ANY, FLOATS, in_dtype, sample, tensor, variant


def _rotary(frequencies, positions):
    """As `transformers` computes the angles of a rotary embedding."""
    wide = frequencies[None, :, None].float().expand(2, -1, 1)
    angles = (wide @ positions[:, None, :].float()).transpose(1, 2)
    both = torch.cat((angles, angles), dim=-1)
    return both.cos() * 1.5, both.sin() * 1.5


def _column_and_row(a, b):
    return torch.mm(a * 2.0, b) + 1.0, torch.bmm(a[None], b[None] + 1.0)


ROTARY = (tensor(6), tensor(2, 5, dtype="int64", low=0.0, high=9.0))
PAIR = (tensor(7, 1), tensor(1, 9))


@pytest.mark.parametrize(("function", "inputs"), [(_rotary, ROTARY), (_column_and_row, PAIR)])
@pytest.mark.parametrize("dtype", FLOATS)
def test_a_column_and_a_row_need_no_call(function, inputs, dtype, tmp_path, interpreter):
    one, _ = _pass(function, in_dtype(inputs, dtype), tmp_path / "pass")
    assert len(list((tmp_path / "pass").glob("fuse_*.py"))) == 1
    assert interpreter.problems(tmp_path / "pass", one) == []


def _classes(x, w, b):
    """Of a slice the linear adds its bias apart, of a whole tensor of four dimensions within the product."""
    return torch.tanh(F.linear(x[:, :, 1], w, b)), F.linear(x, w, b) * 2.0


CLASSES = (tensor(2, 3, 2, 40), tensor(5, 40), tensor(5))


def test_other_products_are_calls():
    one = variant(_column_and_row, tensor(7, 2), tensor(2, 9))
    found = find_candidates([one], Options(margin=ANY), Sketches())
    inside = {one.graph.op_sequence[op] for c in found.candidates for op in c.region.ops}
    assert inside and not inside & {"torch.mm", "torch.bmm"}


WITH_PRODUCTS = Distill()


def _with_products(inputs, directory, rounding, function=_classes):
    """The variant, and the source of kernels that compute small products."""
    one = variant(function, *inputs)
    levels = dict.fromkeys(float_dtypes([one]).values(), rounding)
    task = WITH_PRODUCTS.task(sample(one), ANY, levels, lambda order: True, ways=Ways(products=True))
    assert task.write(task.gains(), WITH_PRODUCTS.style, directory).compiler == "pass"
    assert check_dir(directory) == []
    return one, "".join(file.read_text() for file in directory.glob("fuse_*.py")).partition("def library_")[0]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("rounding", [Rounding.ANY, Rounding.EXACT])
def test_a_product_of_few_numbers_needs_no_call_if_so_asked(rounding, dtype, tmp_path, interpreter):
    one, source = _with_products(in_dtype(CLASSES, dtype), tmp_path / "pass", rounding)
    assert source.count("tl.sum(") == 2
    half = dtype != "float32"
    assert source.count(f".to(tl.{dtype}).to(tl.float32)") == (3 if half else 0), "behind a product with its bias once"
    if rounding is Rounding.ANY:
        assert interpreter.problems(tmp_path / "pass", one) == []


def _mixed(x, w, b, y):
    """As a gate of eight numbers: what is softmaxed is computed again where it is read (fusible-68b796c9c203)."""
    return F.layer_norm(x * torch.softmax(F.linear(x, w, b), -1) + y, (8,))


MIXED = tensor(2, 1, 4, 8), tensor(8, 8), tensor(8), tensor(2, 1, 4, 8)


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_product_of_very_few_is_computed_in_the_kernel_that_reduces_it(dtype, tmp_path, interpreter):
    one, source = _with_products(in_dtype(MIXED, dtype), tmp_path / "pass", Rounding.EXACT, _mixed)
    assert source.count("_kernel(in_0") == 1 and "ordered_sum" in source
    assert interpreter.problems(tmp_path / "pass", one) == []


def test_others_are_calls_and_all_unless_it_is_asked(tmp_path):
    _, source = _with_products((*CLASSES[:1], tensor(2000, 40), tensor(2000)), tmp_path / "large", Rounding.ANY)
    _, unasked = _pass(_classes, CLASSES, tmp_path / "unasked", Rounding.ANY)
    assert "@triton.jit" in source and "@triton.jit" in unasked and "tl.sum(" not in source + unasked


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    ("function", "inputs"), [(_classes, (tensor(2, 20, 2, 128), tensor(4, 128), tensor(4))), (_mixed, MIXED)]
)
def test_it_is_right_on_a_gpu(function, inputs, dtype, tmp_path):
    """Eager's library adds in an order of its own. In float32 a sum of 128 products that cancel each other is a level
    looser then, in some draws; whether it is in a sample's is what a search asks in further draws."""
    one, _ = _with_products(in_dtype(inputs, dtype), tmp_path / "pass", Rounding.EXACT, function)
    (result,) = QuickMeasure(torch.device("cuda"))(sample(one), tmp_path / "pass")
    loosest = -4 if function is _classes and dtype == "float32" else -5
    assert result.status == "ok" and result.t_min <= loosest, result


@pytest.mark.gpu
@pytest.mark.parametrize(("function", "inputs"), [(_rotary, ROTARY), (_column_and_row, PAIR)])
@pytest.mark.parametrize("dtype", FLOATS)
def test_a_kernel_has_eagers_bits_on_a_gpu(function, inputs, dtype, tmp_path):
    one, _ = _pass(function, in_dtype(inputs, dtype), tmp_path / "pass")
    (result,) = QuickMeasure(torch.device("cuda"))(sample(one), tmp_path / "pass")
    assert (result.status, result.t_min) == ("ok", -10), result

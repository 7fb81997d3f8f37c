"""The probe of eager's order of addition: it says no on a CPU, yes where the order is right, and tells orders apart."""

import json
import math
from dataclasses import replace

import pytest
import torch

from agent.distill.eager import order_probe
from agent.distill.eager.eager_sums import EPSILON, EagerSums
from agent.distill.eager.emulated_sums import added, channels, fused, in_turn, moments, rows_of, squares, welford
from agent.distill.eager.op_effects import Addition
from agent.distill.eager.order_probe import ProbedOrders, differing_share, wide_rows
from agent.distill.eager.sum_order import Ragged, SumOrder, order_of
from agent.distill.rewrites.sample_graphs import float_dtypes
from agent.distill.rounding import Rounding
from agent.distill.static import Distill
from tests.agent.distill.test_ordered import KNOWN
from tests.agent.support import ANY, lent, sample, tensor, variant

CPU = torch.device("cpu")
HALVES = (torch.float16, torch.bfloat16)


def addition(shape, reduced, dtype=torch.float32, op="sum", stride=None):
    stride = stride or torch.empty(shape, device="meta").stride()
    return Addition(op, dtype, tuple(shape), stride, tuple(reduced))


ADDITIONS = [
    addition((64, 768), (1,)),
    addition((64, 768), (1,), torch.bfloat16, "mean"),
    addition((64, 768), (1,), torch.float16),
    addition((1, 4096), (1,)),
    addition((4, 40, 24), (0, 1)),
    addition((2, 12, 7, 7), (0, 2, 3), torch.bfloat16),
    addition((49, 2, 768), (0, 1), stride=(1, 37632, 49)),
    addition((16, 24, 64), (0, 1), torch.bfloat16, stride=(64, 1024, 1)),
    addition((40, 256), (1,), op="layer_norm"),
    addition((40, 256), (1,), torch.bfloat16, "rms_norm"),
    addition((40, 179), (1,), torch.float16),
    addition((2, 20, 14, 14), (2, 3), torch.bfloat16, "mean"),
    addition((40, 300), (1,), op="norm"),
    addition((40, 300), (1,), torch.float16, "norm"),
    addition((3, 40, 50), (2,), torch.bfloat16, "norm"),
    addition((40, 7, 120), (1, 2), op="weight_norm"),
    addition((40, 7, 120), (1, 2), torch.float16, "weight_norm"),
    addition((7, 120, 40), (0, 1), op="weight_norm"),
    addition((7, 120, 40), (0, 1), torch.bfloat16, "weight_norm"),
    addition((50, 40), (0,), op="weight_norm"),
    addition((40, 300), (1,), torch.float16, "group_norm"),
    addition((40, 1200), (1,), op="group_norm"),
    addition((1, 40, 700), (0, 2), op="batch_norm"),
    addition((5, 12, 6, 7), (0, 2, 3), torch.float16, "batch_norm"),
    addition((40, 100), (1,), op="softmax"),
    addition((4, 10, 700), (2,), torch.bfloat16, "softmax"),
    addition((40, 100), (1,), op="softmax_backward"),
    addition((40, 300), (1,), op="layer_norm_backward"),
    addition((4, 50, 64), (0, 1), op="layer_norm_backward"),
    addition((9, 4, 7, 7), (0, 2, 3), op="batch_norm_backward"),
    addition((20, 75, 1), (1,), op="index_put"),
    addition((3, 40, 50), (1,), op="cumsum"),
    addition((40, 50), (0,), torch.bfloat16, "cumsum"),
    addition((3, 4, 20, 30), (0, 2, 3), torch.bfloat16, op="batch_norm_backward"),
]
ALIKE = [
    addition((4, 10, 700), (2,), torch.bfloat16, "softmax_backward"),
    addition((40, 300), (0,), op="layer_norm_backward"),
    addition((3, 40, 90), (1,), op="softmax"),
    addition((3, 300, 20), (1,), op="softmax"),
    addition((3, 40, 90), (1,), torch.float16, "softmax_backward"),
    addition((1, 30, 24), (1,), torch.bfloat16, "index_put"),
    addition((20, 30, 1), (1,), op="index_put"),
    addition((2, 30, 40), (1,), op="index_put"),
    addition((1, 30, 40), (1,), torch.float16, "index_put"),
]
"""A CPU may add these as a GPU does: 32 sums, which are added half by half, and one row after another."""


def named(one):
    return f"{one.op}-{one.shape}-{one.dtype}"


@pytest.mark.parametrize("one", ADDITIONS, ids=named)
def test_a_cpu_adds_in_another_order_which_the_probe_sees_and_says(one):
    said = []
    assert not ProbedOrders("cpu", said.append)(order_of(one))
    assert "another order than expected" in said[0] and one.op in said[0]


def _as_rows(rows, shape, dim):
    """The tensor of this shape of which `rows` are the rows along a dimension."""
    return rows.view([*shape[:dim], *shape[dim + 1 :], shape[dim]]).movedim(-1, dim)


class AddsIn(EagerSums):
    """A device whose kernels add in the given order. If it `contracts`, group norms round a product and what is added
    to it at once."""

    def __init__(self, order, contracts=False):
        self.order, self.contracts = order, contracts

    def sum(self, x, dims, dtype):
        return added(rows_of(x, self.along_memory(x, dims)).float(), self.order).to(dtype)

    def along_memory(self, x, dims):
        return tuple(sorted(dims, key=lambda d: -x.stride(d)))

    def mean(self, x, dims):
        rows = rows_of(x, self.along_memory(x, dims)).float()
        return (added(rows, self.order) * (1.0 / torch.tensor(float(rows.shape[1])))).to(x.dtype)

    def layer_norm(self, x, normalized):
        mean, distances = moments(x.flatten(-len(normalized)).float())
        return mean, torch.rsqrt(distances / math.prod(normalized) + EPSILON)

    def rms_norm(self, x, normalized):
        return torch.rsqrt(squares(x.flatten(-len(normalized)).float()) / math.prod(normalized) + EPSILON)

    def norm(self, x, dims, dtype):
        return torch.sqrt(added(rows_of(x, tuple(dims)).float(), self.order)).to(dtype)

    def weight_norm(self, x, weight, dim):
        norms = torch.sqrt(added(rows_of(x, tuple(d for d in range(x.dim()) if d != dim)).float(), self.order))
        norms = norms.view(weight.shape)
        return (weight.float() * x.float() * (1.0 / norms)).to(x.dtype), norms

    def group_norm(self, x, weight, bias):
        mean, distances = welford(x.float(), self.order)
        epsilon = torch.tensor(EPSILON, dtype=x.dtype).float()
        inverse = torch.rsqrt(distances / torch.tensor(float(x.shape[1])) + epsilon)
        mean, inverse = (each.to(x.dtype) for each in (mean, inverse))
        scale = (inverse.float() * weight.float())[:, None]
        moved = scale * mean.float()[:, None]
        shift = fused(-scale, mean.float()[:, None], bias.float()[:, None]) if self.contracts else bias[:, None] - moved
        return fused(scale, x.float(), shift.float()).to(x.dtype), mean, inverse

    def batch_norm(self, x):
        rows = rows_of(x, (0, *range(2, x.dim()))).float()
        mean, distances = channels(rows, self.order)
        return mean, torch.rsqrt(distances / torch.tensor(float(rows.shape[1])) + EPSILON)

    def softmax(self, x, dim):
        rows = rows_of(x, (dim,)).float()
        powers = torch.exp(rows - rows.amax(1, keepdim=True))
        return _as_rows(powers / added(powers, self.order)[:, None], x.shape, dim)

    def softmax_backward(self, grad, output, dim):
        products = rows_of(grad * output, (dim,)).float()
        return _as_rows((products - added(products, self.order)[:, None]).to(grad.dtype), grad.shape, dim)

    def index_put(self, x):
        rows = rows_of(x, (1,)).float()
        return (in_turn(rows, self.order) if self.order.kind == "rounded" else added(rows, self.order)).to(x.dtype)

    def cumsum(self, x, dim):
        rows = rows_of(x, (dim,)).float()
        return (in_turn(rows, self.order) if self.order.kind == "rounded" else added(rows, self.order)).to(x.dtype)

    def layer_norm_backward(self, grad, x, normalized):
        length, dims = math.prod(normalized), tuple(range(grad.dim() - len(normalized)))
        weight, bias = self._of_columns(grad * x, None, grad, dims)
        rows, by = (each.flatten(-len(normalized)).float() for each in (grad, x))
        if self.order.length != length:
            return rows, weight, bias
        inner = fused(rows, torch.full_like(rows, length), -(by * in_turn(rows * by, self.order)[..., None]))
        share = 1.0 / torch.tensor(float(length))
        return ((inner - in_turn(rows, self.order)[..., None]) * share).view(x.shape), weight, bias

    def batch_norm_backward(self, grad, x):
        if self.order.rounds is None:
            return self._of_columns(grad, x, grad, (0, *range(2, grad.dim())))
        rows, products = (rows_of(each, (0, *range(2, grad.dim()))).float() for each in (grad, grad * x))
        return in_turn(products, self.order), in_turn(rows, self.order)

    def _of_columns(self, factor, by, grad, dims):
        """The sums of a factor, or of its products with another, and those of the gradient."""
        plain, *factors = (rows_of(each, dims).float() for each in (grad, factor, by) if each is not None)
        if self.order.length != plain.shape[1]:
            return plain, plain
        weight = in_turn(factors[0], self.order, *factors[1:])
        return weight.to(grad.dtype), in_turn(plain, self.order).to(grad.dtype)


@pytest.mark.parametrize("one", [*ADDITIONS, *ALIKE], ids=named)
def test_the_expected_order_is_confirmed_and_its_neighbours_are_not(one):
    """A device that adds as expected has no difference; with half the threads, or other vectors, many results have."""
    order = order_of(one)
    assert differing_share(one, order, CPU, AddsIn(order)) == 0.0
    if order.kind != "sum":
        return
    others = [replace(order, height=order.height * 2)]
    if order.width > 1:
        others.append(replace(order, width=order.width // 2))
    if order.width > 1 and order.sums > 1:
        others.append(replace(order, vectors=not order.vectors))
    if isinstance(order.deal, Ragged):
        others = [replace(each, deal=replace(order.deal, step=each.step)) for each in others]
        others.append(replace(order, deal=None))
    for other in others:
        assert differing_share(one, order, CPU, AddsIn(other)) > 0.05, other


@pytest.mark.parametrize("one", [a for a in ALIKE if a.op == "index_put" and (a.dtype.itemsize > 2 or a.shape[2] > 32)])
def test_a_cpu_adds_to_places_one_after_another(one):
    assert ProbedOrders("cpu", print)(order_of(one))
    other = replace(order_of(one), height=2, rounds=None, kind="sum")
    assert differing_share(one, other, CPU) > 0.05


def test_sums_go_along_memory():
    """The first of two reduced dimensions is the inner one where its elements are neighbours (typical-c201e15fcd77)."""
    one = addition((49, 2, 768), (0, 1), stride=(1, 37632, 49))

    class ByNumber(AddsIn):
        def along_memory(self, x, dims):
            return tuple(dims)

    assert one.turn == (1, 0) and replace(one, op="group_norm").turn == (0, 1)
    assert differing_share(one, order_of(one), CPU, ByNumber(order_of(one))) > 0.05


@pytest.mark.parametrize(("shape", "dtype"), [((8, 1045, 60), torch.float16), ((1, 200_000), torch.float32)])
def test_one_long_row_is_shared_by_blocks_of_a_single_row_of_threads(shape, dtype):
    """As that of typical-0b7ecef46d5b."""
    assert order_of(addition(shape, range(len(shape)), dtype)) is None


def test_the_probe_sees_where_a_group_norm_rounds():
    one = addition((40, 300), (1,), op="group_norm")
    order = order_of(one)
    assert differing_share(one, order, CPU, AddsIn(order, contracts=True)) > 1e-2


@pytest.mark.parametrize("dtype", [torch.float32, *HALVES])
def test_draws_depend_on_the_order_even_rounded_to_a_half_type(dtype):
    rows = wide_rows(64, 300, dtype, True, torch.Generator().manual_seed(3))
    assert rows.isfinite().all() and not any(map(math.fsum, rows.tolist()))
    order = SumOrder(300, 32, 1, 4, False)
    forth, back = (added(r.float(), order).to(dtype) for r in (rows, rows.flip(1)))
    assert (forth != back).float().mean() > 0.5


def test_an_answer_is_kept_by_device_and_torch_version(tmp_path, monkeypatch):
    order = order_of(ADDITIONS[0])
    said = []
    assert not ProbedOrders("cpu", said.append, tmp_path)(order)
    (kept,) = tmp_path.iterdir()
    answer = json.loads(kept.read_text())
    assert (answer["device"], answer["torch"], answer["same"]) == ("cpu", torch.__version__, False)
    assert answer["differing"] > 0
    kept.write_text(json.dumps(answer | {"same": True}))
    assert ProbedOrders("cpu", said.append, tmp_path)(order), "what is kept is not probed again"
    monkeypatch.setattr(torch, "__version__", "9.9")
    assert not ProbedOrders("cpu", said.append, tmp_path)(order)
    assert len(said) == 2 and len(list(tmp_path.iterdir())) == 2


def _mean_of_squares(x):
    return torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * x


def test_what_there_is_no_memory_to_probe_is_left_to_eager_and_not_kept(tmp_path, monkeypatch):
    """It would end the author's process."""

    def full(*given):
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(order_probe, "differing_share", full)
    said, order = [], order_of(ADDITIONS[0])
    assert not ProbedOrders("cpu", said.append, tmp_path)(order)
    assert "no memory" in said[0] and not list(tmp_path.iterdir())


def test_what_the_probe_denies_is_left_to_eager(tmp_path):
    one = sample(variant(_mean_of_squares, tensor(64, 256)))
    levels = dict.fromkeys(float_dtypes(one.variants).values(), Rounding.EXACT)
    said = []
    assumed_task = Distill().task(one, ANY, levels)
    probed_task = Distill().task(one, ANY, levels, ProbedOrders("cpu", said.append))
    assert "mean" in " ".join(assumed_task.gains())
    assert "mean" not in " ".join(probed_task.gains()) and len(said) == 1
    assert "left to eager" in " ".join(probed_task.causes)


def test_what_is_written_without_a_clock_is_probed_where_there_is_a_gpu(tmp_path):
    one = sample(variant(_mean_of_squares, tensor(64, 256)))
    asked = []

    def orders(device, *kept):
        return lambda order: asked.append(device) or order.length != 256

    author = Distill(orders=orders)
    assert author.attempt(one, tmp_path / "pass", lent("cpu")).compiler == "pass" and not asked
    author.attempt(one, tmp_path / "other", lent("cuda:0"))
    assert set(asked) == {"cuda:0"}
    sources = [file.read_text() for file in (tmp_path / "other").glob("fuse_*.py")]
    assert not any("ordered_sum" in source for source in sources)


def test_orders_that_are_not_needed_are_not_probed(monkeypatch):
    probed = []
    monkeypatch.setattr(order_probe, "differing_share", lambda *what: probed.append(what) or 0.0)
    one = sample(variant(_mean_of_squares, tensor(64, 256)))
    for level in (Rounding.ANY, Rounding.SUMS):
        Distill().task(one, ANY, dict.fromkeys(float_dtypes(one.variants).values(), level), ProbedOrders("cpu", print))
    assert probed == []


@pytest.mark.gpu
@pytest.mark.parametrize("one", [*ADDITIONS, *ALIKE], ids=named)
def test_a_gpu_adds_as_expected(one):
    said = []
    assert ProbedOrders("cuda", said.append)(order_of(one)), said


@pytest.mark.gpu
@pytest.mark.parametrize(("shape", "dims", "dtype", "order"), [k for k in KNOWN if k[-1] is not None])
def test_a_gpu_adds_in_the_known_orders_and_in_no_neighbour_of_them(shape, dims, dtype, order):
    one, device = addition(shape, dims, dtype), torch.device("cuda")
    assert differing_share(one, order, device) == 0.0
    assert differing_share(one, replace(order, vectors=not order.vectors), device) > 0.0

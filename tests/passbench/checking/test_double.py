import pytest
import torch
import torch.nn.functional as F

from passbench.double_precision import in_double, relative_error, wide
from passbench.ipc.messages import OutputKind, OutputMeta
from passbench.timing.bandwidth import floor_us
from storage.graph.as_fx import to_module
from tests.passbench.samples import spec, variant


def doubled(function, *specs):
    return in_double(to_module(variant(function, *specs).graph, torch.device("cpu")))


def test_a_half_precision_graph_runs_in_double():
    def f(x, w):
        y = x.float() + torch.zeros(3, dtype=torch.float16)
        return torch.softmax(y, -1, dtype=torch.float32), F.linear(x, w).half(), (x > 0).to(torch.int64)

    x, w = torch.randn(5, 3).half(), torch.randn(2, 3).half()
    soft, linear, mask = doubled(f, spec("x", 5, 3, dtype="float16"), spec("w", 2, 3, dtype="float16"))(x, w)
    assert (soft.dtype, linear.dtype, mask.dtype) == (torch.float64, torch.float64, torch.int64)
    assert torch.equal(linear, F.linear(x.double(), w.double()))
    assert torch.equal(soft, torch.softmax(x.double(), -1))


def test_the_relative_error_is_that_of_the_norm():
    reference = torch.tensor([3.0, 4.0, torch.inf], dtype=torch.float64)
    assert relative_error(torch.tensor([3.0, 4.5, torch.inf]), reference) == pytest.approx(0.1)
    assert relative_error(torch.tensor([torch.nan, 4.0, 1.0]), reference) == 0.0
    assert relative_error(torch.tensor([0.0, 2.0]), torch.zeros(2, dtype=torch.float64)) == 2.0
    assert wide(torch.complex64) is torch.complex128 and wide(torch.int8) is torch.int8


def test_there_is_no_floor_without_a_gpu():
    assert floor_us((OutputMeta(OutputKind.TENSOR, torch.float32, (1 << 20,), (1,), -1),), torch.device("cpu")) is None


@pytest.mark.gpu
def test_the_floor_is_below_what_a_fill_takes():
    elements = 1 << 28
    meta = OutputMeta(OutputKind.TENSOR, torch.float32, (elements,), (1,), -1)
    floor = floor_us((meta,), torch.device("cuda"))
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    out = torch.empty(elements, device="cuda")
    out.fill_(1)
    start.record()
    out.fill_(2)
    end.record()
    torch.cuda.synchronize()
    took = start.elapsed_time(end) * 1000
    assert 0.3 * took < floor < took
    assert floor_us((meta._replace(aliases=0),), torch.device("cuda")) == 0.0

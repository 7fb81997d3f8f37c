"""Which ways of running a graph count as right."""

import torch
from torch import fx

from passbench.models.agreement import Reference, reference


class Softmax(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple:
        return (torch.softmax(x * 3, -1), x.argmax(-1))


def compared(dtype: torch.dtype = torch.float32) -> Reference:
    torch.manual_seed(0)
    return reference(fx.symbolic_trace(Softmax()), (torch.randn(16, 64, dtype=dtype),), ())


def softmax(x: torch.Tensor, off: float = 0.0) -> list[torch.Tensor]:
    return [torch.softmax(x * 3, -1) * (1 + off), x.argmax(-1)]


def test_eager_is_right_and_so_is_rounding_elsewhere():
    truth = compared()
    same = truth.of(softmax)
    assert same.equal and same.reason == "" and same.error == same.error_eager > 0 and same.t_min == -10
    wide = truth.of(lambda x: [torch.softmax(x.double() * 3, -1).float(), x.argmax(-1)])
    assert wide.reason == "" and not wide.equal and wide.error <= wide.error_eager
    assert truth.of(lambda x: softmax(x, 2e-7)).reason == ""


def test_what_is_further_than_eager_is_not():
    truth = compared()
    assert "against double precision" in truth.of(lambda x: softmax(x, 1e-4)).reason
    half = compared(torch.bfloat16)
    assert half.of(softmax).reason == "" and "against double" in half.of(lambda x: softmax(x, 0.05)).reason


def test_strict_asks_for_bits():
    truth = compared()
    assert truth.of(softmax, strict=True).reason == ""
    assert "not eager's bits" in truth.of(lambda x: softmax(x, 2e-7), strict=True).reason


def test_other_kinds_nan_and_whole_numbers_are_wrong():
    truth = compared()
    assert "eager's is" in truth.of(lambda x: [softmax(x)[0].double(), softmax(x)[1]]).reason
    assert "1 outputs" in truth.of(lambda x: softmax(x)[:1]).reason
    assert "NaN" in truth.of(lambda x: [softmax(x)[0] * float("nan"), softmax(x)[1]]).reason
    assert "output 1 is not eager's" in truth.of(lambda x: [softmax(x)[0], softmax(x)[1] + 1]).reason


def test_without_double_precision_eager_itself_is_the_measure():
    truth = compared()
    truth.double = None
    assert truth.of(lambda x: softmax(x, 1e-5)).reason == ""
    assert "from eager's" in truth.of(lambda x: softmax(x, 1e-2)).reason

"""Which ways of running a graph count as right."""

import torch
from torch import fx

from passbench.models.agreement import ModelErrors, Reference, reference


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


class Outputs(torch.nn.Module):
    """A number that eager gives exactly, many of them, and numbers with a large error: the difference of two that are
    about the same."""

    def forward(self, x: torch.Tensor) -> tuple:
        return (x[0, 0] * 2, x * 2, x * 1.1 - x)


def test_each_output_is_judged_by_its_own_error_unless_it_is_small():
    torch.manual_seed(0)
    truth = reference(fx.symbolic_trace(Outputs()), (torch.randn(64, 64, dtype=torch.bfloat16),), ())

    def off(first: float, second: float, third: float) -> str:
        return truth.of(lambda x: [x[0, 0] * 2 * first, x * 2 * second, (x * 1.1 - x) * third]).reason

    assert off(1, 1, 1.02) == "" == off(1.02, 1, 1)
    assert "output 1 has error" in off(1, 1.02, 1) and "output 0 has error" in off(1.2, 1, 1)


def test_a_single_element_may_be_a_level_further_and_no_more():
    class Scaled(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple:
            return (x * 1.1,)

    truth = reference(fx.symbolic_trace(Scaled()), (torch.randn(512, 512, dtype=torch.bfloat16),), ())

    def off(by: float) -> ModelErrors:
        here = torch.zeros(512, 512, dtype=torch.bfloat16)
        here[3, 5] = by
        return truth.of(lambda x: [x * 1.1 + here])

    assert off(0.01).reason == "" and off(1.0).error < 2 * off(1.0).error_eager and "an element" in off(1.0).reason


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
    truth.double[0][1] = truth.double[0][1] + 1
    truth.double[1][1] = truth.double[1][1] + 1
    assert truth.of(lambda x: [softmax(x)[0], softmax(x)[1] + 1]).reason == "", "double precision's are right, too"


def test_without_double_precision_eager_itself_is_the_measure():
    truth = compared()
    truth.double = None
    assert truth.of(lambda x: softmax(x, 1e-5)).reason == ""
    assert "from eager's" in truth.of(lambda x: softmax(x, 1e-2)).reason

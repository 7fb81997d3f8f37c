"""Powers as eager's CUDA kernels compute them: which ones a kernel with eager's bits has, and their values."""

import pytest
import torch

from agent.ahead.quick_measure import QuickMeasure
from agent.distill.lowered_regions import Sketches
from agent.distill.rounding import Rounding
from agent.distill.static import Distill
from tests.agent.support import ANY, in_dtype, sample, tensor, variant

SKETCHES = Sketches()
"""What has been lowered is known to all tests of this file."""


def _pass(function, inputs, directory, rounding=Rounding.EXACT):
    one = variant(function, *inputs)
    submission = Distill(margin=ANY, rounding=rounding, sketches=SKETCHES).write(sample(one), directory)
    return one, submission, "".join(file.read_text() for file in sorted(directory.glob("*.py")))


def _frequencies(x, positions, steps):
    """Of a rotary embedding: the base is a number."""
    return positions[:, None] * (1.0 / torch.pow(10000.0, steps.relu().clamp(0.0, 1.0))) * x


def _of_two(x, y):
    """TorchInductor has a function of its own for the base 2."""
    return torch.pow(2, x * 5.0) * y


def _of_tensors(x, y):
    return torch.pow(x * 3.0, y) + 1.0


def _of_a_number(x, y):
    return (x.abs() + 0.5) ** 1.7 * y


CASES = {
    "frequencies": (_frequencies, (tensor(40, 32), tensor(40), tensor(32))),
    "of two": (_of_two, (tensor(64, 32), tensor(64, 32))),
    "tensors": (_of_tensors, (tensor(64, 32), tensor(64, 32))),
    "a number": (_of_a_number, (tensor(64, 32), tensor(64, 32))),
}


@pytest.mark.parametrize("name", CASES)
def test_powers_are_in_kernels_with_eagers_bits(name, tmp_path, interpreter):
    """Beside a CPU's, which differ by a last bit."""
    one, submission, source = _pass(*CASES[name], tmp_path / "pass")
    assert submission.compiler == "pass", submission.reason
    assert "power_of_cuda(" in source and "import libdevice" in source
    assert interpreter.problems(tmp_path / "pass", one) == []


def test_a_power_that_eager_rounds_first_is_left_to_eager(tmp_path):
    """1.7 is no half, 1.5 is one."""
    inputs = in_dtype(CASES["a number"][1], "float16")
    _, _, source = _pass(_of_a_number, inputs, tmp_path / "rounded")
    assert "power_of_cuda(" not in source
    _, _, source = _pass(lambda x, y: (x.abs() + 0.5) ** 1.5 * y, inputs, tmp_path / "exact")
    assert "power_of_cuda(" in source


_SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, -3.0, 4.5, 1e-40, 1e-30, -1e30, 3e38]
_SPECIAL += [float("inf"), float("-inf"), float("nan"), 16777217.0]


def test_special_powers(tmp_path, interpreter):
    """Of zeros, infinities, NaN, numbers below the normal ones, and odd and even exponents."""
    x, y = (each.reshape(-1) for each in torch.meshgrid(*[torch.tensor(_SPECIAL)] * 2, indexing="ij"))
    _pass(_powers, (tensor(len(x)), tensor(len(x))), tmp_path / "pass")
    one = variant(_powers, tensor(len(x)), tensor(len(x)))
    (found,) = interpreter.results(tmp_path / "pass", one, [x, y])
    expected = torch.pow(x, y)
    assert torch.allclose(found, expected, rtol=3e-7, atol=0.0, equal_nan=True)
    assert torch.equal(torch.signbit(found[expected == 0]), torch.signbit(expected[expected == 0]))


def _powers(x, y):
    return torch.pow(x, y)


def test_random_powers_are_within_a_last_bit_or_two(tmp_path, interpreter):
    generator = torch.Generator().manual_seed(3)
    x = torch.exp(torch.randn(4096, generator=generator) * 8.0)
    y = torch.randn(4096, generator=generator) * 4.0
    one, _, _ = _pass(_powers, (tensor(4096), tensor(4096)), tmp_path / "pass")
    (found,) = interpreter.results(tmp_path / "pass", one, [x, y])
    assert torch.allclose(found, torch.pow(x.double(), y.double()).float(), rtol=2.5e-7, atol=1e-44)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: torch.pow(x, y),
        lambda x, y: torch.pow(x.abs() + 0.01, y) * y,
        lambda x, y: (x.abs() + 0.5) ** 1.5 + y,
        lambda x, y: 3.0 ** (x * 4.0) - y,
        lambda x, y: torch.pow(2, x * 5.0) * y,
    ],
)
def test_powers_give_eagers_bits_on_a_gpu(function, dtype, tmp_path):
    one, _, source = _pass(function, in_dtype((tensor(3000, 320),) * 2, dtype), tmp_path / "pass")
    assert "power_of_cuda(" in source
    (result,) = QuickMeasure(torch.device("cuda"))(sample(one), tmp_path / "pass")
    assert (result.status, result.t_min) == ("ok", -10), result


@pytest.mark.gpu
def test_frequencies_give_eagers_bits_on_a_gpu(tmp_path):
    one, _, source = _pass(*CASES["frequencies"], tmp_path / "pass")
    assert "power_of_cuda(" in source
    (result,) = QuickMeasure(torch.device("cuda"))(sample(one), tmp_path / "pass")
    assert (result.status, result.t_min) == ("ok", -10), result

"""Which part of a model has not eager's bits."""

import pytest
import torch
from torch import nn

from passbench.models.first_unlike import first_unlike
from passbench.models.lowering import GraphCall
from passbench.models.model_capture import capture_model
from passbench.models.optimize import optimize_model
from passbench.models.optimized_model import OptimizeSettings
from passbench.models.recipes import Recipe
from tests.passbench.library.small_library import FILES, library
from tests.passbench.models.small_models import Residual


@pytest.fixture(autouse=True)
def _fresh():
    torch.manual_seed(0)
    torch._dynamo.reset()
    with torch.no_grad():
        yield


class Scaling(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x) * 1.1 * 1.3


class Scaled(nn.Module):
    """Two modules, whose products are rounded in between; TorchInductor leaves that out unless it is told otherwise."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.scaling = nn.ReLU(), Scaling()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scaling(self.before(x)).view(-1, 4)


def given(model: nn.Module, x: torch.Tensor) -> GraphCall:
    capture = capture_model(model, (x,), {})
    held = tuple(each.tensor for each in capture.held)
    return GraphCall(capture.graph, capture.moving, held, capture.facts)


def test_an_operator_is_named_with_its_module():
    call = given(Scaled().eval(), torch.randn(64, 8).bfloat16())
    assert first_unlike(call, Recipe("inductor", "inductor"), [call.moving]) == "mul (mul_1) of scaling"


def test_where_all_have_eagers_bits_what_is_fused_has_not():
    call = given(Scaled().eval(), torch.randn(64, 8))
    assert first_unlike(call, Recipe("eager", "eager"), [call.moving]) == "no operator alone, but what is fused"


def test_a_pass_is_named(tmp_path):
    other = {name: text.replace(", 0)", ", 0) * 1.0001") for name, text in FILES.items()}
    files = [{"path": name, "content": text} for name, text in other.items()]
    (entry,) = library(tmp_path, 4, 8, pass_files=files).entries()
    settings = OptimizeSettings(effort="quick", strict=True, library=str(tmp_path))
    model, x = Residual().eval(), torch.randn(4, 8)
    fast = optimize_model(model, (x,), {}, settings)
    (trial,) = (trial for trial in fast.report.trials if trial.recipe.passes)
    assert trial.us is None and f"first part that has not: pass {entry.name[:12]}, which mul" in trial.reason
    assert torch.equal(fast(x), model(x))

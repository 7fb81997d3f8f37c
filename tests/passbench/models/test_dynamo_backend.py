"""torch.compile(model, backend="passnet")."""

import importlib
import tomllib
from pathlib import Path

import pytest
import torch
from torch._dynamo.backends.registry import lookup_backend, register_backend

import passnet
from passbench.models.dynamo_backend import passnet_backend, settings_from
from storage.errors import PassNetError
from tests.passbench.models.small_models import Breaking, Convolutional, Viewing

QUICK = {"effort": "quick"}


@pytest.fixture(autouse=True)
def _fresh():
    torch.manual_seed(0)
    torch._dynamo.reset()


def test_the_entry_point_names_it():
    project = tomllib.loads((Path(__file__).resolve().parents[3] / "pyproject.toml").read_text())
    module, _, name = project["project"]["entry-points"]["torch_dynamo_backends"]["passnet"].partition(":")
    assert getattr(importlib.import_module(module), name) is passnet_backend
    if "passnet" not in torch._dynamo.list_backends(None):  # an installation from before the entry point
        register_backend(passnet_backend, name="passnet")
    assert lookup_backend("passnet") is passnet_backend


def test_it_serves_calls_and_follows_parameters():
    model, x = Convolutional().eval(), torch.randn(1, 3, 16, 16)
    compiled = torch.compile(model, backend=passnet_backend, options=QUICK)
    with torch.no_grad():
        mine, expected = compiled(x), model(x)
        assert torch.equal(mine["sum"], expected["sum"]) and mine["given"] is x
        model.table.mul_(2)
        assert torch.equal(compiled(x)["sum"], model(x)["sum"])
        model.conv.weight.data = model.conv.weight.data * 2
        assert torch.equal(compiled(x)["sum"], model(x)["sum"])
        other = torch.randn(1, 3, 20, 20)
        assert torch.equal(torch.compile(model, backend=passnet_backend, options=QUICK, dynamic=False)(other)["sum"],
                           model(other)["sum"])  # fmt: skip


def test_a_model_of_several_graphs_runs_each_of_them():
    model = Breaking()
    compiled = torch.compile(model, backend=passnet_backend, options=QUICK)
    with torch.no_grad():
        for x in (torch.ones(3), -torch.ones(3)):
            assert torch.equal(compiled(x), model(x))


def test_views_stay_views():
    model, x = Viewing(), torch.randn(3, 4)
    with torch.no_grad():
        view, y, flat = torch.compile(model, backend=passnet_backend, options=QUICK)(x)
    assert view.data_ptr() == x.data_ptr() and flat.data_ptr() == y.data_ptr()


def test_gradients_flow():
    """Through TorchInductor; small, since its C++ takes long to compile, and headers still longer."""
    layer, x = torch.nn.Linear(3, 2), torch.randn(4, 3)
    compiled = torch.compile(layer, backend=passnet_backend, options=QUICK)
    with torch._inductor.config.patch(cpp_cache_precompile_headers=False):
        compiled(x).sum().backward()
    mine, layer.weight.grad = layer.weight.grad, None
    layer(x).sum().backward()
    torch.testing.assert_close(mine, layer.weight.grad)


def test_an_unknown_option_is_refused():
    with pytest.raises(PassNetError, match="backend passnet has no option 'mode': it has double, effort"):
        settings_from({"mode": "fast"})
    with pytest.raises(PassNetError, match="seconds is a number from 0 on, or None for no limit; not '3'"):
        settings_from({"seconds": "3"})


def test_the_face_optimises():
    model, x = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU()).eval(), torch.randn(2, 3)
    said: list[str] = []
    with torch.no_grad():
        fast = passnet.optimize(model, (x,), effort="quick", progress=said.append)
        assert torch.equal(fast(x), model(x)) and said == ["eager", "eager-once"]

"""Passes of a library in whole models: served where they were measured, and nowhere else."""

import pytest
import torch
from torch import nn

from passbench.library.pass_library import PassLibrary
from passbench.models.optimize import optimize_model
from passbench.models.optimized_model import OptimizedModel, OptimizeSettings
from storage.errors import PassNetError
from tests.passbench.library.small_library import library, passport, problem
from tests.passbench.models.small_models import Residual


@pytest.fixture(autouse=True)
def _fresh():
    torch.manual_seed(0)
    torch._dynamo.reset()
    with torch.no_grad():
        yield


def optimized(model: nn.Module, x: torch.Tensor, directory, recipe=None) -> OptimizedModel:
    settings = OptimizeSettings(effort="quick", library=str(directory), recipe=recipe)
    return optimize_model(model, (x,), {}, settings)


def test_a_pass_serves_the_kinds_that_were_measured(tmp_path):
    name = library(tmp_path, 4, 8).entries()[0].name
    model, x = Residual().eval(), torch.randn(4, 8)
    fast = optimized(model, x, tmp_path)
    trial = next(trial for trial in fast.report.trials if trial.recipe.passes)
    assert trial.served == {name: 1} and trial.reason == "" and trial.errors.equal and trial.us > 0
    served = optimized(model, x, tmp_path, trial.recipe)
    assert torch.equal(served(x), model(x)) and (served.report.covered, served.report.ops) == (2, 8)
    code = served.lowered.parts.main.code
    assert "passnet_serving.add_relu" in code and code.count("relu(") == 1
    model.layer.weight.mul_(2)
    assert torch.equal(served(x), model(x)) and served.fallbacks == 0


def test_other_kinds_are_left_alone(tmp_path):
    library(tmp_path, 4, 9)
    fast = optimized(Residual().eval(), torch.randn(4, 8), tmp_path)
    trial = next(trial for trial in fast.report.trials if trial.recipe.passes)
    assert trial.us is None and trial.reason == "no pass of the library matches"


def test_who_may_not_serve_is_named_with_the_reason(tmp_path):
    of = problem(4, 8)
    PassLibrary(tmp_path).add([passport(of, device="NVIDIA H200")], {of.variant_hash: of})
    fast = optimized(Residual().eval(), torch.randn(4, 8), tmp_path)
    assert "no passport" in fast.report.refused[of.graph_hash]
    assert not any(trial.recipe.passes for trial in fast.report.trials)


def test_passes_can_be_switched_off(tmp_path):
    library(tmp_path, 4, 8)
    settings = OptimizeSettings(effort="quick", library=str(tmp_path), without=("passes",))
    fast = optimize_model(Residual().eval(), (torch.randn(4, 8),), {}, settings)
    assert fast.report.trials and not any(trial.recipe.passes for trial in fast.report.trials)


def test_a_pass_that_was_slower_than_eager_on_this_machine_is_left_out(tmp_path):
    (entry,) = library(tmp_path, 4, 8, times_meaningful=True, speedup_device=0.5).entries()
    fast = optimized(Residual().eval(), torch.randn(4, 8), tmp_path)
    assert fast.report.refused == {entry.name: "it was no faster than eager when it was measured (0.50)"}


def test_a_choice_is_kept_and_taken_again(tmp_path):
    library(tmp_path, 4, 8)
    model, x = Residual().eval(), torch.randn(4, 8)
    first, again = optimized(model, x, tmp_path), optimized(model, x, tmp_path)
    assert not first.report.remembered and again.report.remembered
    assert again.report.name == first.report.name and again.report.trials == first.report.trials
    assert torch.equal(again(x), model(x))
    assert not optimized(model, torch.randn(5, 8), tmp_path).report.remembered


def test_a_library_that_cannot_be_written_is_refused_before_anything_is_measured(tmp_path):
    (tmp_path / "file").touch()
    settings, tried = OptimizeSettings(effort="quick", library=str(tmp_path / "file" / "library")), []
    with pytest.raises(PassNetError, match=r"cannot write to .* choose another library"):
        optimize_model(Residual().eval(), (torch.randn(4, 8),), {}, settings, progress=tried.append)
    assert not tried

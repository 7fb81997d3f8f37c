"""A later start takes up dynamo's capture of an earlier one, and notices all that has changed since."""

import ctypes
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from passbench.models import optimize
from passbench.models.kept.kept_captures import KeptCaptures
from passbench.models.model_capture import capture_model
from passbench.models.optimize import optimize_model
from passbench.models.optimized_model import FallbackWarning, OptimizedModel, OptimizeSettings
from passbench.models.recipes import Recipe
from tests.passbench.models.kept import small_world
from tests.passbench.models.kept.small_world import Reading
from tests.passbench.models.small_models import Skipping

EAGER = Recipe("eager", "eager")
X = torch.linspace(-1, 1, 8).reshape(2, 4)


def started(library: Path, model: torch.nn.Module, *args: torch.Tensor, **kwargs: object) -> OptimizedModel:
    torch._dynamo.reset()
    with torch.no_grad():
        return optimize_model(model, args or (X,), kwargs, OptimizeSettings(library=str(library), recipe=EAGER))


def same(optimised: OptimizedModel, model: torch.nn.Module, x: torch.Tensor = X, **kwargs: object) -> bool:
    with torch.no_grad():
        return all(map(torch.equal, optimised(x, **kwargs), model(x, **kwargs)))


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = tmp_path_factory.mktemp("library")
    first = started(library, Reading().eval())
    assert not first.report.kept and len(list((library / "captures").iterdir())) == 1
    return library


def test_it_is_taken_up_without_dynamo(filled, monkeypatch):
    monkeypatch.setattr(optimize, "capture_model", None)
    other = Reading().eval()
    optimised = started(filled, other)
    assert optimised.report.kept and same(optimised, other) and same(optimised, other, X + 1)
    with torch.no_grad():
        other.first.weight.mul_(2)
    assert same(optimised, other)
    other.second.weight = torch.nn.Parameter(torch.ones(4, 4))
    assert same(optimised, other) and optimised.fallbacks == 0


OWN_PROCESS = """
import sys, torch
from passbench.models import optimize
from passbench.models.optimized_model import OptimizeSettings
from passbench.models.recipes import Recipe
from tests.passbench.models.kept.small_world import Reading
from tests.passbench.models.small_models import Skipping
library, taken_up = sys.argv[1], sys.argv[2] == "take up"
if taken_up:
    optimize.capture_model = None
model, x = Reading().eval(), torch.ones(2, 4)
with torch.no_grad():
    found = optimize.optimize_model(model, (x,), {}, OptimizeSettings(library=library, recipe=Recipe("eager", "eager")))
    assert found.report.kept == taken_up and all(map(torch.equal, found(x), model(x))) and found.fallbacks == 0
"""


def test_another_process_takes_it_up(tmp_path):
    # Not this process's library: tests before this one leave settings of torch behind, which count.
    for seed, what in (("3", "capture"), ("7", "take up")):
        command = [sys.executable, "-c", OWN_PROCESS, str(tmp_path), what]
        done = subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def _patched_forward(self: Reading, x: torch.Tensor, *, twice: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    return self.second(x).view(-1, 2, 2), x


def _another(x: torch.Tensor, by: float = 3.0) -> torch.Tensor:
    return x / by


def _of_a_module(change):
    return lambda monkeypatch, model: change(model)


CHANGES = {
    "a global": lambda patch, model: patch.setattr(small_world, "FACTOR", 2.5),
    "a function": lambda patch, model: patch.setattr(small_world, "scaled", _another),
    "a default": lambda patch, model: patch.setattr(small_world.scaled, "__defaults__", (4.0,)),
    "code": lambda patch, model: patch.setattr(small_world.scaled, "__code__", _another.__code__),
    "a closure": lambda patch, model: patch.setattr(small_world, "ADD", small_world.adding(2.0)),
    "a cell": lambda patch, model: patch.setattr(small_world.ADD.__closure__[0], "cell_contents", 2.0),
    "a slot": lambda patch, model: patch.setattr(small_world.SLOTTED, "by", 3.0),
    "a queue": _of_a_module(lambda model: model.queue.__setitem__(0, 3.0)),
    "a set": _of_a_module(lambda model: model.chosen.clear()),
    "an object's class": lambda patch, model: patch.setattr(small_world.SHIFTED, "__class__", small_world.ShiftedMore),
    "an attribute of a tensor": _of_a_module(lambda model: setattr(model.scale, "times", 4.0)),
    "a module's class": _of_a_module(lambda model: setattr(model.first, "__class__", small_world.Halved)),
    "a registry": lambda patch, model: patch.setitem(small_world.REGISTRY, "kind", torch.tanh),
    "torch's function": lambda patch, model: patch.setattr(F, "linear", lambda x, w, b: x),
    "a class": lambda patch, model: patch.setattr(Reading, "forward", _patched_forward),
    "a method": lambda patch, model: patch.setattr(Reading, "middle", lambda self, x: x),
    "a class's number": lambda patch, model: patch.setattr(Reading, "sign", -1.0),
    "torch's class": lambda patch, model: patch.setattr(torch.nn.Linear, "forward", lambda self, x: x),
    "an own forward": _of_a_module(lambda model: setattr(model.first, "forward", lambda x: x)),
    "a configuration": _of_a_module(lambda model: setattr(model.config.deep, "shift", 0.25)),
    "a list": _of_a_module(lambda model: model.sizes.reverse() or model.sizes.append(1)),
    "a buffer": _of_a_module(lambda model: setattr(model, "missing", torch.ones(4))),
    "a module": _of_a_module(lambda model: setattr(model, "first", torch.nn.Identity())),
    "one module twice": _of_a_module(lambda model: setattr(model, "second", model.first)),
    "a hook": _of_a_module(lambda model: model.first.register_forward_hook(lambda *_: X)),
    "no bias": _of_a_module(lambda model: setattr(model.first, "bias", None)),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_before_the_start_is_noticed(name, filled, monkeypatch):
    model = Reading().eval()
    CHANGES[name](monkeypatch, model)
    with torch.no_grad():
        assert KeptCaptures(str(filled), model, (X,), {}, capture_model).get() is None


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.filterwarnings("ignore::passbench.models.optimized_model.FallbackWarning")
def test_a_change_after_the_start_is_noticed_too(name, filled, monkeypatch):
    model = Reading().eval()
    optimised = started(filled, model)
    assert optimised.report.kept and same(optimised, model)
    CHANGES[name](monkeypatch, model)
    assert same(optimised, model) and same(optimised, model, X * 2)


def test_another_state_of_torch_and_another_call_are_noticed(filled):
    def kept(*args: object, **kwargs: object) -> bool:
        with torch.no_grad():
            return KeptCaptures(str(filled), Reading().eval(), args, kwargs, capture_model).get() is not None

    assert kept(X) and not kept(X, twice=True) and not kept(X.double()) and not kept(X.T.contiguous().T)
    assert not kept(X[:1]) and not kept(X.clone().requires_grad_())
    with torch.autocast("cpu"):
        assert not kept(X)
    with torch.device("cpu"):
        assert not kept(X)
    with torch._dynamo.config.patch(inline_inbuilt_nn_modules=False):
        assert not kept(X)
    torch.backends.cuda.enable_flash_sdp(not torch.backends.cuda.flash_sdp_enabled())
    try:
        assert not kept(X)
    finally:
        torch.backends.cuda.enable_flash_sdp(not torch.backends.cuda.flash_sdp_enabled())
    assert kept(X)


def test_a_change_that_means_nothing_has_dynamo_asked_once(filled):
    model = Reading().eval()
    optimised = started(filled, model)
    model.note = "of no meaning"
    assert same(optimised, model) and optimised.fallbacks == 0
    assert optimised._route.capture.renew is None  # dynamo's guards from here on
    small_world.FACTOR, before = 5.0, small_world.FACTOR
    try:
        with pytest.warns(FallbackWarning):
            assert same(optimised, model)
    finally:
        small_world.FACTOR = before


def test_numbers_that_a_model_draws_for_nothing_are_drawn_after_a_start_too(tmp_path, monkeypatch):
    model = Skipping().eval()
    assert not started(tmp_path, model).report.kept
    monkeypatch.setattr(optimize, "capture_model", None)
    optimised = started(tmp_path, model)
    assert optimised.report.kept
    with torch.no_grad():
        torch.manual_seed(0)
        expected, after = model(X), torch.rand(2)
        torch.manual_seed(0)
        assert torch.equal(optimised(X), expected) and torch.equal(torch.rand(2), after) and optimised.fallbacks == 0


def test_numbers_drawn_for_nothing_on_another_device_keep_no_capture_from_a_library(tmp_path):
    model, x = Skipping().eval().to("meta"), X.to("meta")  # torch.rand([]) draws on the CPU
    with torch.no_grad():
        capture = capture_model(model, (x,), {})
        KeptCaptures(str(tmp_path), model, (x,), {}, capture_model).put(capture)
        taken_up = KeptCaptures(str(tmp_path), model, (x,), {}, capture_model).get()
    assert taken_up is not None and taken_up.facts == capture.facts and len(taken_up.draws) == 3


def test_a_call_of_another_kind_goes_to_the_model(filled):
    model = Reading().eval()
    optimised = started(filled, model)
    with pytest.warns(FallbackWarning):
        assert same(optimised, model, twice=True)
    assert optimised.fallbacks == 1 and same(optimised, model) and optimised.fallbacks == 1


DAMAGE = {
    "a name": lambda data: data["nodes"][-1].__setitem__(0, "x\n    import os"),
    "an input": lambda data: data["nodes"][0].__setitem__(1, "x):\n    import os\ndef f("),
    "a step": lambda data: data["witness"]["steps"][-1].__setitem__(0, "import"),
    "a call's place": lambda data: data["moving"].__setitem__(0, "L['args'].__import__('os')"),
    "a held place": lambda data: data["held"].__setitem__(0, "L['model'].__import__('os')"),
    "a target": lambda data: data.update(graph=data["graph"].replace("torch.nn.functional.linear", "os.system")),
    "a class": lambda data: data["result"].update(flat=["os", "system"]),
    "a keyword": lambda data: data["nodes"][0].__setitem__(1, "class"),
    "a device": lambda data: data.update(device="nowhere"),
    "nothing": lambda data: data.clear(),
    "numbers": lambda data: data["witness"].update(told=[[10**6, ""]]),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_file_that_says_something_else_is_passed_over(name, filled, tmp_path):
    (file,) = (filled / "captures").iterdir()
    (tmp_path / "captures").mkdir()
    data = json.loads(file.read_text())
    DAMAGE[name](data)
    (tmp_path / "captures" / file.name).write_text(json.dumps(data))
    with torch.no_grad():
        kept = KeptCaptures(str(tmp_path), Reading().eval(), (X,), {}, capture_model)
        assert kept.get() is None and kept.why_not and "has none" not in kept.why_not


def _steps(*last: list) -> Callable[[dict], None]:
    def add(data: dict) -> None:
        steps = data["witness"]["steps"]
        number = len(steps)
        steps += [["module", -1, "ctypes"], ["attribute", number, "cdll"], [last[0], number + 1, last[1]]]

    return add


_FROM_TORCH = ".__globals__['torch'].ctypes.cdll['/library.so']"
LOADING = {
    "an item": _steps("item", "/library.so"),
    "an attribute": _steps("attribute", "/library.so"),
    "a held place": lambda data: data["held"].__setitem__(0, f"L['model'].forward{_FROM_TORCH}.x"),
    "a call's place": lambda data: data["moving"].__setitem__(0, f"L['args'][0].backward{_FROM_TORCH}"),
    "a class": lambda data: data["result"].update(flat=["ctypes", "cdll./library"]),
    "a class within": lambda data: data["result"].update(
        flat=None, spec=["class", [["ctypes", "cdll./library"], [["a", None]]]]
    ),
    "pytree's enumeration": lambda data: data["result"].update(
        spec=_spec("builtins.dict", json.dumps({"__enum__": True, "fqn": "ctypes:cdll", "name": "/library.so"}))
    ),
    "pytree's import": lambda data: data["result"].update(
        spec=_spec(
            "collections.defaultdict",
            {"default_factory_module": "antigravity", "default_factory_name": "fly", "dict_context": []},
        )
    ),
}
"""Ways by which a name in a file could have code loaded: a shared library by its path, or a module."""


def _spec(kind: str, context: object) -> str:
    return json.dumps([1, {"type": kind, "context": context, "children_spec": []}])


@pytest.mark.parametrize("name", LOADING)
def test_a_file_loads_nothing(name, filled, tmp_path, monkeypatch):
    loaded = []
    monkeypatch.setattr(ctypes.CDLL, "__init__", lambda self, path, *rest, **named: loaded.append(path))
    monkeypatch.setattr(ctypes, "cdll", ctypes.LibraryLoader(ctypes.CDLL))  # it keeps what it has loaded
    monkeypatch.setattr(importlib, "import_module", lambda name, *rest: loaded.append(name))
    (file,) = (filled / "captures").iterdir()
    (tmp_path / "captures").mkdir()
    data = json.loads(file.read_text())
    LOADING[name](data)
    (tmp_path / "captures" / file.name).write_text(json.dumps(data))
    with torch.no_grad():
        assert KeptCaptures(str(tmp_path), Reading().eval(), (X,), {}, capture_model).get() is None
    assert not loaded

"""Several threads plan convolutions, and each calls its own for the thread that captures."""

import threading
import time
from collections import Counter, defaultdict

import pytest
import torch
import torch.nn.functional as F

from passbench.models.optimize import optimize_model
from passbench.models.optimized_model import OptimizeSettings
from passbench.models.warm_start import planned_convolutions
from passbench.models.warm_start.first_calls import convolutions_of
from passbench.models.warm_start.planned_convolutions import PlannedConvolutions

CPU = torch.device("cpu")
WEIGHTS = [torch.randn(4, 4, size, size) for size in range(1, 13)]


def convolved(x: torch.Tensor) -> list[torch.Tensor]:
    return [F.conv2d(x, weight).relu() for weight in WEIGHTS]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> dict[str, Counter[int]]:
    """How often each thread has called each size by `torch.convolution`. A call takes a while, and two threads help."""
    found: dict[str, Counter[int]] = defaultdict(Counter)
    real = torch.convolution

    def noting(x: torch.Tensor, weight: torch.Tensor, *rest: object) -> torch.Tensor:
        if x.device.type != "meta":
            found[threading.current_thread().name][weight.shape[-1]] += 1
            time.sleep(0.05)
        return real(x, weight, *rest)

    monkeypatch.setattr(torch, "convolution", noting)
    monkeypatch.setattr(planned_convolutions, "SLOW_SECONDS", 0.0)
    monkeypatch.setattr(planned_convolutions.os, "sched_getaffinity", lambda _: range(8))
    return found


def test_each_thread_calls_what_it_has_planned(calls):
    x = torch.randn(1, 4, 16, 16)
    planned = PlannedConvolutions(convolutions_of(convolved, [x]), CPU)
    made = planned.thread.submit(planned.calling(convolved), x).result()
    for a, b in zip(made, convolved(x), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)
    helpers = [name for name in calls if "helper" in name]
    assert len(calls) == 3 and len(helpers) == 2
    assert all(set(calls[name].values()) == {2} for name in helpers), "planned, then called"
    assert sum((Counter(set(sizes)) for sizes in calls.values()), Counter()) == Counter(range(1, 13))


def test_where_plans_take_little_time_one_thread_makes_them(calls, monkeypatch):
    monkeypatch.setattr(planned_convolutions, "SLOW_SECONDS", 60.0)
    x = torch.randn(1, 4, 16, 16)
    planned = PlannedConvolutions(convolutions_of(convolved, [x]), CPU)
    assert len(planned.thread.submit(planned.calling(convolved), x).result()) == 12
    assert len(calls) == 1 and sum(*map(Counter.values, calls.values())) == 12


def test_what_a_helper_raises_is_raised_by_the_call(calls, monkeypatch):
    x = torch.randn(1, 4, 16, 16)
    planned = PlannedConvolutions(convolutions_of(convolved, [x]), CPU)
    call = planned.calling(convolved)
    assert len(planned.thread.submit(call, x).result()) == 12

    def failing(*_: object) -> torch.Tensor:
        raise RuntimeError("no memory")

    monkeypatch.setattr(torch, "convolution", failing)
    with pytest.raises(RuntimeError, match="no memory"):
        planned.thread.submit(call, x).result()


@pytest.mark.gpu
def test_a_graph_has_the_convolutions_of_all_threads(tmp_path, calls):
    torch.manual_seed(0)
    layers = [torch.nn.Conv2d(8, 8, size, padding="same") for size in range(1, 8)]
    model, x = torch.nn.Sequential(*layers).eval().cuda(), torch.randn(1, 8, 16, 16, device="cuda")
    settings = OptimizeSettings(effort="quick", library=str(tmp_path), without=("passes",))
    with torch.no_grad():
        first = optimize_model(model, (x,), {}, settings)
        calls.clear()
        torch._dynamo.reset()
        again = optimize_model(model, (x,), {}, settings)
        assert again.report.remembered and again.report.name == first.report.name
        assert not again.report.name.startswith(("inductor-graph", "merged-graph")) or len(calls) > 1
        for y in (x, torch.randn_like(x)):
            torch.testing.assert_close(again(y), model(y), atol=1e-3, rtol=1e-3)
        assert again.fallbacks == 0

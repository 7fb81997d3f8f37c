"""CUDA graphs of whole models, on a GPU: right, fresh outputs, changed parameters, streams, threads, refusals,
random numbers."""

import threading

import pytest
import torch

from passbench.models import replayed
from passbench.models.optimize import optimize_model
from passbench.models.optimized_model import FallbackWarning, OptimizedModel, OptimizeSettings
from passbench.models.recipes import Recipe
from passbench.models.replayed import NotCaptured, ReplayedGraph
from tests.passbench.models.small_models import Convolutional, Viewing

pytestmark = pytest.mark.gpu

GRAPH = Recipe("merged-graph", "inductor", graphed=True, once=True, merged=True)
EAGER_GRAPH = Recipe("eager-graph", "eager", graphed=True, once=True)


@pytest.fixture(autouse=True)
def _fresh(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)  # whose use differs from algorithm to algorithm
    torch.manual_seed(0)
    torch._dynamo.reset()
    with torch.no_grad():
        yield


def image(batch: int = 1) -> torch.Tensor:
    return torch.randn(batch, 3, 16, 16, device="cuda")


def made(recipe: Recipe | None = None, **settings) -> tuple[Convolutional, OptimizedModel]:
    model = Convolutional().eval().cuda()
    return model, optimize_model(model, (image(),), {}, OptimizeSettings(recipe=recipe, **settings))


@pytest.mark.parametrize("recipe", [EAGER_GRAPH, GRAPH], ids=lambda recipe: recipe.name)
def test_replays_follow_inputs_and_parameters(recipe):
    model, fast = made(recipe)
    for _ in range(3):
        x = image()
        torch.testing.assert_close(fast(x)["sum"], model(x)["sum"], atol=1e-3, rtol=1e-3)
    x = image()
    changes = [
        lambda: model.table.mul_(3),
        lambda: model.conv.weight.mul_(1.5),
        lambda: setattr(model.conv.weight, "data", model.conv.weight.data * 2),
        lambda: setattr(model.query, "weight", torch.nn.Parameter(torch.randn(4, 8, device="cuda"))),
    ]
    for change in changes:
        before = fast(x)["sum"]
        change()
        torch.testing.assert_close(fast(x)["sum"], model(x)["sum"], atol=1e-3, rtol=1e-3)
        assert not torch.equal(fast(x)["sum"], before)
    assert fast.fallbacks == 0


def test_outputs_are_the_callers_own():
    model, fast = made(EAGER_GRAPH)
    x, y = image(), image()
    first = fast(x)
    kept = first["sum"].clone()
    second = fast(y)
    assert torch.equal(first["sum"], kept) and first["sum"].data_ptr() != second["sum"].data_ptr()
    assert first["given"] is x and torch.equal(second["sum"], model(y)["sum"])


def test_eager_as_one_graph_has_eagers_bits():
    model, fast = made(strict=True)
    reasons = {trial.recipe.name: trial.reason for trial in fast.report.trials}
    assert reasons["eager-graph"] == "", reasons
    x = image()
    assert torch.equal(fast(x)["sum"], model(x)["sum"])


def test_all_ways_of_the_quick_effort_work():
    _, fast = made(effort="quick")
    assert {trial.recipe.name: trial.reason for trial in fast.report.trials if trial.us is None} == {}


def test_streams_and_threads_share_it():
    model, fast = made(EAGER_GRAPH)
    xs = [image() for _ in range(4)]
    expected = [model(x)["sum"] for x in xs]
    torch.cuda.synchronize()
    wrong = []

    def work(number: int) -> None:
        with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(50):
                found = fast(xs[number])["sum"]
                torch.cuda.current_stream().synchronize()
                if not torch.equal(found, expected[number]):
                    wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and fast.fallbacks == 0


def test_inputs_elsewhere_go_to_the_model():
    _, fast = made(EAGER_GRAPH)
    with pytest.warns(FallbackWarning, match="on cpu, optimised for"), pytest.raises(RuntimeError):
        fast(image().cpu())


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_a_second_device_has_its_own():
    model = Convolutional().eval().to("cuda:1")
    x = image().to("cuda:1")
    fast = optimize_model(model, (x,), {}, OptimizeSettings(recipe=EAGER_GRAPH))
    assert torch.equal(fast(x)["sum"], model(x)["sum"]) and fast.fallbacks == 0


def test_shared_outputs_are_never_one_graph():
    x = torch.randn(3, 4, device="cuda")
    fast = optimize_model(Viewing().eval(), (x,), {}, OptimizeSettings(effort="quick"))
    assert "graph" not in fast.report.name
    view, y, flat = fast(x)
    assert view.data_ptr() == x.data_ptr() and flat.data_ptr() == y.data_ptr()


def test_outputs_that_share_memory_do_so_in_copies_of_their_own():
    def function(x):
        y = x * 2
        return [y, y[1:], x + 1, y.view(2, 4)]

    x = torch.randn(8, device="cuda")
    graph = ReplayedGraph(function, [x])
    first, second = graph(x), graph(x + 1)
    for found, given in ((first, x), (second, x + 1)):
        for a, b in zip(found, function(given), strict=True):
            assert torch.equal(a, b) and a.stride() == b.stride()
        assert found[0].data_ptr() + 4 == found[1].data_ptr() and found[3].data_ptr() == found[0].data_ptr()
    assert first[0].data_ptr() != second[0].data_ptr()


def test_what_waits_for_the_gpu_is_refused_and_leaves_the_gpu_usable():
    x = torch.randn(8, device="cuda")
    with pytest.raises(NotCaptured):
        ReplayedGraph(lambda x: [x * x.sum().item()], [x])
    again = ReplayedGraph(lambda x: [x * 2, x[::2], x.expand(3, 8)], [x])
    y = torch.randn(8, device="cuda")
    double, part, wide = again(y)
    assert torch.equal(double, y * 2) and torch.equal(part, y[::2]) and torch.equal(wide, y.expand(3, 8))
    assert wide.stride() == (0, 1) and part.stride() == (2,)


@pytest.mark.parametrize("most", [0, replayed.MOST_BYTES], ids=["by torch", "in the graph"])
def test_copies_of_many_tensors_of_any_layout_and_address(most, monkeypatch):
    monkeypatch.setattr(replayed, "MOST_BYTES", most)

    def function(*xs):
        return [x * 2 for x in xs] + [xs[0].sum(), xs[0] > 0, xs[1].t() + 1]

    shapes = [(3, 5), (7, 2), (1,), (0, 4), (4096, 33)] * 3

    def given() -> list[torch.Tensor]:
        whole = [torch.randn(2 + torch.Size(shape).numel(), device="cuda") for shape in shapes]
        return [x[1:-1].view(shape) for x, shape in zip(whole, shapes, strict=True)]  # 4 bytes off

    graph = ReplayedGraph(function, given())
    assert (graph._copies is not None) == (most > 0)
    before = None
    for _ in range(3):
        xs = given()
        found = graph(*xs)
        for a, b in zip(found, function(*xs), strict=True):
            assert torch.equal(a, b) and a.stride() == b.stride() and a.dtype == b.dtype
        if before is not None:
            assert all(torch.equal(a, b) for a, b in zip(*before, strict=True))
        before = (found, [x.clone() for x in found])


def test_random_numbers_are_others_in_each_replay():
    graph = ReplayedGraph(lambda x: [x + torch.rand_like(x)], [torch.zeros(1000, device="cuda")])
    first, second = (graph(torch.zeros(1000, device="cuda"))[0] for _ in range(2))
    assert graph._copies is None and not torch.equal(first, second)

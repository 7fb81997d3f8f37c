"""Calls timed in a CUDA graph."""

import pytest
import torch

from agent.ahead import graph_times
from agent.ahead.graph_times import RecentMedian, SideGraphs, calls_in_graph, graph_timer
from agent.ahead.own_inputs import OwnInputs
from agent.ahead.side_times import side_times
from passbench.launch import captured
from passbench.timing.device_clock import _MOST_CAPTURED
from tests.agent.ahead.simulated_gpu import SimulatedGpu


def test_a_graph_has_more_calls_of_what_is_short_and_few_of_what_returns_much():
    assert calls_in_graph(20.0, 4096) == 128
    assert calls_in_graph(150.0, 4096) == 80
    assert calls_in_graph(1000.0, 4096) == 12
    assert calls_in_graph(5000.0, 4096) == 3
    assert calls_in_graph(50_000.0, 4096) == 2
    assert calls_in_graph(100.0, 16 << 20) == 8
    assert calls_in_graph(100.0, 1 << 30) == 2
    assert calls_in_graph(100.0, 0) == 120
    assert calls_in_graph(20.0, 4096, 16 << 20) == 16
    assert calls_in_graph(20.0, 4096, 4 << 30) == 2


def test_what_is_short_has_as_many_calls_as_in_passbenchs_graph():
    """Four sums of 80 us eager, end to end: the inputs of fewer calls stay in the cache."""
    assert calls_in_graph(83.0, 1024, 368_640) == _MOST_CAPTURED


class Replays:
    """A timer of calls of so many microseconds; one of three is disturbed."""

    rows = ((),) * 10

    def __init__(self, us):
        self.us, self.calls = us, 0

    def call_us(self):
        self.calls += 1
        return self.us * (5.0 if self.calls % 3 == 1 else 1.0)


def test_what_a_replay_takes_beside_its_calls_is_a_median():
    told = iter([8.0, 9.0, 8.2, 8.1, 30.0])
    recent = RecentMedian(lambda: next(told))
    assert [recent.us() for _ in range(5)] == [8.0, 8.5, 8.2, pytest.approx(8.15), 8.2]


def test_the_gpu_waits_for_a_graph_that_takes_long_to_hand_over(monkeypatch):
    gpu = SimulatedGpu(monkeypatch)

    class Graph:
        rows = ((),) * 10

        def replay(self):
            for _ in range(10):
                gpu.call(80.0, 5.0)

    class Inputs:
        def write(self):
            gpu.call(10.0, 10.0)

    monkeypatch.setattr(graph_times, "_device", lambda: None)
    monkeypatch.setattr(graph_times, "_empty", lambda device: RecentMedian(lambda: 0.0))
    assert graph_times.GraphTimer(Graph(), Inputs()).call_us() == pytest.approx(5.0)


def test_a_graph_of_few_short_calls_is_timed_more_often(monkeypatch):
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    tries = []
    for rows in (10, 2):
        eager, candidate = Replays(16.0), Replays(8.0)
        candidate.rows = ((),) * rows
        sides = {"eager": torch.relu, "candidate": torch.abs}
        graphs = {"eager": eager, "candidate": candidate}
        side_times(sides, lambda n: [(torch.ones(4),)] * n, torch.device("cuda"), {}, graphs)
        tries.append(candidate.calls)
    assert tries == [3, 8]


def test_the_devices_clock_is_that_of_the_graphs(monkeypatch):
    """As on a GPU, but that no call runs there."""
    device, earlier = torch.device("cuda"), {}
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    graphs = {"eager": Replays(80.0), "candidate": Replays(20.0)}
    sides = {"eager": torch.relu, "candidate": torch.abs}
    times = side_times(sides, lambda n: [(torch.ones(4),)] * n, device, earlier, graphs)
    assert times.timings[1].clock == "device" and times.timings[1].speedup == 4.0
    assert earlier["device"] == [80.0] and times.timings[1].calls == 30


def _rows(count, *shape):
    return [(torch.randn(*shape, device="cuda"),) for _ in range(count)]


def chain(x):
    return torch.relu(x * 2.0 + 1.0)


def three(x):
    return captured(chain, x)


@pytest.mark.gpu
def test_a_call_of_short_kernels_takes_what_they_take():
    """Handed over one by one, three kernels take about 6 us."""
    timer = graph_timer(chain, OwnInputs(_rows(64, 1024)))
    assert 1.0 < min(timer.call_us() for _ in range(5)) < 5.0


@pytest.mark.gpu
def test_calls_read_their_inputs_from_memory():
    """The same 4 MB again and again come from the L2 cache, 64 times as many do not fit there."""
    row = _rows(1, 1 << 20)
    own, alike = (OwnInputs(row * n) for n in (64, 1))
    alike.rows = alike.rows * 64
    cold, warm = (min(graph_timer(torch.Tensor.sum, each).call_us() for _ in range(5)) for each in (own, alike))
    assert cold > 1.1 * warm


@pytest.mark.gpu
def test_a_captured_function_copies_nothing_in_a_graph():
    graphs = SideGraphs()
    three(*_rows(1, 1 << 24)[0])
    found = graphs.of(chain, three, lambda n: _rows(1, 1 << 24) * n)
    eager, candidate = (min(found[side].call_us() for _ in range(5)) for side in ("eager", "candidate"))
    assert candidate < 1.1 * eager


@pytest.mark.gpu
def test_what_waits_for_the_device_is_not_captured_and_all_works_afterwards():
    def waits(x):
        return x * x.sum().item()

    rows = _rows(4, 64)
    assert graph_timer(waits, OwnInputs(rows)) is None
    assert SideGraphs().of(waits, chain, lambda n: rows[:1] * n) == {}
    assert torch.cuda.get_sync_debug_mode() == 0
    torch.manual_seed(1)
    torch.nn.functional.dropout(rows[0][0], 0.5, True).sum().item()
    assert graph_timer(chain, OwnInputs(rows)).call_us() > 0


@pytest.mark.gpu
def test_random_numbers_are_drawn_in_a_graph_as_well():
    rows = _rows(4, 64)
    assert graph_timer(lambda x: torch.nn.functional.dropout(x, 0.5, True), OwnInputs(rows)).call_us() > 0
    torch.manual_seed(1)
    torch.rand(3, device="cuda")


@pytest.mark.gpu
def test_a_capture_that_fails_leaves_a_gpu_that_works():
    """What torch does not know to wait for the device ends the capture."""

    def waits(x):
        torch.cuda.synchronize()
        return x + 1.0

    rows, stream = _rows(4, 64), torch.cuda.current_stream()
    assert graph_timer(waits, OwnInputs(rows)) is None
    assert torch.cuda.current_stream() == stream
    torch.manual_seed(1)
    assert torch.rand(3, device="cuda").sum().item() > 0
    assert graph_timer(chain, OwnInputs(rows)).call_us() > 0

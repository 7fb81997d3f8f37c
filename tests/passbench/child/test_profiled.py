"""Recording again and again in a process that holds CUDA graphs. As a script, the child of the test: `ROUNDS`."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
from torch.autograd import DeviceType

from passbench.child.captured_calls import CapturedCalls
from passbench.child.profiled import await_end_of, profiled, threads
from passbench.launch import captured
from passbench.workers.fork_server_client import environment

ROOT = Path(__file__).parents[3]
ROUNDS = 8


@pytest.mark.gpu
def test_recordings_between_graphs_leave_no_trace(tmp_path):
    """Graphs from before a recording replay right after it, and inside of the next; launches cost what they did."""
    command = [sys.executable, str(Path(__file__).resolve()), str(ROUNDS)]
    env = environment(tmp_path, interpret=False) | {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    child = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert child.returncode == 0, child.stderr[-2000:]
    before, *after = map(float, child.stdout.split())
    assert len(after) == ROUNDS
    # Attached, CUPTI takes 1.4 times as long for the launches of this call.
    assert min(after) < 1.2 * before, child.stdout


def test_calls_are_made_until_a_thread_has_ended():
    before, calls, over = threads(), [], threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    late = threads() - before

    def call() -> None:
        calls.append(1)
        if len(calls) == 3:
            over.set()

    assert len(late) == 1
    await_end_of(late, call)
    assert len(calls) >= 3 and not late & threads()
    await_end_of(late, call)
    thread.join()


def test_a_thread_that_does_not_end_is_an_error():
    over, before = threading.Event(), threads()
    thread = threading.Thread(target=over.wait)
    thread.start()
    try:
        with pytest.raises(RuntimeError, match="CUPTI was not detached within 0 s"):
            await_end_of(threads() - before, lambda: None, seconds=0.02)
    finally:
        over.set()
        thread.join()


@pytest.mark.gpu
def test_no_thread_of_a_recording_is_left(tmp_path):
    """Nor is CUPTI: launches behind it are in no call that detaches it."""
    command = [sys.executable, "-c", LEFT]
    env = environment(tmp_path, interpret=False) | {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    child = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert child.returncode == 0, child.stderr[-2000:]
    assert child.stdout.strip() == "0"


LEFT = """
import torch
from passbench.child.profiled import profiled, threads
x, left = torch.zeros(64, device="cuda"), 0
for _ in range(60):
    with profiled():
        x.add_(1)
        torch.cuda.synchronize()
        before = threads()
    left += bool(threads() - before)
print(left)
"""
"""In how many of sixty recordings a thread is left; without a wait it is in one of eight."""


def small(x: torch.Tensor) -> torch.Tensor:
    for _ in range(8):
        x = x + 1
    return x


def best_us() -> float:
    """Of the host, for a call of eight launches; the fastest of many, with the device idle when each begins."""
    x, best = torch.zeros(64, device="cuda"), float("inf")
    for _ in range(400):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        small(x)
        best = min(best, time.perf_counter() - begin)
    return best * 1e6


def kernels(profiler: torch.profiler.profile) -> int:
    return sum(event.device_type == DeviceType.CUDA for event in profiler.events())


class Replayed:
    """A CUDA graph of calls whose results are compared after each replay."""

    def __init__(self, value: float) -> None:
        self.inputs = [torch.full((64,), value + n, device="cuda") for n in range(4)]
        self.calls = CapturedCalls(small, [(x,) for x in self.inputs])

    def check(self) -> None:
        self.calls.poison()
        self.calls.replay()
        torch.cuda.synchronize()
        for x, result in zip(self.inputs, self.calls.results, strict=True):
            assert torch.equal(result, x + 8)


def main(rounds: int) -> None:
    x = torch.zeros(64, device="cuda")
    graphs = [Replayed(0)]
    print(best_us())
    for number in range(rounds):
        assert torch.equal(captured(small, x + number), x + number + 8)  # a graph of its own, from the first round on
        with profiled() as profiler:
            small(x)
            graphs[0].check()
        assert kernels(profiler) >= 8
        for graph in graphs:
            graph.check()
        graphs.append(Replayed(number))
        graphs[-1].check()
        print(best_us())


if __name__ == "__main__":
    main(int(sys.argv[1]))

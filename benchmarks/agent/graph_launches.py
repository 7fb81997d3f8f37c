"""What calls of plans take with a wait behind them: one by one, as a graph of their own, and captured.

Needs a GPU and 15 s.

    python3 benchmarks/agent/graph_launches.py

Each line has one size of tensors and one number of launches. `x16` is 16 calls on tensors of their own, then a wait for
the device, in microseconds a call: the median of 60 rounds. All ways are checked to return what eager does.
"""

import statistics
import sys
import time
from collections.abc import Callable
from itertools import cycle
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
import triton

from benchmarks.agent.launch_cost import add_kernel
from passbench.launch import Launch
from passbench.launch.capture import GraphCapture
from passbench.launch.guarded_call import Step, guarded_call

ROUNDS = 60
Call = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def plan_of(shape: tuple[int, int], count: int, *, as_graph: bool) -> Call:
    """`count` additions, each of what the one before has made, as a `LaunchPlan` binds them."""
    size, layout = shape[0] * shape[1], (shape, (shape[1], 1), torch.float32)
    launch = Launch(add_kernel, (triton.cdiv(size, 256),), SIZE=size, BLOCK=256, num_warps=4)
    launch(*(torch.zeros(shape, device="cuda") for _ in range(3)))
    kernel = launch.bound_for((torch.float32,) * 3, torch.cuda.current_device())
    steps = [Step(kernel, (n + 1 if n else 0, 1, n + 2)) for n in range(count)]
    call = guarded_call([torch.float32] * 2, [layout] * count, steps, 0, _left, as_graph=as_graph)
    return call if count == 1 else lambda x, y: call(x, y)[-1]


def _left(*tensors: torch.Tensor) -> torch.Tensor:
    raise AssertionError("a plan was left to Python")


def eager_of(count: int) -> Call:
    def eager(x: torch.Tensor, y: torch.Tensor, count: int = count) -> torch.Tensor:
        for _ in range(count):
            x = x + y
        return x

    return eager


def microseconds(call: Call, rows: list[tuple[torch.Tensor, torch.Tensor]], calls: int) -> float:
    """A call, of `calls` in a row and a wait."""
    given, times = cycle(rows), []
    for _ in range(ROUNDS):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(calls):
            call(*next(given))
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) / calls * 1e6)
    return statistics.median(times)


def main() -> None:
    if not torch.cuda.is_available():
        sys.exit("graph_launches.py measures launches on an NVIDIA GPU, and there is none")
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, triton {triton.__version__}; us a call")
    for shape in ((64, 256), (1024, 1024)):
        rows = [(torch.randn(shape, device="cuda"), torch.randn(shape, device="cuda")) for _ in range(64)]
        for count in (1, 2, 4, 8):
            eager, capture = eager_of(count), GraphCapture()
            ways = {
                "one by one": plan_of(shape, count, as_graph=False),
                "a graph": plan_of(shape, count, as_graph=True),
                "captured": lambda x, y, f=eager, c=capture: c(f, x, y),
                "eager": eager,
            }
            for name, way in ways.items():
                if not all(torch.equal(way(*row), eager(*row)) for row in rows[:3]):
                    sys.exit(f"{name}: wrong values")
            for calls in (1, 16, 64):
                times = (f"{name} {microseconds(way, rows, calls):.2f}" for name, way in ways.items())
                print(f"{shape[0]} x {shape[1]}, {count} launches, x{calls}: {', '.join(times)}", flush=True)


if __name__ == "__main__":
    with torch.no_grad():
        main()

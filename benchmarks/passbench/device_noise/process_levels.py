"""Whether two processes that do the same are equally fast on a GPU, and for which kernels.

    python3 -m benchmarks.passbench.device_noise.process_levels --out FILE [--processes 8] [--rounds 6]

Forks of one process take turns in replaying the same CUDA graphs: chains of small kernels, of one block each or many,
with intermediate results in the same few blocks or apart, on several streams. FILE gets a JSON line a process, graph
and stream: microseconds a kernel in each round, less those of an empty graph, and on which multiprocessor blocks ran.
A level that stays with a process through all rounds, graphs and streams belongs to it.
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import torch
import triton
import triton.language as tl

_WAIT_CYCLES = 600_000  # 0.3 ms, in which the host brings a graph to the device
_REPLAYS = 12
_STREAMS = 3


def _small(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x / (y.abs() + 1)) * y.sgn()  # five kernels


def _apart(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The same five kernels, and blocks that keep the next call's intermediate results out of this one's."""
    return _small(x, y), *(torch.empty(512, dtype=torch.uint8, device="cuda") for _ in range(4))


def _chains() -> dict[str, tuple[int, Callable[[], list]]]:
    """For each chain the number of its kernels, and what launches them once."""
    pairs = [(torch.ones(2, 1, device="cuda"), torch.ones(2, 1, device="cuda")) for _ in range(100)]
    middle = [torch.ones(64, 64, device="cuda") for _ in range(100)]
    large = [torch.ones(1 << 20, device="cuda") for _ in range(20)]
    one = torch.zeros(1, device="cuda")
    return {
        "one element, zeroed": (500, lambda: [one.zero_() for _ in range(500)]),
        "two elements": (500, lambda: [_small(*pair) for pair in pairs]),
        "two, apart": (500, lambda: [_apart(*pair) for pair in pairs]),
        "4,096 elements": (300, lambda: [(x + 1).exp() * 2 for x in middle]),
        "a million elements": (60, lambda: [(x + 1).exp() * 2 for x in large]),
    }


class _Graph:
    """A captured chain; keeps its results, and with `launch` its inputs."""

    def __init__(self, launch: Callable[[], list], stream: torch.cuda.Stream) -> None:
        self._stream, self._launch = stream, launch
        with torch.cuda.stream(stream):
            launch()
        torch.cuda.synchronize()
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, stream=stream):
            torch.cuda._sleep(_WAIT_CYCLES)
            self._kept = launch()

    def microseconds(self) -> list[float]:
        """Of single replays."""
        taken = []
        for _ in range(_REPLAYS):
            torch.cuda.synchronize()
            begin = time.perf_counter()
            with torch.cuda.stream(self._stream):
                self._graph.replay()
            torch.cuda.synchronize()
            taken.append(1e6 * (time.perf_counter() - begin))
        return taken


@triton.jit
def _where(out):
    number = tl.inline_asm_elementwise("mov.u32 $0, %smid;", "=r", [], dtype=tl.int32, is_pure=False, pack=1)
    tl.store(out, number)


def _multiprocessors() -> list[int]:
    """Where the blocks of sixteen kernels of one block run."""
    out = torch.zeros(16, dtype=torch.int32, device="cuda")
    for place in range(16):
        _where[(1,)](out[place:])
    return out.tolist()


def _work(pipe: Connection) -> None:
    """In a fork: capture, then replay whenever asked."""
    streams = [torch.cuda.Stream() for _ in range(_STREAMS)]
    graphs = {}
    for number, stream in enumerate(streams):
        graphs["empty", number] = (1, _Graph(lambda: [], stream))
        for name, (kernels, launch) in _chains().items():
            graphs[name, number] = (kernels, _Graph(launch, stream))
    names = sorted(graphs, key=str)
    pipe.send((names, _multiprocessors()))
    while pipe.recv():
        empty = {n: statistics.median(graphs["empty", n][1].microseconds()) for n in range(_STREAMS)}
        found = {}
        for name, number in names:
            kernels, graph = graphs[name, number]
            taken = [(t - (0 if name == "empty" else empty[number])) / kernels for t in graph.microseconds()]
            found[name, number] = (min(taken), statistics.median(taken))
        pipe.send(found)


def main() -> None:
    """See the module's head."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=6)
    given = parser.parse_args()
    os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[3:6]) or os.sched_getaffinity(0))
    context = get_context("fork")
    pipes, processes = [], []
    for _ in range(given.processes):
        ours, theirs = context.Pipe()
        process = context.Process(target=_work, args=(theirs,), daemon=True)
        process.start()
        pipes.append(ours)
        processes.append(process)
    said = [pipe.recv() for pipe in pipes]
    rounds: list[list[dict]] = []
    for _ in range(given.rounds):
        rounds.append([])
        for pipe in pipes:
            pipe.send(True)
            rounds[-1].append(pipe.recv())
    for pipe in pipes:
        pipe.send(False)
    with given.out.open("w") as stream:
        for number, (names, blocks) in enumerate(said):
            for name, which in names:
                least, middle = zip(*(one[number][name, which] for one in rounds), strict=True)
                line = {"process": number, "graph": name, "stream": which, "multiprocessors": blocks}
                line |= {"least_us": [round(x, 4) for x in least], "median_us": [round(x, 4) for x in middle]}
                print(json.dumps(line), file=stream)
                print(f"{number} {name:20} {which} {statistics.median(middle):.4f} us, least {min(least):.4f}")


if __name__ == "__main__":
    main()

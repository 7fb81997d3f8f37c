"""What a process's first CUDA graphs change for calls without one; needs a GPU and 15 s.

    python3 -m benchmarks.passbench.first_graph [--out FILE]

PassBench times passes in fresh processes, and eager in one that has timed other variants. In a fresh process this times
a call of eight launches with a synchronisation, and a synchronisation alone: at first, with torch's streams, with one
small graph as every worker has it, with captured calls as a timed variant leaves them. Two processes in turn.
"""

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from passbench.child.captured_calls import CapturedCalls, EmptyReplay

_CALLS, _ROUNDS = 100, 15


def call(x: torch.Tensor) -> torch.Tensor:
    """Eight small kernels."""
    for _ in range(8):
        x = x + 1
    return x


def microseconds(function: Callable[[], object]) -> str:
    """Of a call and a synchronisation: the fastest and the median of some rounds."""
    rounds = []
    for _ in range(_ROUNDS):
        begin = time.perf_counter()
        for _ in range(_CALLS):
            function()
            torch.cuda.synchronize()
        rounds.append((time.perf_counter() - begin) / _CALLS * 1e6)
    return f"{min(rounds):6.2f} {statistics.median(rounds):6.2f}"


def in_this_process() -> None:
    """Time both after each step."""
    x, kept = torch.zeros(1 << 14, device="cuda"), []
    device = torch.device("cuda")

    def captured() -> CapturedCalls:
        graph = CapturedCalls(call, [(torch.zeros(1 << 14, device="cuda"),) for _ in range(64)])
        graph.replay()
        graph.poison()
        torch.cuda.synchronize()
        return graph

    steps = {
        "fresh": lambda: None,
        "torch's streams": torch.cuda.Stream,
        "a graph of one kernel": lambda: EmptyReplay(device),
        "64 captured calls": captured,
        "64 more": captured,
        "64 more, the others gone": lambda: kept.clear() or captured(),
    }
    for name, step in steps.items():
        kept.append(step())
        print(f"  {name:26} call {microseconds(lambda: call(x))}, nothing {microseconds(lambda: None)}", flush=True)


def main() -> None:
    """See the module's head."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="also write the lines to this file")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.here:
        in_this_process()
        return
    lines = ["microseconds: fastest and median of the rounds"]
    for _ in range(2):
        command = [sys.executable, "-m", "benchmarks.passbench.first_graph", "--here"]
        done = subprocess.run(command, capture_output=True, text=True)
        lines += [done.stdout.rstrip() or done.stderr[-800:], ""]
        print(lines[-2], flush=True)
    if given.out is not None:
        given.out.write_text("\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    main()

"""What a process that has used the profiler pays afterwards; needs a GPU and 40 s.

    python3 -m benchmarks.passbench.profiler_cost [--teardown 0,unset,1] [--out FILE]

PassBench observes the calls of a pass under torch's profiler in the process that it times, and never profiles eager's
process. Here a process times a call on the host, and calls in a CUDA graph on the device; then it profiles one call and
times both again; then it profiles five calls, one by one. For each value of `TEARDOWN_CUPTI`: with "1", torch detaches
CUPTI when a recording ends. It also says how many seconds each recording took.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

import torch

from benchmarks.agent.launch_configs import microseconds as device_microseconds
from benchmarks.agent.launch_cost import microseconds as host_microseconds
from passbench.child.captured_calls import EmptyReplay
from passbench.child.profiled import profiled

CALLS = 300


def call_small(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Eight small kernels."""
    for _ in range(8):
        x = x + y
    return x


def call_large(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """One kernel that the memory bounds."""
    return x + y


def measured() -> str:
    """Microseconds of a call on the host, and of one in a graph on the device, for both functions."""
    parts = []
    for name, call, elements in (("8 x 16,384", call_small, 1 << 14), ("4 million", call_large, 1 << 22)):
        rows = [[torch.randn(elements, device="cuda") for _ in range(2)] for _ in range(16)]
        host = host_microseconds(lambda call=call, row=rows[0]: call(*row), CALLS)
        device = device_microseconds(call, rows, EmptyReplay(torch.device("cuda")))
        parts.append(f"{name}: host {host:7.2f}, device {device:7.2f}")
    return "; ".join(parts)


def profile_once() -> float:
    """Record one call; the seconds that it took."""
    begin = time.perf_counter()
    with profiled():
        torch.ones(4, device="cuda").add_(1)
        torch.cuda.synchronize()
    return time.perf_counter() - begin


def in_this_process() -> None:
    """Time, profile once, time again, profile five times, time again."""
    print("  before ", measured(), flush=True)
    for times in (1, 5):
        seconds = [profile_once() for _ in range(times)]
        taken = ", ".join(f"{s:.3f}" for s in seconds)
        print(f"  after {times}", measured(), f"; a recording took {taken} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="also write the lines to this file")
    parser.add_argument("--teardown", default="0,unset,1", help="values of TEARDOWN_CUPTI")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        in_this_process()
        return
    lines = []
    for value in options.teardown.split(","):
        environment = {k: v for k, v in os.environ.items() if k != "TEARDOWN_CUPTI"}
        environment |= {} if value == "unset" else {"TEARDOWN_CUPTI": value}
        command = [sys.executable, "-m", "benchmarks.passbench.profiler_cost", "--here"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        lines += [f"TEARDOWN_CUPTI {value}", done.stdout.rstrip() or done.stderr[-800:]]
        print(*lines[-2:], sep="\n", flush=True)
    if options.out is not None:
        options.out.write_text("\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    main()

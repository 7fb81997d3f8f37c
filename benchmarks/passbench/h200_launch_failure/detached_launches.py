"""Whether launches survive CUPTI: attached, detached, and launched again, thousands of times. Needs a GPU.

    python3 -m benchmarks.passbench.h200_launch_failure.detached_launches [--wait 0|1] --seconds S

Each cycle makes a plan of three launches, calls it while kernels are recorded, as observed calls do, then many times
behind that, as timed calls do, and captures and replays it. So the plan makes its CUDA graph while CUPTI is attached.
`--wait 0`: calls go on behind one synchronisation; 1: when torch's thread that detaches CUPTI has ended, as in
`passbench.child.profiled`. The last line says how many cycles there were, and in how many that thread still ran behind
one synchronisation. An "unspecified launch failure" ends the process.
"""

import argparse
import os
import time

import torch
import triton
import triton.language as tl

from passbench.child.profiled import await_end_of, threads
from passbench.launch import Launch, LaunchPlan


@triton.jit
def _twice_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)


def plan_of(n: int) -> LaunchPlan:
    """Eight times a tensor of `n` numbers."""
    layout, twice = ((n,), (1,), torch.float32), Launch(_twice_kernel, (triton.cdiv(n, 128),), n=n, BLOCK=128)
    return LaunchPlan(1, layout, layout, layout, (twice, (0, 1)), (twice, (1, 2)), (twice, (2, 3)))


def cycle(n: int, wait: bool) -> bool:
    """Whether the thread that came with the recording's end still ran behind one synchronisation. Raises RuntimeError
    where a plan or its replay computes something else."""
    plan, x = plan_of(n), torch.randn(n, device="cuda")
    plan(x)  # by Triton
    profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA])
    profiler.start()
    for _ in range(3):
        plan(x)
    torch.cuda.synchronize()
    before = threads()
    profiler.stop()
    late = threads() - before
    torch.cuda.synchronize()
    still = bool(late & threads())
    if wait:
        await_end_of(late, torch.cuda.synchronize)
    rows = [torch.randn(n, device="cuda") for _ in range(8)]
    for turn in range(40):
        row = rows[turn % 8]
        if not torch.equal(plan(row)[2], row * 8):
            raise RuntimeError("a plan computed something else")
    kept, recorded = [], torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded):
        kept += [plan(row)[2] for row in rows]
    for _ in range(4):
        recorded.replay()
    torch.cuda.synchronize()
    if not all(torch.equal(got, row * 8) for got, row in zip(kept, rows, strict=True)):
        raise RuntimeError("a replay computed something else")
    return still


def main() -> None:
    """See the module's head."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--wait", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=30)
    given = parser.parse_args()
    os.environ["TEARDOWN_CUPTI"] = "1"
    end, cycles, still = time.monotonic() + given.seconds, 0, 0
    try:
        while time.monotonic() < end:
            still += cycle(1000 + cycles % 7, bool(given.wait))
            cycles += 1
    finally:
        print(f"wait {given.wait}: {cycles} cycles, {still} still detaching", flush=True)


if __name__ == "__main__":
    main()

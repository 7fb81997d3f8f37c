"""What a launch, a wrapper and a captured plan cost the host, in microseconds; needs a GPU and less than 60 s.

    python3 benchmarks/agent/launch_cost.py [--out FILE]

A kernel of one pointer-only signature, as `distill` writes them, is launched in every way that torch and Triton have:
Triton's JIT, `passbench.launch`, its kernel in C alone, Triton's compiled launcher bound once, its C function, torch's
static launcher, and its fast one where torch has it. Each way is checked to write the right values before it is timed.
Then allocations, and one to eight launches: one by one, as a `LaunchPlan`, and by `captured`, whose parts are timed,
too, and what each takes of the device when the host costs nothing.
"""

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
import triton
import triton.language as tl

from passbench.launch import Launch, LaunchPlan, PlanTable, empty_strided, plan_for
from passbench.launch.bound_kernel import bound_kernel
from passbench.launch.capture import GraphCapture

ROUNDS, CALLS = 7, 2000


@triton.jit
def add_kernel(a_ptr, b_ptr, out_ptr, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = index < SIZE
    tl.store(out_ptr + index, tl.load(a_ptr + index, mask=inside) + tl.load(b_ptr + index, mask=inside), mask=inside)


def microseconds(function: Callable[[], object], calls: int = CALLS) -> float:
    """Of the host, a call; the best of some rounds. The device is idle when a round begins."""
    for _ in range(20):
        function()
    best = float("inf")
    for _ in range(ROUNDS):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(calls):
            function()
        best = min(best, (time.perf_counter() - begin) / calls)
    torch.cuda.synchronize()
    return best * 1e6


def device_microseconds(function: Callable[[], object], calls: int = 200) -> float:
    """Of the device, a call; the device sleeps until the host has queued all calls."""
    function()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda._sleep(30_000_000)
    begin.record()
    for _ in range(calls):
        function()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / calls * 1e3


class CostTable:
    """Lines of name and microseconds, printed as they come."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        print(line, flush=True)
        self.lines.append(line)

    def time(self, name: str, function: Callable[[], object], calls: int = CALLS) -> None:
        self.say(f"{name:44} {microseconds(function, calls):8.2f}")


def launches(table: CostTable) -> None:
    a = torch.randn(64, 256, device="cuda")
    b, out = torch.randn_like(a), torch.empty_like(a)
    grid, constants = a.numel() // 256, {"SIZE": a.numel(), "BLOCK": 256}
    compiled = add_kernel[(grid,)](a, b, out, num_warps=4, **constants)
    bound = Launch(add_kernel, (grid,), num_warps=4, **constants)
    bound(a, b, out)
    stream = torch.cuda.current_stream().cuda_stream
    function, packed, metadata = compiled.function, compiled.packed_metadata, compiled.metadata
    run, rest = compiled.run, tuple(constants.values())
    kernel = bound_kernel(compiled, 0, (grid,), 3, constants)
    pointers = a.data_ptr(), b.data_ptr(), out.data_ptr()
    ways: dict[str, Callable[[], object]] = {
        "Triton's JIT": lambda: add_kernel[(grid,)](a, b, out, num_warps=4, **constants),
        "passbench.launch.Launch": lambda: bound(a, b, out),
        "Kernel.launch in C, addresses": lambda: kernel.launch(pointers, stream),
        "CompiledKernel.run, bound": lambda: run(
            grid, 1, 1, stream, function, packed, None, None, None, *pointers, *rest
        ),
    }
    if hasattr(run, "launch"):
        raw = run.launch
        ways["its C function"] = lambda: raw(
            grid, 1, 1, stream, function, False, False, None, None, packed, None, None, None, *pointers, *rest
        )
    scratch = sum(hasattr(metadata, name) for name in ("global_scratch_size", "profile_scratch_size"))
    kinds, none = "O" * (3 + scratch), (None,) * scratch
    static = getattr(torch._C, "_StaticCudaLauncher", None)
    if static is not None:
        launch = static._launch_kernel
        ways["torch's static launcher, addresses"] = lambda: launch(
            function, grid, 1, 1, metadata.num_warps, metadata.shared, kinds, (*pointers, *none), stream
        )
        ways["torch's static launcher, tensors"] = lambda: launch(
            function, grid, 1, 1, metadata.num_warps, metadata.shared, kinds, (a, b, out, *none), stream
        )
    fast = getattr(torch._C, "_FastCudaLauncher", None)
    if fast is not None:
        quick = fast(function, metadata.num_warps, metadata.shared, "OOO", scratch)
        ways["torch's fast launcher"] = lambda: quick(grid, 1, 1, stream, a, b, out)
    expected = a + b
    for name, way in ways.items():
        out.fill_(float("nan"))
        try:
            way()
            torch.cuda.synchronize()
        except (RuntimeError, TypeError, ValueError) as error:
            table.say(f"{name:44} does not work here: {type(error).__name__}: {str(error).splitlines()[0]}")
            continue
        right = torch.equal(out, expected)
        table.time(name if right else f"{name} (WRONG VALUES)", way)
    table.time("torch.add", lambda: a + b)
    table.time("torch.empty_like", lambda: torch.empty_like(a))
    table.time("torch.empty_strided", lambda: torch.empty_strided((64, 256), (256, 1), device=a.device))
    table.time("passbench.launch.empty_strided", lambda: empty_strided((64, 256), (256, 1), torch.float32, a))
    table.time("data_ptr", a.data_ptr)
    table.time("current stream, Triton's driver", lambda: triton.runtime.driver.active.get_current_stream(0))


_SIZE = 64 * 256
_add = Launch(add_kernel, (_SIZE // 256,), SIZE=_SIZE, BLOCK=256, num_warps=4)


def chain(a, b, count):
    """So many launches, one after another, each with an output of its own."""
    for _ in range(count):
        out = torch.empty_like(a)
        _add(a, b, out)
        a = out
    return a


def steps_of(count: int) -> Callable:
    """`chain` of so many launches, as a function of tensors alone."""

    def steps(a, b, count=count):
        return chain(a, b, count)

    return steps


def planned(count: int) -> LaunchPlan:
    """The launches of `chain` as one call."""
    layout = ((64, 256), (256, 1), torch.float32)
    steps = [(_add, (n + 1 if n else 0, 1, n + 2)) for n in range(count)]
    return LaunchPlan(2, *[layout] * count, *steps)


def wrappers(table: CostTable) -> None:
    """A wrapper of one launch as distill writes it, and as it was written before."""
    a = torch.randn(64, 256, device="cuda")
    b = torch.randn_like(a)
    key = tuple(part for x in (a, b) for part in (x.dtype, x.shape, x.stride()))
    by_key, found = {key: (_add,)}, PlanTable({key: (planned(1),)})

    def before(x, y):
        (launch,) = by_key[(x.dtype, x.shape, x.stride(), y.dtype, y.shape, y.stride())]
        out = torch.empty_like(x)
        launch(x, y, out)
        return out

    def now(x, y):
        (launch,) = plan_for(found, x, y)
        return launch(x, y)

    table.time("plan by a dict", lambda: by_key[(a.dtype, a.shape, a.stride(), b.dtype, b.shape, b.stride())])
    table.time("plan by plan_for", lambda: plan_for(found, a, b))
    table.time("a wrapper: dict, empty_like, Launch", lambda: before(a, b))
    now(a, b)
    note = "" if torch.equal(now(a, b), before(a, b)) else " (WRONG VALUES)"
    table.time(f"a wrapper: plan_for, LaunchPlan{note}", lambda: now(a, b))
    (plan,) = plan_for(found, a, b)
    table.time("a LaunchPlan", lambda: plan(a, b))


def plans(table: CostTable) -> None:
    a = torch.randn(64, 256, device="cuda")
    b = torch.randn_like(a)
    for count in (1, 2, 3, 4, 6, 8):
        capture, steps = GraphCapture(), steps_of(count)
        wanted, got = steps(a, b), capture(steps, a, b)
        note = "" if torch.equal(wanted, got) else " (WRONG VALUES)"
        plan = planned(count)
        plan(a, b)
        fresh = plan(a, b)
        note_of_plan = "" if torch.equal(fresh if count == 1 else fresh[-1], wanted) else " (WRONG VALUES)"
        table.time(f"{count} launches, one by one", lambda n=count: chain(a, b, n), CALLS // count)
        table.time(f"{count} launches, a LaunchPlan{note_of_plan}", lambda p=plan: p(a, b), CALLS // count)
        table.time(f"{count} launches, captured{note}", lambda f=steps, c=capture: c(f, a, b), CALLS // 2)
        table.time(f"{count} additions of eager", lambda n=count: sum([b] * n, a), CALLS // count)
        table.say(f"{f'{count} launches, on the device':44} {device_microseconds(lambda n=count: chain(a, b, n)):8.2f}")
        on_device = device_microseconds(lambda f=steps, c=capture: c(f, a, b))
        table.say(f"{f'{count} launches, captured, on the device':44} {on_device:8.2f}")
    latest, given, out = capture._latest[steps], (a, b), torch.empty_like(a)
    recording, stream = latest._recording, latest._stream
    addresses = a.data_ptr(), b.data_ptr(), out.data_ptr()
    ((_, copies_in),) = recording._copies._copies_in
    table.time("captured, its function in C", lambda: latest.call(a, b))
    table.time("captured, in Python", lambda: latest._checked(a, b))
    table.time("captured, whether the recording fits", lambda: latest.fits(given))
    table.time("captured, launch that copies in", lambda: copies_in(addresses, stream))
    table.time("captured, replay alone, torch's", recording._graph.replay)
    table.time("is_current_stream_capturing", torch.cuda.is_current_stream_capturing)
    table.time("current_stream().cuda_stream", lambda: torch.cuda.current_stream().cuda_stream)
    many = [torch.randn(64, 64, device="cuda") for _ in range(8)]
    others = [torch.empty_like(x) for x in many]
    table.time("_foreach_copy_ of 8 tensors", lambda: torch._foreach_copy_(others, many))
    table.time("copy_ of 1 tensor", lambda: others[0].copy_(many[0]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=None, help="also write the lines to this file")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("launch_cost.py measures launches on an NVIDIA GPU, and there is none")
    table = CostTable()
    table.say(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, triton {triton.__version__}; us a call")
    with torch.no_grad():
        launches(table)
        wrappers(table)
        plans(table)
    if options.out is not None:
        options.out.write_text("\n".join(table.lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

"""Does what a kernel loads with `evict_last` stay in the L2 cache, and make somebody else's additions longer?

    python3 -m benchmarks.passbench.device_noise.evict_last

Before an addition and a relu are timed one of four things is done: nothing; a buffer is loaded; it is loaded with
`evict_last`; the same, and CUDA makes all lines normal ones again. Twice the cache's size is written over, as between
two workers of PassBench, and the inputs are copied to their places. Prints medians in microseconds, of a first call and
of eight more; all in one process. Needs a GPU.
"""

import ctypes
import statistics
from collections.abc import Callable

import torch
import triton
import triton.language as tl

_BLOCK = 1024
_TURNS = 25
_WAYS = ("nothing", "load", "evict_last", "evict_last, reset")


@triton.jit
def _load(ptr, out, n, BLOCK: tl.constexpr, LAST: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(ptr + at, mask=at < n, eviction_policy="evict_last") if LAST else tl.load(ptr + at, mask=at < n)
    tl.store(out + tl.program_id(0), tl.sum(x))


def _us(call: Callable[[], object], calls: int) -> float:
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(calls):
        call()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1000 / calls


def measured(input_mib: int, buffer_mib: int) -> dict[str, tuple[float, float]]:
    """Microseconds of relu(x + y) of inputs of so many MiB, by what was done before: the first, and later ones."""
    numbers, buffered = input_mib * 2**18, buffer_mib * 2**18
    cache = torch.cuda.get_device_properties("cuda").L2_cache_size
    filler = torch.empty(2 * cache, dtype=torch.uint8, device="cuda")
    drawn = torch.randn(2, numbers, device="cuda")
    x, out, buffer = torch.empty_like(drawn), torch.empty_like(drawn[0]), torch.randn(buffered, device="cuda")
    blocks = triton.cdiv(buffered, _BLOCK)
    sums = torch.empty(blocks, device="cuda")
    reset = ctypes.CDLL("libcuda.so.1").cuCtxResetPersistingL2Cache
    found: dict[str, list[tuple[float, float]]] = {way: [] for way in _WAYS}
    for _ in range(_TURNS):
        for way, times in found.items():
            filler.zero_()
            reset()
            filler.zero_()
            for _ in range(3 if way != "nothing" else 0):
                _load[(blocks,)](buffer, sums, buffered, _BLOCK, way != "load")
            filler.zero_()
            if way.endswith("reset"):
                reset()
            x.copy_(drawn)
            torch.cuda.synchronize()
            call = lambda: torch.add(x[0], x[1], out=out).relu_()  # noqa: E731
            times.append((_us(call, 1), _us(call, 8)))
    return {way: tuple(map(statistics.median, zip(*times, strict=True))) for way, times in found.items()}


def main() -> None:
    """See the module's head."""
    print("| inputs, buffer, MiB |", " | ".join(_WAYS), "|")
    print("|---" * (1 + len(_WAYS)) + "|")
    for input_mib in (4, 10, 16, 24):
        for buffer_mib in (20, 40):
            cells = (f"{first:.1f}, {later:.1f}" for first, later in measured(input_mib, buffer_mib).values())
            print(f"| {input_mib}, {buffer_mib} |", " | ".join(cells), "|")


if __name__ == "__main__":
    main()

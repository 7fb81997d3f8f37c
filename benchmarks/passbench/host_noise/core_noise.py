"""How evenly a host's cores run: a fixed piece of work again and again, on one core after another.

    python3 -m benchmarks.passbench.host_noise.core_noise --out FILE [--cores 3,5,7,9] [--seconds 1]

For each core alone, then while another process keeps the next core busy, then the core after that. FILE gets a JSON
line each: microseconds of each piece in order, and the stolen time of the core as the kernel counts it. A core whose
neighbour slows it down shares its execution units; pieces that are slow in bursts tell of other users of the machine.
"""

import argparse
import json
import os
import statistics
import time
from multiprocessing import get_context
from pathlib import Path

_ADDITIONS = 6_000  # about 0.2 ms


def _pieces(core: int, seconds: float) -> list[float]:
    """Microseconds that pieces of work take on a core."""
    os.sched_setaffinity(0, {core})
    taken, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end:
        begin, total = time.perf_counter(), 0
        for number in range(_ADDITIONS):
            total += number
        taken.append(round(1e6 * (time.perf_counter() - begin), 1))
    return taken


def _spin(core: int) -> None:
    os.sched_setaffinity(0, {core})
    while True:
        pass


def _stolen(core: int) -> int:
    """Ticks that a hypervisor has taken from a core."""
    for line in Path("/proc/stat").read_text().splitlines():
        words = line.split()
        if words[0] == f"cpu{core}":
            return int(words[8])
    return 0


def main() -> None:
    """See the module's head."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--cores", default="3,5,7,9")
    parser.add_argument("--seconds", type=float, default=1.0)
    given = parser.parse_args()
    count = os.cpu_count() or 1
    with given.out.open("w") as stream:
        for core in map(int, given.cores.split(",")):
            for busy in (None, (core + 1) % count, (core + 2) % count):
                spinning = None
                if busy is not None:
                    spinning = get_context("fork").Process(target=_spin, args=(busy,), daemon=True)
                    spinning.start()
                before, taken = _stolen(core), _pieces(core, given.seconds)
                if spinning is not None:
                    spinning.kill()
                    spinning.join()
                line = {"core": core, "busy": busy, "stolen": _stolen(core) - before, "us": taken}
                print(json.dumps(line), file=stream)
                least, middle = min(taken), statistics.median(taken)
                slow = sum(x > 1.15 * least for x in taken) / len(taken)
                print(f"core {core}, busy {busy}: least {least}, median {middle}, {slow:.0%} more than 15 % slower")


if __name__ == "__main__":
    main()

"""Which cores make each other slow: threads of one core, which a virtual machine's kernel does not know. Needs no GPU.

    python3 -m benchmarks.passbench.host_noise.core_threads --out FILE.json [--idle 8] [--busy 20]

For `--idle` seconds a fixed piece of Python is timed on each core in turn, while nothing else runs. Then for `--busy`
seconds on each core while another one is busy, every pair in turn. Prints what it took in the median, by the busy core
and the other, and in which share of turns that was 1.2 times the idle median or more. FILE has all turns.
"""

import argparse
import json
import multiprocessing
import os
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

from passbench.timing.cores import host_us, on_cores

_SLOW = 1.2


def us_on(core: int) -> int:
    """Microseconds of a fixed piece of work on a core, the least of three."""
    with on_cores({core}):
        return round(host_us())


def idle_turn(cores: Sequence[int]) -> list[int]:
    """Microseconds on each core."""
    return [us_on(core) for core in cores]


def busy_turn(cores: Sequence[int], spinner: int) -> list[list[int]]:
    """Microseconds by the core that the process `spinner` keeps busy, and the other one; 0 where both are the same."""
    rows = []
    for busy in cores:
        os.sched_setaffinity(spinner, {busy})
        time.sleep(0.0005)
        rows.append([0 if core == busy else us_on(core) for core in cores])
    return rows


def _spin() -> None:
    while True:
        pass


def main() -> None:
    """See the module's head."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--idle", type=float, default=8.0, help="seconds")
    parser.add_argument("--busy", type=float, default=20.0, help="seconds")
    given = parser.parse_args()
    cores, idle, busy = sorted(os.sched_getaffinity(0)), [], []
    end = time.monotonic() + given.idle
    while not idle or time.monotonic() < end:
        idle.append(idle_turn(cores))
    spinner = multiprocessing.Process(target=_spin, daemon=True)
    spinner.start()
    end = time.monotonic() + given.busy
    while not busy or time.monotonic() < end:
        busy.append(busy_turn(cores, spinner.pid))
    spinner.kill()
    given.out.write_text(json.dumps({"cores": cores, "idle": idle, "busy": busy}))
    usual = statistics.median(us for turn in idle for us in turn)
    slow = [sum(turn[n] > _SLOW * usual for turn in idle) / len(idle) for n in range(len(cores))]
    print(f"idle: {usual:.0f} us in the median of {len(idle)} turns; share of slow turns by core:")
    print(" ".join(f"{share:.2f}" for share in slow))
    print(f"{len(busy)} turns with a busy core: median us, and share of slow turns, of the other cores:")
    for n, core in enumerate(cores):
        medians = [statistics.median(turn[n][m] for turn in busy) for m in range(len(cores))]
        shares = [sum(turn[n][m] > _SLOW * usual for turn in busy) / len(busy) for m in range(len(cores))]
        print(f"{core:3}: " + " ".join(f"{us:4.0f}" for us in medians) + "   " + " ".join(f"{s:4.2f}" for s in shares))


if __name__ == "__main__":
    main()

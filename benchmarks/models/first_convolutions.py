"""Seconds of the first calls of the convolutions that a library noted of its models, in one thread and in several.

    python -m benchmarks.models.first_convolutions --library LIB --out FILE [--depthwise] [--device cuda]

FILE gets a line for each model: its convolutions, each with the milliseconds of a first and a second call in the main
thread, then in a thread made after that. A first call that is slow in both is planned anew for each thread. `side by
side` are milliseconds for all of them in so many new threads, each of which takes the next one. `--depthwise`: only
models that have convolutions of one channel a group.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from passbench.models.warm_start.planned_convolutions import call_on_stand_ins


def main(given: Sequence[str] | None = None) -> int:
    """Measure what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--depthwise", action="store_true")
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args(given)
    device = torch.device(options.device)
    sizes = [["torch.float32", [1, 8, 8, 8], [512, 64, 8, 1]], ["torch.float32", [8, 8, 3, 3], [72, 9, 3, 1]], None]
    any_other = [[sizes, [[1, 1], [1, 1], [1, 1], False, [0, 0], 1]]]
    _ms(any_other, device)  # loads libraries
    for path in sorted((options.library / "first_calls").glob("*.json")):
        convolutions = json.loads(path.read_text("utf-8"))["convolutions"]
        if options.depthwise and not any(each[0][1][1][1] == 1 < each[1][5] for each in convolutions):
            continue
        main_thread = [_twice([each], device) for each in convolutions]
        with ThreadPoolExecutor(1) as pool:
            other_thread = [pool.submit(_twice, [each], device).result() for each in convolutions]
        rows = [
            {"input": each[0][0], "weight": each[0][1], "groups": each[1][5], "main": here, "other": there}
            for each, here, there in zip(convolutions, main_thread, other_thread, strict=True)
        ]
        sums = {f"{name} {n}": round(sum(row[name][n] for row in rows)) for name in ("main", "other") for n in (0, 1)}
        beside = {str(count): _side_by_side(convolutions, device, count) for count in (1, 2, 4)}
        line = {"key": path.stem, "ms": sums, "side by side": beside, "convolutions": rows}
        with options.out.open("a") as file:
            file.write(json.dumps(line) + "\n")
        print(path.stem, len(rows), sums, beside, flush=True)
    return 0


def _twice(convolutions: list, device: torch.device) -> list[float]:
    return [_ms(convolutions, device) for _ in range(2)]


def _side_by_side(convolutions: list, device: torch.device, count: int) -> int:
    left = iter(convolutions)

    def take() -> None:
        for each in left:
            call_on_stand_ins([each], device)

    begin = time.perf_counter()
    with ThreadPoolExecutor(count) as pool:
        for done in [pool.submit(take) for _ in range(count)]:
            done.result()
    return round((time.perf_counter() - begin) * 1e3)


def _ms(convolutions: list, device: torch.device) -> float:
    begin = time.perf_counter()
    call_on_stand_ins(convolutions, device)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return round((time.perf_counter() - begin) * 1e3, 2)


if __name__ == "__main__":
    sys.exit(main())

"""How far end-to-end measurements of a search are from PassBench's figure, by the quantile that is taken of them.

python3 -m benchmarks.agent.search_noise RESULTS.parquet LOG [LOG ...]

A log has what `distill` measured of each sample. Of the choices with as many patterns and the same kind of calls those
count that are within 8 % of PassBench's figure by the device's clock, at least four.
"""

import argparse
import math
import re
from collections import defaultdict
from pathlib import Path
from statistics import median, pstdev, quantiles

from storage.parquet import read_rows
from storage.schema import RESULTS

_LINE = re.compile(r"(\S+): (\d+) patterns, Style\((.*)\), rounding .*?: ([\d.]+) e2e, ([\d.]+) on the device")
_KINDS = re.compile(
    r"(general|captured|channels_last|compiled|split_linears|branches|joined|products|one_launch)=([^,)]*)"
)
_LEAST, _NEAR = 4, 0.08


def measured(logs: list[Path]) -> dict[str, list[list[tuple[float, float]]]]:
    """By sample, for each kind of choice, the speedups by both clocks, end to end first."""
    found: dict[str, dict[tuple, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    for log in logs:
        for sample, patterns, style, e2e, device in _LINE.findall(log.read_text(encoding="utf-8", errors="replace")):
            found[sample][(patterns, *_KINDS.findall(style))].append((float(e2e), float(device)))
    return {sample: list(kinds.values()) for sample, kinds in found.items()}


def errors(rows: list[dict], logs: list[Path]) -> dict[str, list[float]]:
    """By quantile, the logarithm of what it is over PassBench's speedup, for each sample."""
    found: dict[str, list[float]] = defaultdict(list)
    known = measured(logs)
    for row in rows:
        told = row["author"] == "distill" and row["compiler"] == "pass" and row["speedup_e2e"] and row["speedup_device"]
        kinds = [kind for kind in known.get(row["sample"], ()) if len(kind) >= _LEAST]
        if not told or not kinds:
            continue

        def apart(kind: list[tuple[float, float]], device: float = row["speedup_device"]) -> float:
            return abs(math.log(median(one for _, one in kind) / device))

        kind = min(kinds, key=apart)
        if apart(kind) > _NEAR:
            continue
        e2e = [one for one, _ in kind]
        first, second, third = quantiles(e2e, n=4, method="inclusive")
        named = {"lower quartile": first, "median": second, "upper quartile": third, "largest": max(e2e)}
        for name, value in named.items():
            found[name].append(math.log(value / row["speedup_e2e"]))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="rows of the table")
    parser.add_argument("logs", type=Path, nargs="+", help="what the author has said")
    given = parser.parse_args()
    print("| of a search's measurements | samples | over PassBench's, median | standard deviation of its logarithm |")
    print("|---|---|---|---|")
    for name, logs in errors(read_rows(given.results, RESULTS), given.logs).items():
        print(f"| {name} | {len(logs)} | {math.exp(median(logs)):.3f} | {pstdev(logs):.3f} |")


if __name__ == "__main__":
    main()

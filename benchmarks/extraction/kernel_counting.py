"""Fusible ranges predicted from one schedule against ranges measured prefix by prefix: how many are identical, and why
the others are not; and the time of both.

    python benchmarks/extraction/kernel_counting.py --device cuda --out DIR \
        --models benchmarks/extraction/counting_models.txt

Pieces of at most `--size` ops are cut out of traced models, `--per-model` each, at borders that few values cross; equal
pieces are measured once. Each piece is measured by a worker process, `--workers` side by side on one GPU. When
`--budget` seconds are over, what is measured is written. `--windows FILE` keeps the pieces: they are read from there if
it exists, so that they can be cut where the model libraries are and measured where the GPU is.

Writes DIR/results.json and DIR/README.md. `--device cpu` measures TorchInductor's C++ kernels and `--device reference`
counts the schedule of each prefix by itself; both check the machinery without a GPU and are no measurements.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.extraction.counting.comparison import compare
from benchmarks.extraction.counting.pieces import entries, pieces, spread
from benchmarks.extraction.counting.report import machine, page, said, summary
from benchmarks.extraction.counting.workers import side_by_side


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="", help="a catalogue file, or entries with commas between them")
    parser.add_argument("--graphs", type=int, default=40, help="pieces at most")
    parser.add_argument("--per-model", type=int, default=2)
    parser.add_argument("--size", type=int, default=48, help="ops of a piece at most")
    parser.add_argument("--device", choices=("cuda", "cpu", "reference"), default="cuda")
    parser.add_argument("--budget", type=float, default=300.0, help="seconds")
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 1))
    parser.add_argument("--windows", type=Path, help="JSON lines of the pieces: read, or written if not there")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    began = time.monotonic()
    if arguments.windows and arguments.windows.exists():
        lines = arguments.windows.read_text().splitlines()
    else:
        lines = pieces(entries(arguments.models), arguments.size, arguments.per_model, arguments.workers)
        if arguments.windows:
            arguments.windows.write_text("".join(line + "\n" for line in lines))
    lines = spread(lines, arguments.graphs)
    print(f"{len(lines)} pieces after {time.monotonic() - began:.0f} s", flush=True)
    rows = []
    tasks = [(line, arguments.device) for line in lines]
    for row in side_by_side(compare, tasks, arguments.workers, began + arguments.budget):
        rows.append(row)
        print(f"[{len(rows)}/{len(lines)}] {row['piece']}: {said(row)}", flush=True)
    arguments.out.mkdir(parents=True, exist_ok=True)
    report = {"device": arguments.device, **machine(arguments.device), "wall_s": round(time.monotonic() - began, 1)}
    report |= {"summary": summary(rows), "pieces": sorted(rows, key=lambda row: row["piece"])}
    (arguments.out / "results.json").write_text(json.dumps(report, indent=1) + "\n")
    (arguments.out / "README.md").write_text(page(report))
    print(json.dumps(report["summary"]))


if __name__ == "__main__":
    main()

"""One table of eager, all baselines and `distill` on the same samples, by both clocks, in as many sittings as it takes.

    python3 -m benchmarks.passbench.baselines_table VERSION --out DIR [--budget 540] [--each 60] [--categories fusible]
        [--names FILE] [--authors eager,inductor] [--with DIR]

Samples are VERSION's, those of `--names` alone where that is given; one variant of each. `--with` adds the rows of
another run of `agent.run`, such as one of `distill`, to the table. The samples are cut into two parts, whatever the
host: with two GPUs both run side by side, each on its half of the cores, with one GPU one after the other. A later
sitting with the same DIR goes on where the last one ended, as long as authors and settings are the same. DIR/table gets
the rows and the table of those variants that all authors have. `--repeats 0`, so that no variant is timed for longer
because it is noisy: intervals are in the rows.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

import torch

from passbench.timing.cores import on_cores

ROOT = Path(__file__).parents[2]
AUTHORS = (
    "eager,inductor,inductor-direct,inductor-strict,inductor-strict-direct,cudagraphs,inductor-max-autotune,distill"
)
PARTS = 2


def command(category: str, part: int, given: argparse.Namespace, device: int, cores: int, seconds: float) -> list[str]:
    """A run of one part of a category's samples."""
    names = [] if given.names is None else ["--names", str(given.names)]
    chosen = ["--split", "eval,train", "--categories", category, "--each", str(given.each), "--at-most", "1", *names]
    how = ["--authors", given.authors, "--search", str(given.search), "--repeats", "0", "--compile-ahead", str(cores)]
    where = ["--device", f"cuda:{device}", "--budget", f"{seconds:.0f}", "--out", str(directory(given, category, part))]
    return [sys.executable, "-m", "agent.run", str(given.version), *chosen, "--part", f"{part}/{PARTS}", *how, *where]


def directory(given: argparse.Namespace, category: str, part: int) -> Path:
    """Where a part's rows are."""
    return given.out / f"{category}-{part}"


def run(given: argparse.Namespace) -> None:
    """One sitting: every category in turn, for an equal share of the time that is left."""
    cores, gpus = sorted(os.sched_getaffinity(0)), min(PARTS, torch.cuda.device_count())
    end, categories = time.monotonic() + given.budget, given.categories.split(",")
    waiting = [(category, parts) for category in categories for parts in _side_by_side(gpus)]
    for number, (category, parts) in enumerate(waiting):
        seconds = (end - time.monotonic()) / (len(waiting) - number)
        each, running = len(cores) // len(parts), []
        for place, part in enumerate(parts):
            log = directory(given, category, part).with_suffix(".log").open("ab")
            with log, on_cores(set(cores[place * each : (place + 1) * each])):
                one = command(category, part, given, place, max(1, each - 2), seconds)
                running.append(subprocess.Popen(one, cwd=ROOT, stdout=log, stderr=log))
        for process in running:
            process.wait()


def _side_by_side(gpus: int) -> list[list[int]]:
    parts = list(range(PARTS))
    return [parts[start : start + gpus] for start in range(0, PARTS, gpus)]


def main() -> None:
    """See the module's head."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("version", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--categories", default="fusible,typical,sole_op")
    parser.add_argument("--names", type=Path, help="a file with the names of the samples to take")
    parser.add_argument("--authors", default=AUTHORS, help="separated by commas")
    parser.add_argument("--with", type=Path, nargs="*", default=[], dest="others", help="directories of other runs")
    parser.add_argument("--each", type=int, default=60, help="samples of a category")
    parser.add_argument("--search", type=float, default=2.0, help="seconds that distill measures, a sample")
    parser.add_argument("--budget", type=float, default=540.0, help="seconds of this sitting")
    given = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("baselines_table: there is no NVIDIA GPU")
    given.out.mkdir(parents=True, exist_ok=True)
    run(given)
    done = sorted(file.parent for file in given.out.glob("*-[0-9]/results.parquet"))
    merge = [sys.executable, "-m", "benchmarks.passbench.merge_runs", *map(str, [*done, *given.others])]
    merge += ["--out", str(given.out / "table")]
    sys.exit(subprocess.run(merge, cwd=ROOT, check=False).returncode if done else "no sample was finished")


if __name__ == "__main__":
    main()

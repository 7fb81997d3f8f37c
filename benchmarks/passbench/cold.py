"""For comparison: evaluating passes with one cold process a variant.

    python3 benchmarks/passbench/cold.py VERSION_DIR --passes DIR --how bench|plain --variants 12 --out DIR

"bench": each process runs PassBench on the variant, from importing torch to the record. "plain": each process does all
in itself, without isolation, evidence or a reference: rebuilds the graph, applies the pass, compares four draws with
eager and times 25 + 100 calls of each side. Writes DIR/cold_HOW.json.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version", type=Path)
    parser.add_argument("--passes", type=Path, required=True)
    parser.add_argument("--variants", type=int, default=12)
    parser.add_argument("--how", choices=("bench", "plain"), default="bench")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--one", nargs=2, metavar=("SAMPLE", "NUMBER"), help="the process of one variant")
    arguments = parser.parse_args()
    if arguments.one:
        one = bench if arguments.how == "bench" else plain
        print(json.dumps(one(arguments.version, arguments.passes, arguments.one[0], int(arguments.one[1]))))
        return
    jobs = chosen(arguments.version, arguments.passes, arguments.variants)
    took = []
    for sample, number in jobs:
        begin = time.monotonic()
        command = [sys.executable, __file__, str(arguments.version), "--passes", str(arguments.passes)]
        command += ["--how", arguments.how, "--one", sample, str(number)]
        done = subprocess.run(command, capture_output=True, text=True)
        took.append(time.monotonic() - begin)
        print(f"{sample} {number}: {took[-1]:.1f} s {done.stdout.strip()} {done.stderr.strip()[-200:]}", flush=True)
    rate = 60 * len(took) / sum(took)
    print(f"cold, {arguments.how}: {rate:.2f} variants a minute, median {statistics.median(took):.1f} s")
    (arguments.out / f"cold_{arguments.how}.json").write_text(
        json.dumps({"jobs": jobs, "seconds": took, "per_minute": rate})
    )


def chosen(version: Path, passes: Path, variants: int) -> list[tuple[str, int]]:
    """The first variant of so many evaluation samples that have a pass, spread over all of them."""
    from storage.versions.samples import load_samples
    from storage.versions.store import Version

    samples = [s.sample for s in load_samples(Version.open(version), "eval") if (passes / s.sample).is_dir()]
    return [(sample, 0) for sample in samples[:: max(1, len(samples) // variants)][:variants]]


def bench(version: Path, passes: Path, name: str, number: int) -> dict:
    """One variant through PassBench."""
    from dataclasses import replace

    from passbench.bench import Bench
    from storage.versions.samples import load_samples
    from storage.versions.store import Version

    (sample,) = load_samples(Version.open(version), names=[name])
    with Bench("cuda") as one:
        (result,) = one.run(replace(sample, variants=sample.variants[number : number + 1]), "pass", passes / name)
    return {"status": result.status, "t_min": result.t_min, "speedup": result.speedup("e2e")}


def plain(version: Path, passes: Path, name: str, number: int) -> dict:
    """Compare and time one variant in this process."""
    import torch

    from passbench.checking.tolerance import t_min
    from passbench.child.outputs import flatten
    from passbench.contract import load_rules, read_pass_dir
    from passbench.inputs.distribution import CORRECTNESS
    from passbench.inputs.draw import make_inputs
    from passbench.matching.rewrite import apply_pass
    from storage.graph.as_fx import to_module
    from storage.versions.samples import load_samples
    from storage.versions.store import Version

    torch.set_grad_enabled(False)
    (sample,) = load_samples(Version.open(version), names=[name])
    variant, device = sample.variants[number], torch.device("cuda")
    eager, candidate = (to_module(variant.graph, device) for _ in range(2))
    apply_pass(candidate.graph, load_rules(passes / name, read_pass_dir(passes / name).names))
    candidate.recompile()
    levels = []
    for draw, how in enumerate(CORRECTNESS):
        outputs = [flatten(m(*make_inputs(variant.inputs, 0, draw, device, how))) for m in (candidate, eager)]
        levels.append(t_min(*outputs))
    times = [[], []]
    inputs = make_inputs(variant.inputs, 0, 9, device)
    for call in range(125):
        for side, module in zip(times, (eager, candidate), strict=True):
            torch.cuda.synchronize()
            begin = time.perf_counter()
            module(*inputs)
            torch.cuda.synchronize()
            if call >= 25:
                side.append(time.perf_counter() - begin)
    level = None if None in levels else max(levels)
    return {"t_min": level, "speedup": round(statistics.median(times[0]) / statistics.median(times[1]), 3)}


if __name__ == "__main__":
    main()

"""Draw random variants of a version, run them eagerly, and say how many run and give finite outputs.

    python3 benchmarks/extraction/run_variants.py VERSION_DIR --count 500 --seed 0 --device cpu|cuda [--out FILE]

The draw is the same number from each category and direction that the version has (all of it where it has fewer), so
that small categories count too. Inputs come from `passbench.inputs.draw`, one draw for each of `--distributions`. A
variant that would take more memory than `--memory-gib` is not run, and counted as "skipped": a CPU computes products in
half precision by the hundred seconds a GiB. Needs only a GPU worker's libraries. `--out` takes the whole report as
JSON.
"""

import argparse
import json
import math
import random
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import pyarrow as pa
import torch

from extraction.analysis.footprint import footprint
from extraction.analysis.propagate import Invalid, propagate
from passbench.inputs.distribution import Distribution
from passbench.inputs.draw import make_inputs
from storage.graph.as_fx import to_module
from storage.records import Variant
from storage.schema import CATEGORIES
from storage.versions.provenance import library_versions
from storage.versions.store import Version

SHOWN = 200
"""Failures that are printed; `--out` has all."""


def main() -> int:
    arguments = parse_arguments()
    version = Version.open(arguments.version)
    chosen = draw(version, arguments.count, arguments.seed)
    results, begin = [], time.monotonic()
    for number, variant in enumerate(chosen, 1):
        if time.monotonic() - begin > arguments.budget:
            print(f"stopped at the budget of {arguments.budget} s", file=sys.stderr, flush=True)
            break
        results.append(run(variant, arguments))
        if number % 50 == 0:
            print(f"{number}/{len(chosen)} {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)
    report = summarise(results) | {
        "version": version.name,
        "seed": arguments.seed,
        "wanted": len(chosen),
        "device": describe(arguments.device),
        "memory_gib": arguments.memory_gib,
        "distributions": arguments.distributions,
        "seconds": round(time.monotonic() - begin, 1),
        "libraries": library_versions(),
    }
    show(report)
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(report, indent=1, default=str) + "\n")
    return 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version", type=Path)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument(
        "--memory-gib", type=float, help="of all values of a variant together; 0.25 on the CPU, 16 on a GPU"
    )
    parser.add_argument(
        "--distributions", nargs="+", default=["normal"], choices=[d.value for d in Distribution], metavar="NAME"
    )
    parser.add_argument("--budget", type=float, default=math.inf, help="seconds after which no further one is run")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    if arguments.memory_gib is None:
        arguments.memory_gib = 16.0 if arguments.device == "cuda" else 0.25
    return arguments


def draw(version: Version, count: int, seed: int) -> list[Variant]:
    """`count` variants, as even over categories and directions as there are variants, in random order."""
    rng = random.Random(seed)
    pools: dict[tuple[str, str], list[int]] = defaultdict(list)
    for category in CATEGORIES:
        directions = version.table(category, columns=["direction"])["direction"].to_pylist()
        for row, direction in enumerate(directions):
            pools[category, direction or "forward"].append(row)
    picked: dict[str, list[int]] = defaultdict(list)
    left = count
    for place, ((category, _), rows) in enumerate(sorted(pools.items(), key=lambda item: len(item[1]))):
        share = min(len(rows), -(-left // (len(pools) - place)))
        picked[category] += rng.sample(rows, share)
        left -= share
    variants = []
    for category in sorted(picked):
        table: pa.Table = version.table(category)
        variants += [Variant.from_row(row) for row in table.take(sorted(picked[category])).to_pylist()]
    rng.shuffle(variants)
    return variants


def run(variant: Variant, arguments: argparse.Namespace) -> dict[str, Any]:
    """What came of one variant: "ok", or the cause, with what is needed to find it again."""
    result: dict[str, Any] = {
        "variant_hash": variant.variant_hash,
        "category": variant.category,
        "direction": variant.direction,
        "dtypes": sorted({i.dtype for i in variant.inputs}),
        "ops": variant.graph.op_sequence,
        "sources": [vars(s) for s in variant.sources[:3]],
    }
    propagated = propagate(variant.graph, variant.inputs)
    if isinstance(propagated, Invalid):
        return result | {"status": f"does not propagate: {propagated.cause}", "message": propagated.message}
    needed = footprint(propagated)
    if needed > arguments.memory_gib * 2**30:
        return result | {"status": "skipped: too large for this machine", "message": f"{needed / 2**30:.1f} GiB"}
    module = to_module(variant.graph, arguments.device)
    begin = time.monotonic()
    for index, name in enumerate(arguments.distributions):
        try:
            inputs = make_inputs(variant.inputs, arguments.seed, index, arguments.device, Distribution(name))
            with torch.no_grad():
                outputs = list(tensors(module.forward(*inputs)))
            found = problem(variant, outputs)
        except Exception as error:  # any op may refuse what it gets; finding that out is what this is for
            return result | {"status": f"fails on {name}", "message": f"{type(error).__name__}: {error}"[:400]}
        if found:
            return result | {"status": f"{found[0]} on {name}", "message": found[1]}
    return result | {"status": "ok", "message": "", "seconds": round(time.monotonic() - begin, 3)}


def tensors(value: Any) -> Iterator[torch.Tensor]:
    """The tensors in a module's result, in order."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        yield from tensors(list(value.values()))
    elif isinstance(value, tuple | list):
        for item in value:
            yield from tensors(item)


def problem(variant: Variant, outputs: list[torch.Tensor]) -> tuple[str, str] | None:
    """Cause and details where outputs are not what the record says, or not finite."""
    said = [(o.dtype, o.shape) for o in variant.outputs]
    got = [(str(o.dtype).removeprefix("torch."), tuple(o.shape)) for o in outputs]
    if said != got:
        return "other outputs than recorded", f"{got} instead of {said}"
    for number, output in enumerate(outputs):
        if output.dtype.is_floating_point or output.dtype.is_complex:
            nans, infinite = int(output.isnan().sum()), int(output.isinf().sum())
            if nans or infinite:
                return "not finite", f"output {number}: {nans} NaN and {infinite} infinite of {output.numel()}"
    return None


def summarise(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Counts by status, by category and direction, and by dtype; the failures in full."""
    ran = [r for r in results if not r["status"].startswith("skipped")]
    good = sum(r["status"] == "ok" for r in ran)
    by_category: dict[str, Counter[str]] = defaultdict(Counter)
    by_dtype: dict[str, Counter[str]] = defaultdict(Counter)
    for r in results:
        by_category[f"{r['category']}, {r['direction']}"][r["status"]] += 1
        by_dtype["+".join(r["dtypes"])][r["status"]] += 1
    return {
        "drawn": len(results),
        "run": len(ran),
        "ok": good,
        "share": good / len(ran) if ran else None,
        "statuses": dict(Counter(r["status"] for r in results).most_common()),
        "by_category": {key: dict(value) for key, value in sorted(by_category.items())},
        "by_dtype": {key: dict(value) for key, value in sorted(by_dtype.items())},
        "slowest": sorted((r for r in results if "seconds" in r), key=lambda r: -r["seconds"])[:10],
        "failures": [r for r in results if r["status"] != "ok"],
    }


def show(report: dict[str, Any]) -> None:
    share = "none" if report["share"] is None else f"{100 * report['share']:.2f}%"
    print(f"{report['ok']} of {report['run']} run and are finite: {share} ({report['drawn']} drawn)")
    for key in ("statuses", "by_category", "by_dtype"):
        print(f"{key}: {json.dumps(report[key])}")
    for failure in report["failures"][:SHOWN]:
        ops = " ".join(failure["ops"])
        print(f"- {failure['variant_hash'][:12]} {failure['category']} {'+'.join(failure['dtypes'])} [{ops[:160]}]")
        print(f"  {failure['status']}: {failure['message'][:300]}")


def describe(device: str) -> str:
    return torch.cuda.get_device_name() if device == "cuda" else f"cpu, {torch.get_num_threads()} threads"


if __name__ == "__main__":
    sys.exit(main())

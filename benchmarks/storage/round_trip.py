"""Round trip of PassNet's layout: export every evaluation sample of a version, read it again, compare.

    python -m benchmarks.storage.round_trip VERSION_DIR [--split eval|train] [--limit N] [--out FILE]

The same: graph, variant and family hash, and all of a variant but its outputs, which importing computes anew. Exits
with 1 if anything differs.
"""

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from dataclasses import fields
from pathlib import Path

import torch

from dedup.hashes import identify
from storage.layout.export import write_sample
from storage.layout.read import find, graph_directory, graph_paths, read_graph
from storage.layout.variant import variant_of
from storage.records import Sample, Variant
from storage.versions.samples import load_samples
from storage.versions.store import Version


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("version", type=Path)
    options.add_argument("--split", default="eval")
    options.add_argument("--limit", type=int)
    options.add_argument("--out", type=Path, help="write the result as JSON")
    given = options.parse_args()
    samples = load_samples(Version.open(given.version), given.split, limit=given.limit)
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        started = time.perf_counter()
        for sample in samples:
            write_sample(sample, root / sample.sample)
        written = time.perf_counter() - started
        started = time.perf_counter()
        differences, variants = compare(samples, root)
        read = time.perf_counter() - started
        size = sum(path.stat().st_size for path in root.rglob("*") if path.is_file())
    result = {
        "version": given.version.name,
        "torch": torch.__version__,
        "samples": len(samples),
        "variants": variants,
        "ops": sum(len(v.graph.ops) for s in samples for v in s.variants),
        "differ": dict(differences),
        "export_ms_a_variant": round(1000 * written / variants, 2),
        "import_ms_a_variant": round(1000 * read / variants, 2),
        "bytes_a_variant": size // variants,
    }
    text = json.dumps(result, indent=1)
    print(text)
    if given.out:
        given.out.write_text(text + "\n")
    return 1 if differences else 0


def compare(samples: list[Sample], root: Path) -> tuple[Counter[str], int]:
    """How many variants differ by field, and how many there are. A sample that is not found differs in `sample`."""
    differences: Counter[str] = Counter()
    left = {sample.sample: sample for sample in samples}
    count = 0
    for found in find(root):
        sample = left.pop(found.path.name)
        for path, variant in zip(graph_paths(found.path), sample.variants, strict=True):
            again = read_graph(graph_directory(found.path, path), root)
            differences.update(_differing(identify(variant), identify(variant_of(again, found.path / path, "lost"))))
            count += 1
    differences.update({"sample": len(left)} if left else {})
    return differences, count


def _differing(one: Variant, other: Variant) -> list[str]:
    """Fields that differ. The hashes of both are those of this code, also where the version is of an earlier one."""
    return [f.name for f in fields(one) if f.name != "outputs" and getattr(one, f.name) != getattr(other, f.name)]


if __name__ == "__main__":
    sys.exit(main())

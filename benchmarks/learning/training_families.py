"""How much a version has to learn from: its training graphs that are not too near to an evaluation sample.

    python -m benchmarks.learning.training_families --version DIR --held-out DIR --out OUT

Counts graphs and families by category, what is left out by cause (`agent.learning.leaks`), families by op, and the ops
of the held-out versions' samples that no training family has. The version's own evaluation samples are held out too.
Writes OUT/training_families.json and OUT/training_families.md.
"""

import argparse
import json
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path

from agent.learning.leaks import HeldOut
from benchmarks.learning.graph_sources import held_out_samples, version_samples
from storage.versions.version import Version

_PARTS = 16
"""Parts in which a version is read, one in memory at a time."""
_SHOWN = 60
"""Ops that the table shows."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", type=Path, required=True)
    parser.add_argument("--held-out", type=Path, action="append", required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    version, held = Version.open(arguments.version), held_out_samples(arguments.held_out)
    found = counts(version, HeldOut.of([*held, *held_out_samples([arguments.version])]))
    known = {op for op, _ in found["families_by_op"]}
    missing = Counter(op for s in held for op in set(s.variants[0].graph.op_sequence) - known)
    lacking = sum(not set(s.variants[0].graph.op_sequence) <= known for s in held)
    found |= {"held_out": len(held), "held_out_with_an_unknown_op": lacking, "unknown_ops": missing.most_common()}
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "training_families.json").write_text(json.dumps(found, indent=1) + "\n")
    (arguments.out / "training_families.md").write_text(text := markdown(found))
    print(text)


def counts(version: Version, held: HeldOut) -> dict:
    """Graphs and families that may be learned from, and why others may not."""
    graphs: Counter[str] = Counter()
    left: Counter[tuple[str, str]] = Counter()
    families: dict[str, set[str]] = defaultdict(set)
    by_op: dict[str, set[str]] = defaultdict(set)
    for number in range(_PARTS):
        for sample in version_samples(version, (number, _PARTS)):
            one = replace(sample, variants=sample.variants[:1])  # all have this graph
            if cause := held.why_not(one):
                left[sample.category, cause] += 1
                continue
            graphs[sample.category] += 1
            families[sample.category].add(sample.family_hash)
            for op in one.variants[0].graph.op_sequence:
                by_op[op].add(sample.family_hash)
    sizes = sorted(((op, len(hashes)) for op, hashes in by_op.items()), key=lambda pair: (-pair[1], pair[0]))
    return {
        "categories": [[name, graphs[name], len(families[name])] for name in graphs],
        "all": [sum(graphs.values()), len(set().union(*families.values()))],
        "left_out": [[*key, count] for key, count in sorted(left.items())],
        "families_by_op": sizes,
    }


def markdown(found: dict) -> str:
    """The counts as tables."""
    lines = ["| category | graphs | families |", "|---|---|---|"]
    rows = [*found["categories"], ["all", *found["all"]]]
    lines += [f"| {name} | {graphs:,} | {families:,} |" for name, graphs, families in rows]
    lines += ["", "| category | left out as | graphs |", "|---|---|---|"]
    lines += [f"| {name} | {cause} | {count:,} |" for name, cause, count in found["left_out"]]
    lines += [
        "",
        f"{len(found['families_by_op'])} ops; those with the most families:",
        "",
        "| op | families |",
        "|---|---|",
    ]
    lines += [f"| {op} | {count:,} |" for op, count in found["families_by_op"][:_SHOWN]]
    unknown = ", ".join(f"{op} ({count})" for op, count in found["unknown_ops"])
    lines += [
        "",
        f"{found['held_out_with_an_unknown_op']} of {found['held_out']} held-out samples have an op that no training "
        f"family has: {unknown or 'none'}.",
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()

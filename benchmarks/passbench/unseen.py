"""Samples of families that no record names, drawn at random: what nobody can have worked on.

    python3 -m benchmarks.passbench.unseen VERSION_DIR... --fusible 150 --typical 80 --sole-op 60 --seed 20 --out FILE

A family is out if its hash, or the first 12 letters of it as in a sample's name, stands in any file of `benchmarks`
but those of dataset versions and traces, or in tests, docs, notebooks or the authors' code. `removed_samples.txt`
beside this file names the samples of records that are no longer kept. Families that stand in
`benchmarks/learning/demonstrations.parquet` alone come after the others: `distill-static` has written passes for
them, which were checked by themselves, and which nobody has worked on. Within both kinds evaluation samples come
before those of the training split. FILE gets a name a line: `--together` samples of each category in turn, then the
rest, so that every beginning has all categories.
"""

import argparse
import random
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow.parquet as pq

from storage.schema import CATEGORIES
from storage.versions.version import Version

ROOT = Path(__file__).parents[2]
_PLACES = ("benchmarks", "tests", "docs", "notebooks", "agent")
_DEMONSTRATIONS = "benchmarks/learning/demonstrations.parquet"
_DATA = ("version", "traces", "t3", "__pycache__")
_COLUMNS = ("sample", "task", "name", "family_hash", "family")
_LETTERS = 12
_HASH = re.compile(rb"(?<![0-9a-f])[0-9a-f]{12}(?![0-9a-f])|(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")


def named(root: Path) -> tuple[set[str], set[str]]:
    """The first letters of every hash that a record names, and of those that demonstrations have."""
    found: set[str] = set()
    for place in _PLACES:
        for file in (root / place).rglob("*"):
            if file.is_file() and file != root / _DEMONSTRATIONS and not set(file.relative_to(root).parts) & set(_DATA):
                found |= _hashes(file)
    return found, _hashes(root / _DEMONSTRATIONS)


def _hashes(file: Path) -> set[str]:
    if not file.exists():
        return set()
    return {match.decode()[:_LETTERS] for text in _texts(file) for match in _HASH.findall(text)}


def _texts(file: Path) -> Iterator[bytes]:
    if file.suffix != ".parquet":
        yield file.read_bytes()
        return
    columns = [name for name in pq.read_schema(file).names if name in _COLUMNS]
    for column in pq.read_table(file, columns=columns).columns:
        for value in column.unique().to_pylist():
            yield str(value).encode()


def drawn(
    versions: Sequence[Path], counts: dict[str, int], together: int, seed: int, out: set[str], late: set[str]
) -> list[str]:
    """Names of samples, in order; a name that several versions have counts once. Families that are `out` are left out,
    those that are `late` come after the others."""
    rows: dict[str, dict] = {}
    for version in versions:
        for row in Version.open(version).table("samples").to_pylist():
            rows.setdefault(row["sample"], row)
    rng = random.Random(seed)
    chosen: dict[str, list[str]] = {}
    for category, count in counts.items():
        some = [name for name in sorted(rows) if rows[name]["category"] == category]
        some = [name for name in rng.sample(some, len(some)) if rows[name]["family_hash"][:_LETTERS] not in out]
        some.sort(key=lambda name: (rows[name]["family_hash"][:_LETTERS] in late, rows[name]["split"]))
        chosen[category] = rng.sample(some[:count], min(count, len(some)))
    first = [name for some in zip(*(names[:together] for names in chosen.values()), strict=True) for name in some]
    return [*first, *_mixed({category: names[together:] for category, names in chosen.items()})]


def _mixed(names: dict[str, list[str]]) -> list[str]:
    """In the order of how much of its category comes before each."""
    share = [(number / len(some), name) for some in names.values() for number, name in enumerate(some)]
    return [name for _, name in sorted(share)]


def main() -> None:
    """See the module's head."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("versions", type=Path, nargs="+", help="directories; the first that has a sample gives it")
    for category in CATEGORIES:
        parser.add_argument(f"--{category.replace('_', '-')}", type=int, default=60, help="samples")
    parser.add_argument("--together", type=int, help="samples of each category that come first")
    parser.add_argument("--seed", type=int, default=20)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    counts = {category: getattr(given, category) for category in CATEGORIES}
    together = given.together or min(counts.values())
    names = drawn(given.versions, counts, together, given.seed, *named(ROOT))
    given.out.write_text("".join(f"{name}\n" for name in names), "utf-8")
    print(f"{len(names)} samples")


if __name__ == "__main__":
    main()

"""One table from several directories that `python -m agent.run` has written, such as one for each GPU of a host.

    python -m benchmarks.passbench.merge_runs DIR [DIR ...] --out OUT

Writes OUT/results.parquet and OUT/summary.md. Of an author's rows only those count whose variant every author has, so
that all lines of the table are of the same variants. A variant that an author has twice counts once, as it came first.
"""

import argparse
from collections import defaultdict
from pathlib import Path

from agent.run.summary import summary
from storage.parquet import read_rows, write_rows
from storage.schema import RESULTS


def common(rows: list[dict]) -> dict[str, list[dict]]:
    """Rows by author, of the variants that every author has."""
    authors: dict[str, dict[tuple[str, str], dict]] = defaultdict(dict)
    for row in rows:
        authors[row["author"]].setdefault((row["sample"], row["variant_hash"]), row)
    variants = set.intersection(*map(set, authors.values()))
    return {name: [row for key, row in some.items() if key in variants] for name, some in authors.items()}


def main() -> None:
    """See the module's head."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directories", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    files = [one / "results.parquet" for one in given.directories]
    runs = common([row for file in files for row in read_rows(file, RESULTS)])
    given.out.mkdir(parents=True, exist_ok=True)
    write_rows(given.out / "results.parquet", [row for rows in runs.values() for row in rows], RESULTS)
    text = summary(f"Variants that all authors have, of {len(files)} runs", runs, {})
    (given.out / "summary.md").write_text(text, "utf-8")
    print(text)


if __name__ == "__main__":
    main()

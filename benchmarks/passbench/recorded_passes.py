"""Passes out of the rows of earlier runs as directories, so that a run can measure them again (`agent.run --passes`).

    python3 -m benchmarks.passbench.recorded_passes ROWS.parquet [ROWS.parquet ...] --out DIR [--most 24]

Of each sample the pass of the last row that was right, of all categories in proportion as far as there are. DIR/SAMPLE
is a pass.
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Iterable
from itertools import zip_longest
from pathlib import Path

from agent.ahead.author_pool import Answers
from agent.author import Submission
from passbench.checking.tolerance import STRICT
from passbench.contract import write_pass_dir
from storage.parquet import read_rows
from storage.records import Sample
from storage.schema import RESULTS


def passes(rows: list[dict]) -> dict[str, dict[str, str]]:
    """Sample → the files of its pass, the categories in turn."""
    by_category: dict[str, dict[str, dict[str, str]]] = defaultdict(dict)
    for row in rows:
        if row["pass_files"] and row["status"] == "ok" and row["t_min"] <= STRICT:
            files = {file["path"]: file["content"] for file in row["pass_files"]}
            by_category[row["category"]][row["sample"]] = files
    turns = zip_longest(*(some.items() for some in by_category.values()))
    return dict(one for turn in turns for one in turn if one is not None)


def keep_answers(rows: Iterable[dict], author: str, samples: Iterable[Sample], answers: Answers) -> None:
    """Make what an author has handed in by these rows its answers for these samples, where there are none yet. A sample
    that it left to eager is left to eager again. A row whose pass is not on record is no answer."""
    by_sample = {row["sample"]: row for row in rows if row["author"] == author}
    for sample in samples:
        row = by_sample.get(sample.sample)
        if row is None or answers.of(sample) is not None:
            continue
        if row["compiler"] != "pass":
            answers.keep(sample, Submission(row["compiler"], reason=row["reason"].rpartition("left to eager: ")[2]))
        elif row["pass_files"]:
            write_pass_dir({file["path"]: file["content"] for file in row["pass_files"]}, answers.place(sample))
            answers.keep(sample, Submission("pass", answers.place(sample)))


def main() -> None:
    """See the module's head."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--most", type=int, default=24, help="samples")
    given = parser.parse_args()
    found = list(passes([row for file in given.rows for row in read_rows(file, RESULTS)]).items())[: given.most]
    for sample, files in found:
        write_pass_dir(files, given.out / sample)
    print(json.dumps({"passes": len(found), "of": [sample.split("-")[0] for sample, _ in found]}))


if __name__ == "__main__":
    main()

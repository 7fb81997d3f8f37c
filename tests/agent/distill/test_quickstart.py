"""Subgraphs that were cut from the quickstart's models (`quickstart.jsonl`, one variant a line)."""

import json
from pathlib import Path

import pytest

from agent.distill.static import Distill
from passbench.policy.check import check_dir
from storage.records import Variant
from tests.agent.support import PAIR, sample

ROWS = [json.loads(line) for line in (Path(__file__).parent / "quickstart.jsonl").read_text().splitlines()]


def _name(row: dict) -> str:
    model = row["sources"][0]["model"].partition(":")[2]
    return f"{model}-{row['category']}-{row['variant_hash'][:6]}"


@pytest.mark.parametrize("row", ROWS, ids=_name)
def test_real_subgraph(row, tmp_path, interpreter):
    one = Variant.from_row(row)
    directory = tmp_path / "pass"
    submission = Distill(margin=PAIR).write(sample(one), directory)
    assert not submission.declined, submission.reason
    assert check_dir(directory) == []
    assert interpreter.problems(directory, one, draws=1) == []

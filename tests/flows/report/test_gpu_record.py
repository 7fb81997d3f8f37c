"""The record of a GPU that the quickstart shows, from the rows that are committed."""

import pytest

from flows.cli.quickstart_text import record_text
from flows.report.gpu_record import RECORD, gpu_record
from passbench.score import aggregate_score
from storage.parquet import read_rows
from storage.schema import CATEGORIES, RESULTS


def test_the_committed_record_has_a_line_an_author_and_scores_by_category():
    rows, record = read_rows(RECORD, RESULTS), gpu_record()
    assert {line["author"] for line in record["lines"]} == {row["author"] for row in rows}
    assert [line["AS"] for line in record["lines"]] == sorted((line["AS"] for line in record["lines"]), reverse=True)
    for line in record["lines"]:
        assert list(line["categories"]) == list(CATEGORIES)
        for category, one in line["categories"].items():
            mine = [row for row in rows if (row["author"], row["category"]) == (line["author"], category)]
            right = sum(row["status"] == "ok" and row["t_min"] <= -5 for row in mine)
            assert (one["variants"], one["correct"]) == (len(mine), right)
            assert one["AS"] == pytest.approx(aggregate_score(mine, "e2e"))


def test_the_table_says_hardware_versions_and_where_the_rows_are():
    record = gpu_record()
    text = " ".join(record_text(record).split())
    distill = next(line for line in record["lines"] if line["author"] == "distill")
    fusible = distill["categories"]["fusible"]
    assert record["device"] in text and f"torch {record['libraries']['torch']}" in text and record["path"] in text
    assert f"{fusible['AS']:.2f}, {fusible['correct']} of {fusible['variants']}" in text


def test_without_the_records_there_is_none(tmp_path):
    assert gpu_record(tmp_path / "none.parquet") is None

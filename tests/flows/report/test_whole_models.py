"""Whole models in a report: a line each, and means of what is right."""

import pytest
import torch

from flows.models.evaluate_models import publish_models
from flows.report.tables import whole_models, whole_models_by_kind
from flows.report.write import write_report
from passbench.models.measured_model import failed_row
from tests.support.scored import scored


def row(model: str, eager: float, compiled: float, ours: float) -> dict:
    """A measured row with these times."""
    times = {"eager": eager, "compile": compiled, "ours": ours, "ours:eager-graph": 1.0}
    regimes = [
        {"regime": name, "us": us, "queued_us": None, "error": None, "seconds": 1.0, "reason": ""}
        for name, us in times.items()
    ]
    speedups = {"speedup_eager": eager / ours, "speedup_compiled": compiled / ours}
    return failed_row(model, "r", 1, torch.float32, "", 1.0) | {"status": "ok", "regimes": regimes, **speedups}


def test_lines_and_means():
    rows = [row("a", 40.0, 20.0, 10.0), row("b", 10.0, 5.0, 10.0), failed_row("c", "r", 1, torch.float32, "died", 1.0)]
    lines = whole_models(rows)
    assert [line["model"] for line in lines] == ["a", "b", "c"] and lines[2]["reason"] == "died"
    assert lines[0]["compile"] == 20.0 and lines[0]["max-autotune"] is None and lines[0]["over eager"] == 4.0
    (kind,) = whole_models_by_kind(rows)
    assert kind["models"] == 2 and kind["over eager"] == pytest.approx(2.0) and kind["lowest"] == 0.5
    assert kind["over torch.compile"] == pytest.approx(1.0)


def test_a_report_shows_them(tmp_path):
    store = scored(tmp_path / "data")
    before = store.latest()
    version = publish_models(store, [row("timm:resnet18", 40.0, 20.0, 10.0)])
    assert version.table("results").num_rows == before.table("results").num_rows > 0
    page = write_report(["latest"], tmp_path / "out", store.root).read_text()
    assert "Whole models" in page and "timm:resnet18" in page and (tmp_path / "out" / "whole_models.csv").exists()

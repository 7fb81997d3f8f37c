"""Rows of whole models: their times, what was chosen, and what failed."""

import pyarrow as pa
import torch

from benchmarks.models.summary import summary
from passbench.models.measured_model import failed_row, measure_model
from passbench.models.optimized_model import OptimizeSettings
from passbench.models.recipes import Recipe
from storage.schema import MODEL_RESULTS
from tests.passbench.library.small_library import library
from tests.passbench.models.small_models import Breaking, Convolutional, Residual


def measured(model: torch.nn.Module, x: torch.Tensor) -> dict:
    torch._dynamo.reset()
    turns = []
    row = measure_model(
        "small",
        model.eval(),
        (x,),
        {},
        OptimizeSettings(effort="quick"),
        run="r",
        batch=1,
        regimes=("eager", "ours", "nonsense"),
        before_timing=lambda: turns.append(1),
    )
    assert turns
    return row


def test_a_row_holds_every_regime_and_fits_the_table():
    row = measured(Convolutional(), torch.randn(1, 3, 16, 16))
    assert row["status"] == "ok" and row["chosen"] in ("eager", "eager-once") and row["ops"] > 8
    assert row["error"] == row["error_eager"] and row["level"] <= -5 and row["t_min"] == -10
    regimes = {r["regime"]: r for r in row["regimes"]}
    assert regimes["eager"]["us"] > 0 and regimes["ours"]["us"] > 0 and regimes["ours:eager-once"]["us"] > 0
    assert regimes["nonsense"]["us"] is None and "KeyError" in regimes["nonsense"]["reason"]
    assert row["speedup_eager"] == regimes["eager"]["us"] / regimes["ours"]["us"] and row["speedup_compiled"] is None
    assert regimes["without:once"]["us"] == regimes["ours:eager"]["us"] and "without:graph" not in regimes
    assert not row["times_meaningful"] and row["covered"] == row["covered_time"] == 0
    failed = failed_row("other", "r", 1, torch.float32, "killed", 1.0)
    table = pa.Table.from_pylist([row, failed], MODEL_RESULTS)
    assert table.num_rows == 2 and table.column("status").to_pylist() == ["ok", "failed"]
    text = summary([row, failed], 1.0)
    assert "1 of 2 measured and right" in text and "| other | float32 | 1 |" in text and "killed" in text
    assert "| once | float32 | 1 | 1 |" in text and "Until ours answered" in text


def test_what_passes_serve_is_told_as_shares_of_operators_and_of_time(tmp_path):
    (entry,) = library(tmp_path, 4, 8).entries()
    recipe = Recipe("served", "eager", once=True, passes=(entry.name,))
    settings = OptimizeSettings(library=str(tmp_path), recipe=recipe)
    torch._dynamo.reset()
    model, inputs = Residual().eval(), (torch.randn(4, 8),)
    row = measure_model("small", model, inputs, {}, settings, run="r", batch=4, regimes=("eager", "ours"))
    assert row["covered"] == 2 / 8 and 0 < row["covered_time"] < 1


def test_a_model_of_several_graphs_says_why_it_is_not_one():
    class Buffered(Breaking):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(()))

    row = measured(Buffered(), torch.ones(3))
    assert row["status"] == "ok" and row["chosen"] == "torch.compile" and "data-dependent" in row["why_not"]
    assert row["ops"] is None and row["error"] is None

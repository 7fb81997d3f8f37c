"""Models that take all that a machine has end as their category, by a limit and not by the clock; others complete."""

import importlib.util
import sys
from pathlib import Path

import pytest

from flows.build_dataset import build_dataset
from storage.versions.store import Store
from tests.flows.prefect_server import ROOT

MODELS = ROOT / "tests" / "support" / "hostile_models"
ENDS = {
    "timm:hostile_forks": "too_many_processes",
    "timm:hostile_memory": "out_of_memory",
    "timm:hostile_children": "out_of_memory",
    "timm:hostile_files": "out_of_disk",
    "timm:hostile_file": "out_of_disk",
}


@pytest.mark.timeout(400)
def test_a_fork_bomb_a_hoarder_and_a_disk_filler_cost_themselves_alone(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(MODELS))  # the pool's server has this process's path
    file = importlib.util.spec_from_file_location("hostile_models", MODELS / "sitecustomize.py")
    module = importlib.util.module_from_spec(file)
    monkeypatch.setitem(sys.modules, "hostile_models", module)  # timm looks there for its configs
    file.loader.exec_module(module)
    catalog = tmp_path / "catalog.txt"
    catalog.write_text("".join(f"{name}\n" for name in [*ENDS, "timm:honest"]))
    built = build_dataset.fn(
        catalog=str(catalog),
        data=str(tmp_path / "data"),
        workers=2,
        points=1,
        processes=64,
        memory_mb=1500,
        disk_mb=200,
    )
    assert built["traced"] == 1
    rows = {row["model"]: row for row in Store(tmp_path / "data").latest().table("models").to_pylist()}
    assert {name: rows[name]["error_category"] for name in ENDS} == ENDS
    assert all(rows[name]["seconds"] < 280 for name in ENDS), "they were stopped, for they would wait 300 s"
    assert rows["timm:honest"]["status"] == "traced"

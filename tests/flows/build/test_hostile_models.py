"""Models that take all that a machine has end as their category, by a limit and not by the clock; others complete."""

from pathlib import Path

import pytest

from extraction.tracing.limits import TIMEOUT_S
from flows.build_dataset import build_dataset
from storage.versions.store import Store
from tests.support.kept_pool import kept_pool
from tests.support.warm_forks import WarmForks

ENDS = {
    "timm:hostile_forks": "too_many_processes",
    "timm:hostile_memory": "out_of_memory",
    "timm:hostile_children": "out_of_memory",
    "timm:hostile_files": "out_of_disk",
    "timm:hostile_file": "out_of_disk",
}


@pytest.mark.timeout(400)
def test_a_fork_bomb_a_hoarder_and_a_disk_filler_cost_themselves_alone(tmp_path: Path, warm_forks: WarmForks) -> None:
    from tests.support import hostile_models  # it imports timm

    catalog = tmp_path / "catalog.txt"
    catalog.write_text("".join(f"{name}\n" for name in [*ENDS, "timm:honest"]))
    limits = {"workers": 2, "processes": 64, "memory_mb": 1500, "disk_mb": 200}
    with kept_pool(warm_forks, timeout_s=TIMEOUT_S, **limits) as pool:
        pool.warm_up(hostile_models.PREPARE)
        built = build_dataset.fn(catalog=str(catalog), data=str(tmp_path / "data"), points=1, **limits)
    assert built["traced"] == 1
    rows = {row["model"]: row for row in Store(tmp_path / "data").latest().table("models").to_pylist()}
    assert {name: rows[name]["error_category"] for name in ENDS} == ENDS
    assert all(rows[name]["seconds"] < 280 for name in ENDS), "they were stopped, for they would wait 300 s"
    assert rows["timm:honest"]["status"] == "traced"

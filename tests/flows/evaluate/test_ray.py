"""The Ray task runner on this machine with two slots of the CPU: the same results as without Ray."""

import subprocess
import sys
from pathlib import Path

import pytest

from flows.evaluate_model import evaluate_model
from storage.errors import PassNetError
from storage.versions.store import Store
from tests.flows.evaluate.test_devices import SAMPLE_LIST, steady
from tests.flows.prefect_server import ROOT, prefect_server
from tests.support.stores import publish_samples

RUN = """
import json, sys
from flows.evaluate_model import evaluate_model

if __name__ == "__main__":
    data, = sys.argv[1:]
    done = evaluate_model(author="eager", data=data, device="cpu:2", runner="ray", limit=3)
    print(json.dumps(done))
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory with a version of a few samples."""
    publish_samples(SAMPLE_LIST, tmp_path / "data")
    return tmp_path / "data"


def results(data: Path) -> list[dict]:
    return Store(data).latest().table("results").to_pylist()


@pytest.mark.timeout(300)
def test_two_slots_of_ray_give_the_same_results(data, tmp_path, warm_forks):
    pytest.importorskip("prefect_ray", reason="needs Ray: pip install 'passnet[ray]'")
    evaluate_model.fn(author="eager", data=str(data), device="cpu", limit=3)
    plain = results(data)
    runs = {row["run"] for row in plain}
    for part in (data / "runs").rglob("*.parquet"):
        part.unlink()
    script = tmp_path / "run.py"
    script.write_text(RUN)
    with prefect_server(tmp_path, warm_forks) as prefect:
        done = subprocess.run(
            [sys.executable, str(script), str(data)],
            cwd=ROOT,
            env=prefect.environment | {"PYTHONPATH": str(ROOT), "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"},
            capture_output=True,
            text=True,
            timeout=240,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(list((data / "runs").rglob("*.parquet"))) == 3, "Ray's workers measured nothing"
    found = results(data)
    assert {row["run"] for row in found} == runs
    pairs = zip(steady(found), steady(plain), strict=True)
    assert not {name: (row[name], same[name]) for row, same in pairs for name in row if row[name] != same[name]}


def test_ray_needs_a_flow_run_and_chooses_the_gpus_itself(data):
    with pytest.raises(PassNetError, match="runs as a flow"):
        evaluate_model.fn(author="eager", data=str(data), device="cpu:2", runner="ray")
    with pytest.raises(PassNetError, match="Ray chooses the GPUs"):
        evaluate_model.fn(author="eager", data=str(data), device="cuda:0", runner="ray")

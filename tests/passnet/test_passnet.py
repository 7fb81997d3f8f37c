"""`import passnet`: cheap to import, opens versions, benchmarks samples."""

import subprocess
import sys
from importlib.metadata import version as installed
from pathlib import Path

import pytest

import passnet
from storage.errors import PassNetError
from storage.layout.export import write_sample
from tests.support.scored import samples, scored

ROOT = Path(__file__).resolve().parents[2]
PASSES = ROOT / "tests" / "support" / "passes"


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return scored(tmp_path_factory.mktemp("passnet") / "data")


def test_importing_it_imports_nothing_large():
    script = "import passnet, sys; print(*sorted({m.split('.')[0] for m in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not {"torch", "numpy", "pyarrow", "pandas", "prefect", "flows", "storage"} & set(done.stdout.split())


def test_the_version_is_the_distribution_s():
    assert passnet.__version__ == installed("passnet")


def test_a_version_is_opened_by_directory_or_by_name(store, monkeypatch):
    newest = passnet.open_version(store.root)
    assert newest.name == "v2" and passnet.open_version(store.root, "v1").name == "v1"
    assert passnet.open_version(newest.path).name == "v2"
    monkeypatch.setattr("flows.DEFAULT_DATA", str(store.root))
    assert passnet.open_version().name == "v2" and passnet.open_version("v1").name == "v1"
    with pytest.raises(PassNetError, match="it has v1, v2"):
        passnet.open_version("v7")
    with pytest.raises(PassNetError, match="no dataset version yet"):
        passnet.open_version(store.root / "nowhere")


def test_a_sample_is_benchmarked_by_id_as_a_record_and_as_a_directory(store, tmp_path):
    sample = samples()[0]
    by_id = passnet.bench(sample.sample, version=store.latest(), device="cpu")
    assert [r.variant_hash for r in by_id] == [v.variant_hash for v in sample.variants]
    assert {(r.compiler, r.status, r.times_meaningful) for r in by_id} == {("eager", "ok", False)}
    files = {path.name: path.read_text() for path in (PASSES / "add_relu").iterdir() if path.is_file()}
    write_sample(sample, tmp_path / "sample", files)
    said: list[str] = []
    of_directory = passnet.bench(tmp_path / "sample", device="cpu", progress=said.append)
    assert {(r.compiler, r.status) for r in of_directory} == {("pass", "ok")} and said
    with pytest.raises(PassNetError, match="no sample of v2 fits"):
        passnet.bench("nosuch", version=store.latest(), device="cpu")

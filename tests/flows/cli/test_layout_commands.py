"""`passnet import`, `export` and `bench DIR`: sample directories in, a version out, and back."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
import torch

from dedup.hashes import identify
from extraction.sources.catalog import read_catalog
from flows.cli.samples.export import best_pass, export_sample
from flows.find_sample import sample_in
from flows.import_samples import MEMORY_MB, TIMEOUT_S, import_samples, import_text
from storage.errors import PassNetError
from storage.graph.record import Graph, Op, Ref
from storage.layout.errors import LayoutError
from storage.layout.export import write_sample
from storage.records import Input, Output, Sample, Variant, dtype_name
from storage.schema import RESULTS
from storage.versions.samples import load_samples
from storage.versions.store import Store
from tests.flows.commands import passnet_here, passnet_json
from tests.support.kept_pool import kept_pool
from tests.support.warm_forks import WarmForks

NAMES = "sorted_output_pass_rule_names.json"
PASSES = Path(__file__).parents[2] / "support" / "passes"


def _variant(category: str, names: list[str], *sizes: int, dtype: torch.dtype = torch.float32) -> Variant:
    ops = tuple(Op("function", f"torch.{name}", (Ref(n),), {}) for n, name in enumerate(names))
    shape = tuple(sizes)
    stride = torch.empty(shape, device="meta").stride()
    each = Input("in_0", "input", dtype_name(dtype), shape, stride, mean=0.0, std=1.0)
    outputs = (Output(each.dtype, shape, stride),)
    return identify(Variant(category, Graph(1, ops, (Ref(len(ops)),)), (each,), outputs))


def _sample(category: str, names: list[str]) -> Sample:
    variants = [_variant(category, names, 4, n, dtype=d) for n in (3, 5) for d in (torch.float32, torch.float16)]
    variants.sort(key=lambda variant: variant.variant_hash)
    family = variants[0].family_hash
    return Sample(f"{category}-{family[:12]}", family, category, "train", tuple(variants))


SAMPLES = [
    _sample("fusible", ["sigmoid", "tanh"]),
    _sample("typical", ["abs", "exp", "neg", "sin"]),
    _sample("sole_op", ["relu"]),
]


def _write(root: Path) -> Path:
    for sample in SAMPLES:
        (root / sample.category).mkdir(parents=True)
        write_sample(sample, root / sample.category / sample.sample)
    return root


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return _write(tmp_path / "tree")


@pytest.fixture(scope="module", autouse=True)
def import_pool(warm_forks: WarmForks) -> Iterator[None]:
    """The workers of all imports here that have one worker and the limits of an import by default."""
    with kept_pool(warm_forks, workers=1, timeout_s=TIMEOUT_S, memory_mb=MEMORY_MB):
        yield


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, dict]:
    """A tree, the data directory that it was imported to, and the summary. Do not change them."""
    root = tmp_path_factory.mktemp("imported")
    tree = _write(root / "tree")
    return tree, root / "data", import_samples(tree, root / "data", split="eval", workers=1)


def _damage(tree: Path) -> None:
    """A graph each with a loop, an unknown dtype and a shape that its op refuses; a list of nothing; a whole model."""
    loop, dtype, shape, _ = sorted(tree.rglob("model.py"))[:4]
    loop.write_text(loop.read_text().replace("return", "for i in x: pass\n        return"))
    meta = dtype.with_name("weight_meta.py")
    meta.write_text(meta.read_text().replace("torch.float", "torch.save"))
    shape.write_text(shape.read_text().replace("return", "x = in_0.view(7)\n        return"))
    (tree / "bad").mkdir()
    (tree / "bad" / "graph_list.txt").write_text("../..\n")
    (tree / "whole").mkdir()
    (tree / "whole" / "model.py").write_text(loop.read_text())


def test_a_tree_becomes_a_version_with_the_same_variants(imported: tuple[Path, Path, dict]) -> None:
    tree, data, done = imported
    assert (done["directories"], done["graphs"], done["failures"]) == (3, 12, [])
    assert done["samples"] == {"eval": 3}
    version = Store(data).open(done["version"])
    assert version.manifest.kind == "import"
    read = {sample.sample: sample for sample in load_samples(version, "eval")}
    assert read.keys() == {sample.sample for sample in SAMPLES}
    for sample in SAMPLES:
        for one, other in zip(sample.variants, read[sample.sample].variants, strict=True):
            assert replace(other, sources=()) == one
            assert other.sources[0].model.startswith(f"dir:{sample.category}/{sample.sample}/")
    again = passnet_json("import", tree, "--data", data, "--workers", 1)  # what was in eval stays there
    assert (again["version"], again["created"]) == (done["version"], False)
    assert "Nothing new" in import_text(again)


def test_what_is_bad_is_counted_by_cause_and_costs_nothing_else(tree: Path, tmp_path: Path) -> None:
    _damage(tree)
    done = import_samples(tree, tmp_path / "data", split="train", workers=1)
    assert done["graphs"] == 9 and done["samples"] == {"train": 3}
    causes = {"construct": 1, "metadata": 1, "invalid": 1, "unreadable file": 1, "whole model": 1}
    assert done["failed"] == causes
    assert {f["cause"] for f in done["failures"]} == causes.keys()
    assert all(str(tmp_path) not in json.dumps(f) for f in done["failures"])
    (loop,) = [f["message"] for f in done["failures"] if f["cause"] == "construct"]
    assert loop.endswith("a loop is not straight-line code") and "model.py:8: " in loop
    models = Store(tmp_path / "data").latest().table("models").to_pylist()
    assert [m["status"] for m in models] == ["failed", "traced", "traced", "traced"]
    assert sum(len(m["graph_breaks"]) for m in models) == 4
    assert "left out, construct: 1" in import_text(done)


def test_what_a_killed_import_left_is_removed(tree: Path, tmp_path: Path) -> None:
    left = tmp_path / "data" / ".imports" / ".staging" / "dead" / "version"
    left.mkdir(parents=True)
    (left / "rows.parquet").write_bytes(b"x" * 1000)
    import_samples(tree, tmp_path / "data", workers=1)
    assert not [path for path in (tmp_path / "data" / ".imports").rglob("*") if path.name != ".lock" and path.is_file()]


def test_nothing_to_import_is_a_clear_error(tree: Path, tmp_path: Path, warm_forks: WarmForks) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(PassNetError, match="has no sample directory"):
        import_samples(tmp_path / "empty", tmp_path / "data")
    with pytest.raises(PassNetError, match="no such directory"):
        import_samples(tmp_path / "nowhere", tmp_path / "data")
    hangs = pytest.raises(PassNetError, match=r"can be imported; fusible/fusible-\w+: timeout: stopped after 0")
    with hangs, kept_pool(warm_forks, workers=1, timeout_s=0.001, memory_mb=MEMORY_MB):
        import_samples(tree, tmp_path / "data", workers=1, timeout_s=0.001)  # as one that hangs, together and alone
    for path in tree.rglob("model.py"):
        path.write_text("import os\n")
    with pytest.raises(PassNetError, match=r"no graph below .* can be imported; .*: construct: "):
        import_samples(tree, tmp_path / "data", workers=1)
    assert Store(tmp_path / "data").versions() == []


def test_export_and_bench_of_a_directory(imported: tuple[Path, Path, dict], tmp_path: Path) -> None:
    (_, data, _), out = imported, tmp_path / "out"
    sample = SAMPLES[0]
    exported = passnet_json("export", sample.sample[:12], out, "--data", data)
    assert (exported["sample"], exported["variants"], exported["pass_files"]) == (sample.sample, 4, [])
    assert [v.variant_hash for v in sample_in(out).variants] == [v.variant_hash for v in sample.variants]
    with pytest.raises(PassNetError, match="choose a directory that is not there yet"):
        export_sample(sample.sample, out, data)
    (first, *_) = (out / "graph_list.txt").read_text().splitlines()
    (out / "graph_list.txt").write_text(f"{first}\n")
    shutil.copytree(PASSES / "no_match", out / "pass_dir", dirs_exist_ok=True)
    done = passnet_here("bench", out, "--device", "cpu", "--json")
    benched = json.loads(done.stdout)
    assert done.returncode == 3  # nothing matched
    assert benched["compiler"] == "pass" and {v["status"] for v in benched["variants"]} == {"no_match"}
    assert [v["id"] for v in benched["variants"]] == [sample.variants[0].variant_hash]
    with pytest.raises(PassNetError, match="is no sample directory"):
        sample_in(tmp_path)


def test_a_bad_graph_stops_a_benchmark(tree: Path) -> None:
    (sample, *_) = (tree / "fusible").iterdir()
    next(sample.rglob("weight_meta.py")).unlink()
    with pytest.raises(LayoutError, match=r"weight_meta\.py: there is no such file"):
        sample_in(sample)


def test_a_directory_is_a_catalogue(tree: Path) -> None:
    entries = read_catalog(str(tree))
    assert len(entries) == 12 and {entry.source for entry in entries} == {"dir"}
    assert len(read_catalog(str(tree), limit=2)) == 2


def test_the_best_pass_of_a_sample_goes_with_it(imported: tuple[Path, Path, dict], tmp_path: Path) -> None:
    store = Store(shutil.copytree(imported[1], tmp_path / "data"))
    name = SAMPLES[0].sample

    def row(author: str, speedup: float, **changes: object) -> dict:
        files = [{"path": NAMES, "content": '["a"]'}, {"path": "a.py", "content": author}]
        plain = {"run": author, "sample": name, "author": author, "attempt": 1, "compiler": "pass", "status": "ok"}
        plain |= {"t_min": -5, "speedup_e2e": speedup, "times_meaningful": True, "pass_files": files}
        return {**plain, **changes}

    rows = [row("slow", 1.1), row("fast", 2.0), row("fast", 3.0), row("wrong", 9.0), row("wrong", 9.0, status="wrong")]
    rows += [row("cpu", 8.0, times_meaningful=False), row("none", 7.0, compiler="eager"), row("loose", 8.5, t_min=-4)]
    rows += [row("elsewhere", 6.0, sample="x", times_meaningful=False)]
    results = {("results", "all"): iter(pa.Table.from_pylist(rows, RESULTS).to_batches())}
    keep = ["models", "samples", "fusible", "typical", "sole_op"]
    version, _ = store.publish(results, kind="evaluate", parent=store.latest(), keep=keep, parameters={}, summary={})
    assert best_pass(version, name) == ("fast", {NAMES: '["a"]', "a.py": "fast"})
    assert best_pass(version, name, untimed=True) == best_pass(version, name), "untimed ones count as eager's speed"
    assert [best_pass(version, "x", untimed)[0] for untimed in (False, True)] == [None, "elsewhere"]
    assert best_pass(version, SAMPLES[1].sample) == (None, {})

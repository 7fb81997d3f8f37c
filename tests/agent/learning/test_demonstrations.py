"""Demonstrations: nothing of an evaluation sample, nothing wrong, no graph twice; `load_dataset` reads them."""

import json
from collections import Counter
from dataclasses import replace

import pyarrow as pa
import pytest
from datasets import load_dataset

from agent.learning.answers import files_of
from agent.learning.demonstrations import Solved, demonstrations, split_of
from agent.learning.leaks import HeldOut
from agent.learning.rationale import rationale
from dedup.hashes import identify
from flows.cli.demonstrations import export_demonstrations
from passbench.contract import NAMES_FILE
from storage.errors import PassNetError
from storage.records import Sample
from storage.schema import CONFIGS, RESULTS
from storage.versions.store import Store
from tests.passbench.samples import spec, variant
from tests.support.scored import samples, scored

FILES = {"fuse.py": "import torch\n\n\n@triton.jit\ndef k(x):\n    pass\n\n\nk_kernel[1]\n", NAMES_FILE: '["fuse"]\n'}


def training(function, *inputs, name="fusible-new") -> Sample:
    one = identify(variant(function, *inputs))
    return Sample(name, one.family_hash, "fusible", "train", (one,))


def mul_add(x, y):
    return (x * y + 0.5,)


def mul_add_other_constant(x, y):
    return (x * y + 0.25,)


def solved(sample: Sample, **changes) -> Solved:
    row = {name: None for name in RESULTS.names} | {
        "run": "r", "author": "readable", "compiler": "pass", "status": "ok", "t_min": -6, "speedup_e2e": 2.0,
        "speedup_device": 3.0, "times_meaningful": True, "device": "GPU", "libraries": {"torch": "2"},
    }  # fmt: skip
    rows = [row | {"variant_hash": v.variant_hash, "sample": sample.sample} | changes for v in sample.variants]
    return Solved(sample, FILES, rows)


SPECS = spec("x", 4, 8), spec("y", 4, 8)


NOTHING = HeldOut.of(())


def kept(candidates, held=NOTHING, **options):
    causes: Counter[str] = Counter()
    return list(demonstrations(candidates, held, causes, **options)), dict(causes)


def test_a_row_has_what_a_model_is_shown_and_what_it_should_say():
    sample = training(mul_add, *SPECS)
    [(split, row)], causes = kept([solved(sample)])
    assert causes == {} and split == split_of(sample.family_hash)
    assert files_of(row["completion"][0]["content"]) == FILES
    assert "in_0 * in_1" in row["task"] and row["task"] in row["prompt"][1]["content"]
    assert row["rationale"].startswith("Eager runs 2 ops in 2 launches. The pass has 1 kernel")
    calls = [c["function"] for m in row["messages"] for c in m["tool_calls"] or ()]
    assert [c["name"] for c in calls] == ["write_file", "write_file", "submit"]
    assert json.loads(calls[0]["arguments"]) == {"name": "fuse.py", "content": FILES["fuse.py"]}
    assert (row["level"], row["speedup_e2e"], row["device"]) == (-6, pytest.approx(2.0), "GPU")


@pytest.mark.parametrize("body", ["tmp_0 = x * y\n    tmp_1 = tmp_0 + 0.5\n    return tmp_1", "return x * y + 0.5"])
def test_what_is_saved_is_told_of_a_pass_that_replaces_all(body):
    kernel = "@triton.jit\ndef kernel(x):\n    pass\n\n\nLaunch(kernel)\n"
    source = f"import triton\n\n\ndef pattern(x, y):\n    {body}\n\n\n{kernel}"
    said = rationale(training(mul_add, *SPECS).variants[0], {"fuse.py": source})
    assert said.startswith(
        "Eager runs 2 ops in 2 launches; 1 kernel does the same, one pass over the elements. 256 bytes"
    )


def test_nothing_near_an_evaluation_sample():
    sample = training(mul_add, *SPECS)
    other = training(mul_add_other_constant, spec("x", 2, 2), spec("y", 2, 2), name="fusible-eval")
    held = HeldOut.of([replace(other, split="eval")])
    assert kept([solved(sample)], held) == ([], {"the family of an evaluation sample": 1})
    assert kept([solved(replace(sample, split="eval"))]) == ([], {"an evaluation sample": 1})
    unlike = replace(held, families=frozenset())
    assert kept([solved(sample)], unlike) == ([], {"the op sequence of an evaluation sample": 1})
    assert kept([solved(sample)], replace(unlike, sequences=frozenset())) == (
        [],
        {"the text of an evaluation sample": 1},
    )


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"status": "rejected"}, "refused"),
        ({"status": "wrong", "t_min": None}, "not correct at t = -5"),
        ({"t_min": -4}, "not correct at t = -5"),
        ({"times_meaningful": False}, "not timed on a GPU"),
        ({"speedup_e2e": 0.9}, "slower than eager"),
        ({"compiler": "eager"}, "no pass"),
        ({"variant_hash": "another"}, "not all variants were checked"),
    ],
)
def test_what_is_not_worth_learning_is_left_out(changes, cause):
    assert kept([solved(training(mul_add, *SPECS), **changes)]) == ([], {cause: 1})


def test_no_graph_twice_and_no_family_in_two_splits():
    sample = training(mul_add, *SPECS)
    rows, causes = kept([solved(sample), solved(replace(sample, sample="fusible-again"))])
    assert len(rows) == 1 and causes == {"a graph that has a row": 1}
    of_families = Counter(split_of(f"{n}") for n in range(4000))
    assert 100 < of_families["validation"] < 300


def test_a_dataset_from_results(tmp_path):
    store = scored(tmp_path / "data")
    with pytest.raises(PassNetError, match="an evaluation sample"):
        export_demonstrations(tmp_path / "none", store.root, unmeasured=True)
    data = of_training_samples(tmp_path / "training")
    done = export_demonstrations(tmp_path / "out", data)
    rows = load_dataset(str(tmp_path / "out"), cache_dir=str(tmp_path / "cache"))
    assert {split: len(rows[split]) for split in rows} == done["splits"] and sum(done["splits"].values()) == 1
    assert done["left_out"] == {} and "Apache" in (tmp_path / "out" / "README.md").read_text()
    with pytest.raises(PassNetError, match="exists already"):
        export_demonstrations(tmp_path / "out", data)


def of_training_samples(place):
    """A data directory with one training sample and a right pass for it."""
    sample = training(mul_add, *SPECS, name="fusible-train")
    rows = [
        dict(row) | {"attempt": 1, "category": "fusible", "model": "", "pass_files": FILE_ROWS}
        for row in solved(sample).rows
    ]
    tables = {
        ("fusible", "train"): [v.to_row() for v in sample.variants],
        ("samples", "train"): [sample.to_row()],
        ("fusible", "eval"): [v.to_row() for s in samples() if s.category == "fusible" for v in s.variants],
        ("samples", "eval"): [s.to_row() for s in samples() if s.category == "fusible"],
        ("results", "all"): rows,
    }
    typed = {key: pa.Table.from_pylist(found, CONFIGS[key[0]]) for key, found in tables.items()}
    Store(place).publish(typed, kind="build", parent=None, parameters={}, summary={})
    return place


FILE_ROWS = [{"path": path, "content": text} for path, text in FILES.items()]

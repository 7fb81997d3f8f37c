"""What benchmarks/passbench/kept_passes loads, times and does."""

from dataclasses import replace

import pytest
import torch

from benchmarks.passbench.kept_passes.__main__ import Cast, in_forks, table_of
from benchmarks.passbench.kept_passes.both_ways import line_of, summary
from benchmarks.passbench.kept_passes.both_ways import measured as measured_both_ways
from benchmarks.passbench.kept_passes.loaded_calls import KeptPass, Took, eager, load, measured, repeating_eager
from benchmarks.passbench.kept_passes.things import THINGS
from passbench.launch import Launch, LaunchPlan
from passbench.settings import Settings
from passbench.shared_bench import SharedBench
from tests.passbench.samples import PASSES, add_relu_sample

ON_CPU = [thing for thing in THINGS if not thing.needs_gpu]


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    one = KeptPass("fusible-1", PASSES / "add_relu", add_relu_sample((3, 40)))
    return repeating_eager(tmp_path_factory.mktemp("kept"), one)


def test_forks_may_use_a_gpu_after_a_pass_was_written(torch_forks, tmp_path):
    """torch refuses CUDA to the forks of a process that has asked how many GPUs there are. Needs torch with CUDA's code
    to find it, and no GPU."""
    program = f"""
import os
from pathlib import Path
import torch
from benchmarks.passbench.kept_passes import __main__, both_ways
from benchmarks.passbench.kept_passes.loaded_calls import KeptPass, repeating_eager
from tests.passbench.samples import PASSES, add_relu_sample
made = repeating_eager(Path({str(tmp_path)!r}), KeptPass("one", PASSES / "add_relu", add_relu_sample((3, 40))))
if os.fork() == 0:
    os._exit(torch.cuda._is_in_bad_fork())
assert os.wait()[1] == 0, "forks may not use a GPU"
print(sorted(file.name for file in made.directory.iterdir()))
"""
    done = torch_forks(program)
    assert done.returncode == 0, done.stderr
    assert "repeat_0.py" in done.stdout


def test_a_pass_is_loaded_and_its_calls_are_timed(kept):
    loaded = load(kept, torch.device("cpu"))
    by_eager = eager(kept, torch.device("cpu"))
    (found,), (expected,) = loaded.call(*loaded.rows[0]), by_eager.call(*by_eager.rows[0])
    assert torch.equal(found, expected) and len(loaded.inserted) == 1
    ((host, rest),) = measured([loaded], torch.device("cpu"))
    assert 0 < rest < host and not kept.captures and kept.elements == 240


@pytest.mark.parametrize("thing", ON_CPU, ids=lambda thing: thing.name)
def test_every_thing_is_done_in_a_fork(thing, kept):
    calls = Launch.__call__, LaunchPlan.__call__
    (answer,) = in_forks([(thing, Cast([kept], [kept]))], "cpu", 30)
    assert isinstance(answer, dict), answer
    assert answer["of"] == ["eager-as-fusible-1", "eager-as-fusible-1 by eager"]
    assert answer["thing"] in "\n".join(table_of([answer]))
    assert calls == (Launch.__call__, LaunchPlan.__call__)


def test_what_a_thing_adds_is_the_least_of_two_measurements():
    row = {"thing": "a graph", "of": ["one"], "before": [Took(10, 4)], "after": [Took(12, 7)], "later": [Took(13, 6)]}
    assert table_of([row])[-1].split() == ["a", "graph", "+2.00", "+2.00"]
    assert table_of([row])[-2].split()[-2:] == ["10.00", "4.00"]


def test_what_a_fork_raises_is_told():
    (answer,) = in_forks([(ON_CPU[0], Cast([], []))], "cpu", 30)
    assert isinstance(answer, str) and "IndexError" in answer


def test_passes_are_timed_by_both_ways(kept):
    settings = Settings(draws=1, calls=2, batch=2, warmup=2, repeats=0, double=False)
    one = kept._replace(sample=replace(kept.sample, category="sole_op"))
    with SharedBench("cpu", settings) as bench:
        (both,) = found = list(measured_both_ways(bench, [one, kept], "sole_op", (), 1, 60))
    assert [result.protocol for result in both] == ["shared", "passnet", "shared"]
    assert {result.status for result in both} == {"ok"} and both.shared.sample in line_of(both)
    assert [(row["author"], row["run"]) for row in both.rows()] == [
        ("distill", "shared-distill"),
        ("distill", "passnet-distill"),
        ("eager", "shared-eager"),
    ]
    assert summary(found).startswith("e2e: shared over whole ") and summary(found).endswith(", 1 passes")

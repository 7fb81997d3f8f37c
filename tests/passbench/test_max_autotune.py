"""What max-autotune compiles first, what is kept of it for later calls, and recorded passes as an author's answers."""

import os
import time
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from agent.ahead.author_pool import Answers
from benchmarks.passbench.baselines_table import Sitting, _one_variant, only_tune
from benchmarks.passbench.max_autotune import AFTERWARDS, KeptTuning, cheapest_first
from benchmarks.passbench.recorded_passes import keep_answers
from passbench.contract import read_pass_dir
from passbench.shared_bench import SharedBench
from storage.errors import PassNetError
from tests.passbench.samples import PASSES, add_relu_sample, sample, spec, variant


def named(name: str, category: str, function) -> object:
    return replace(sample(variant(function, spec("x", 8, 8), spec("y", 8, 8))), sample=name, category=category)


def test_the_cheapest_of_each_category_come_in_turn():
    given = [
        named("product", "fusible", lambda x, y: (torch.matmul(x, y),)),
        named("three", "fusible", lambda x, y: ((x + y).relu() * 2,)),
        named("one", "fusible", lambda x, y: (x + y,)),
        named("linear", "typical", lambda x, y: (torch.nn.functional.linear(x, y),)),
    ]
    assert [one.sample for one in cheapest_first(given)] == ["one", "linear", "three", "product"]


def write(place: Path, size: int) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(os.urandom(size))


def test_a_later_call_has_what_an_earlier_one_compiled(tmp_path):
    cache, variants = tmp_path / "box_1" / "inductor", add_relu_sample((3, 40), (8, 5)).variants
    sizes = {"fxgraph/ab/cd": 3000, "ab/kernel.py": 200, "ab/kernel.best_config": 10, "cache/times": 20}
    for name, size in (sizes | {"locks/one.lock": 0, "ab/kernel.so": 50, "tmp1/cut_off": 5}).items():
        write(cache / name, size)
    named = f"\x00{cache}/ab/kernel.py {cache.parent}/triton\x00".encode()
    (cache / "fxgraph/ab/cd").write_bytes(named.ljust(3000, b"\xff"))
    kept = KeptTuning(tmp_path / "tuned")
    kept.unpack(tmp_path / "none/inductor")
    assert not kept.variants and not (tmp_path / "none").exists()
    kept.keep(cache, variants[:1])
    kept.keep(cache, variants[1:])
    later = KeptTuning(tmp_path / "tuned")
    assert later.variants == {"v0", "v1"}
    again = tmp_path / "box_2" / "inductor"
    later.unpack(again)
    found = [file for file in again.rglob("*") if file.is_file()]
    assert {str(file.relative_to(again)): file.stat().st_size for file in found} == sizes
    assert (again / "fxgraph/ab/cd").read_bytes() == named.replace(b"box_1", b"box_2").ljust(3000, b"\xff")
    with pytest.raises(PassNetError, match="one name is longer"):
        later.unpack(tmp_path / "later_box" / "inductor")
    assert later.keep(cache, (), most_bytes=2000) < 2000, "the largest file has no room"


def test_a_sitting_of_tuning_alone_says_what_is_compiled(tmp_path, capsys):
    """Its budget includes what comes after the last compilation that begins: here there is no time for any."""
    given = Namespace(out=tmp_path, tune=600.0, budget=AFTERWARDS, processes=1, authors=0)
    sitting = Sitting(given, [add_relu_sample((3, 40))], Answers(tmp_path), Answers(tmp_path), time.monotonic())
    with SharedBench("cpu") as bench:
        only_tune(sitting, bench)
    assert "compiled 0 of 1" in capsys.readouterr().out


def test_recorded_passes_are_answers_where_there_are_none(tmp_path):
    files = [{"path": path, "content": text} for path, text in read_pass_dir(PASSES / "add_relu").files.items()]
    row = {"sample": "s0", "author": "distill", "compiler": "pass", "pass_files": files, "reason": ""}
    left = row | {"sample": "s1", "compiler": "eager", "reason": "noisy; left to eager: nothing to fuse"}
    rows = [row, row | {"author": "other", "compiler": "eager"}, left, row | {"sample": "s3"}]
    samples, answers = [replace(add_relu_sample((3, 40)), sample=f"s{n}") for n in range(4)], Answers(tmp_path)
    keep_answers(rows[:3], "distill", samples[:3], answers)
    assert read_pass_dir(answers.of(samples[0]).pass_dir) == read_pass_dir(PASSES / "add_relu")
    assert (answers.of(samples[1]).compiler, answers.of(samples[1]).reason) == ("eager", "nothing to fuse")
    assert answers.of(samples[2]) is None
    keep_answers([left | {"sample": "s0"}, *rows], "distill", samples, answers)
    assert answers.of(samples[0]).compiler == answers.of(samples[3]).compiler == "pass", "no answer is replaced"


def test_a_recorded_pass_is_measured_on_the_variant_that_it_was_written_for():
    two = replace(add_relu_sample((3, 40), (8, 5)), sample="s")
    halves = tuple(replace(x, dtype="float16") for x in two.variants[1].inputs)
    two = replace(two, variants=(two.variants[0], replace(two.variants[1], inputs=halves)))
    chosen = [_one_variant(two, number, recorded).variants for number in (0, 1) for recorded in ({}, {"s": "v1"})]
    assert [variant.variant_hash for (variant,) in chosen] == ["v0", "v1", "v1", "v1"]

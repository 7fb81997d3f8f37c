"""What max-autotune compiles first, and recorded passes as an author's answers."""

from dataclasses import replace

import torch

from agent.ahead.author_pool import Answers
from benchmarks.passbench.baselines_table import _one_variant
from benchmarks.passbench.max_autotune import cheapest_first, dearest_first
from benchmarks.passbench.recorded_passes import keep_answers
from passbench.contract import read_pass_dir
from tests.passbench.samples import PASSES, add_relu_sample, sample, spec, variant


def named(name: str, category: str, function) -> object:
    return replace(sample(variant(function, spec("x", 8, 8), spec("y", 8, 8))), sample=name, category=category)


def test_the_cheapest_of_each_category_come_in_turn_or_the_dearest_of_all():
    given = [
        named("product", "fusible", lambda x, y: (torch.matmul(x, y),)),
        named("three", "fusible", lambda x, y: ((x + y).relu() * 2,)),
        named("one", "fusible", lambda x, y: (x + y,)),
        named("linear", "typical", lambda x, y: (torch.nn.functional.linear(x, y),)),
    ]
    assert [one.sample for one in cheapest_first(given)] == ["one", "linear", "three", "product"]
    assert [one.sample for one in dearest_first(given)] == ["product", "linear", "three", "one"]


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
    keep_answers([row | {"sample": "s2", "pass_files": []}], "distill", samples, answers)
    assert answers.of(samples[2]) is None, "its pass is not on record"
    keep_answers([left | {"sample": "s0"}, *rows], "distill", samples, answers)
    assert answers.of(samples[0]).compiler == answers.of(samples[3]).compiler == "pass", "no answer is replaced"


def test_a_recorded_pass_is_measured_on_the_variant_that_it_was_written_for():
    two = replace(add_relu_sample((3, 40), (8, 5)), sample="s")
    halves = tuple(replace(x, dtype="float16") for x in two.variants[1].inputs)
    two = replace(two, variants=(two.variants[0], replace(two.variants[1], inputs=halves)))
    chosen = [_one_variant(two, number, recorded).variants for number in (0, 1) for recorded in ({}, {"s": "v1"})]
    assert [variant.variant_hash for (variant,) in chosen] == ["v0", "v1", "v1", "v1"]

"""Scripted models that solve a task step by step, and that cheat, through PassBench itself."""

import json
from dataclasses import replace

import pytest

from agent.llm import example
from agent.llm.feedback import results_text
from agent.llm.state import Exit
from passbench.bench import Bench
from passbench.contract import NAMES_FILE, write_pass_dir
from passbench.policy.check import check_dir
from passbench.settings import Settings
from storage.graph.as_fx import from_fx
from storage.graph.render import render
from tests.agent.llm.llm_support import SAMPLE, SUBMIT, attempt, in_turn, outputs, text_of, writes
from tests.agent.support import in_dtype, sample, tensor, variant
from tests.passbench.samples import fx_graph
from tests.support.llm_server import Reply

CHEAT = text_of("add_relu").replace("out = torch.empty_like(x)", "return x * float(y.sum())\n    out = x")


@pytest.fixture(scope="module")
def measure():
    """PassBench on the CPU, as a flow lends it."""
    with Bench("cpu", Settings(draws=2, calls=2, warmup=0, seed=5)) as bench:
        yield lambda one, passes: list(bench.run(one, "pass", passes))


def test_the_prompts_example_is_a_correct_pass(measure, tmp_path):
    write_pass_dir(example.FILES, tmp_path / "pass")
    assert check_dir(tmp_path / "pass") == []
    inputs = (tensor(6, 50), tensor(6, 50))
    one = sample(*(variant(example.task, *in_dtype(inputs, d)) for d in ("float32", "float16", "bfloat16")))
    assert render(from_fx(fx_graph(example.task))) == example.SOURCE
    for result in measure(one, tmp_path / "pass"):
        assert (result.status, result.reason) == ("ok", "")
        assert result.t_min <= -5


def test_a_score_is_told_where_a_gpu_timed_it(measure, tmp_path):
    write_pass_dir({"fuse.py": text_of("add_relu"), NAMES_FILE: '["fuse"]'}, tmp_path / "pass")
    results = measure(SAMPLE, tmp_path / "pass")
    assert "2 of 2 variants ok, no score without a GPU (the best so far is evaluation 3)." in results_text(
        results, 0.007, 0.008, 3
    )
    on_gpu = [replace(one, times_meaningful=True) for one in results]
    assert "ok, AS 1.207 (the best so far is AS 1.500 of evaluation 3)." in results_text(on_gpu, 1.207, 1.5, 3)


def test_a_model_that_learns_from_what_the_tools_say(measure, tmp_path):
    right = text_of("add_relu")
    model = in_turn(
        Reply([("read_task", {"variant": 1})]),
        writes(text_of("no_match")),
        writes(text_of("wrong")),
        writes(CHEAT),
        Reply([("check", {})]),
        writes(right),
        Reply([("evaluate", {})]),
        Reply([("edit_file", {"name": "fuse.py", "old": "tl.maximum(total, 0.0)", "new": "total"})]),
        SUBMIT,
    )
    state = attempt(model, tmp_path / "pass", measure)
    said = outputs(state)
    assert state.exit is Exit.SUBMITTED and state.steps == 9 and state.tool_calls == 17
    assert "in_0: input float32, shape [5, 7]" in said[0]
    assert "0 of 2 variants ok" in said[3] and "expected operator.mul, found operator.add" in said[3]
    assert "wrong" in said[6] and "expected" in said[6] and "output 0[" in said[6]
    assert "rejected" in said[9] and "fuse.py:" in said[10]
    assert "2 of 2 variants ok, no score without a GPU (" in said[13]
    assert said[14].startswith("Nothing has changed")
    assert len(state.scores) == 5 and state.rejections == 1
    assert all(len(text) < 3000 for text in said)
    written = [text_of("no_match"), text_of("wrong"), CHEAT, right, state.files["fuse.py"]]
    assert state.files["fuse.py"] == right.replace("tl.maximum(total, 0.0)", "total")
    best = state.scores.index(state.best)  # which one it is depends on how slow the interpreter is
    assert state.best == max(state.scores)
    assert (tmp_path / "pass" / "fuse.py").read_text() == written[best], "the best pass counts, not the last"
    assert json.loads((tmp_path / "pass" / "sorted_output_pass_rule_names.json").read_text()) == ["fuse"]

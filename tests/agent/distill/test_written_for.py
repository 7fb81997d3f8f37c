"""Inputs that a pass was not written for: it makes the very calls that eager makes, however it was written."""

import re
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from agent.distill.lowered_regions import Sketches
from agent.distill.rewrites.sample_graphs import float_dtypes
from agent.distill.rounding import Rounding
from agent.distill.source.style import Style
from agent.distill.static import Distill
from agent.distill.ways import Ways
from passbench.policy.check import check_dir
from tests.agent.support import ANY, in_dtype, sample, tensor, variant

SKETCHES = Sketches()
"""What has been lowered is known to all tests of this file."""


def _convolutions(x, w, v, scale):
    first = F.relu(F.conv2d(x, w, None, (1, 1), (1, 1), (1, 1), 1) * scale, True)
    return F.conv2d(first, v, None, (1, 1), (0, 0), (1, 1), 1) + x


def _biased(x, w, b, y):
    z = F.conv2d(x, w, b, 1, 1)
    return F.relu(z) + y, z * 0.5


def _linears(x, w, b, v, c):
    return F.linear(torch.relu(F.linear(x, w, b)) + 1.0, v, c) * 2.0


def _backward(g, x, w):
    made = torch.ops.aten.convolution_backward.default(
        g, x, w, [0], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True, True, False]
    )
    beside = torch.ops.aten.convolution_backward.default(
        x, g, w, [0], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True, False, False]
    )
    return made[0] * 2.0, made[1] * 2.0, beside[0] * 2.0


def _summed(x, w):
    return torch.relu(torch.matmul(x, w) * 2.0 + 1.0).sum(-1)


def _few_classes(x, w, b):
    return torch.tanh(F.linear(x, w, b))


def _of_convolutions(n, size, dtype):
    return in_dtype((tensor(n, 8, size, size), tensor(8, 8, 3, 3), tensor(8, 8, 1, 1), tensor(1)), dtype)


def _of_biased(n, size, dtype):
    return in_dtype((tensor(n, 4, size, size), tensor(8, 4, 3, 3), tensor(8), tensor(n, 8, size, size)), dtype)


def _of_linears(n, size, dtype):
    return in_dtype((tensor(n, 4), tensor(size, 4), tensor(size), tensor(5, size), tensor(5)), dtype)


def _of_few(n, size, dtype):
    return in_dtype((tensor(n, 3, size), tensor(4, size), tensor(4)), dtype)


def _of_backward(n, size, dtype):
    return in_dtype((tensor(n, 64, size, size), tensor(n, 64, size, size), tensor(64, 64, 3, 3)), dtype)


def _of_summed(n, size, dtype):
    return in_dtype((tensor(n, size), tensor(size, 64)), dtype)


@pytest.mark.parametrize(
    ("function", "inputs", "dtype", "style", "told"),
    [
        (_convolutions, _of_convolutions, "bfloat16", Style(captured=True, channels_last=True), "channels_last"),
        (_convolutions, _of_convolutions, "bfloat16", Style(channels_last=True), "channels_last"),
        (_biased, _of_biased, "float32", Style(), "_behind("),
        (_biased, _of_biased, "float32", Style(captured=True), "_behind("),
        (_linears, _of_linears, "float32", Style(split_linears=True), "_behind("),
        (_linears, _of_linears, "float32", Style(captured=True, split_linears=True), "_behind("),
        (_few_classes, _of_few, "float32", Style(products=True), "linear, tanh in one kernel"),
        (_backward, _of_backward, "float32", Style(captured=True, branches=True), "branch("),
        (_summed, _of_summed, "float32", Style(captured=True, compiled="strict"), "TorchInductor"),
        (_summed, _of_summed, "float32", Style(compiled="strict"), "TorchInductor"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_other_inputs_get_eagers_calls(function, inputs, dtype, style, told, tmp_path, interpreter):
    known = variant(function, *inputs(2, 6, dtype))
    ways = replace(style.ways, biases=True)
    levels = dict.fromkeys(float_dtypes([known]).values(), Rounding.ANY if style.products else Rounding.EXACT)
    task = Distill(sketches=SKETCHES).task(sample(known), ANY, levels, whole=True, ways=ways)
    patterns = () if style.compiled or style.branches else tuple(task.gains())
    assert task.write(patterns, style, tmp_path / "pass").compiler == "pass"
    assert check_dir(tmp_path / "pass") == []
    assert told in "".join(path.read_text() for path in (tmp_path / "pass").glob("*.py"))
    assert interpreter.problems(tmp_path / "pass", known) == []
    for count, size, other in ((3, 6, dtype), (2, 7, dtype), (2, 6, "float16"), (2, 6, "float64"), (3, 5, "bfloat16")):
        one = variant(function, *inputs(count, size, other))
        assert interpreter.other_calls(tmp_path / "pass", one) == []


def test_planned_inputs_are_asked_for_once(tmp_path):
    """In a CUDA graph the question is part of the recorded function: a replay asks nothing."""
    known = variant(_convolutions, *_of_convolutions(2, 6, "bfloat16"))
    task = Distill(sketches=SKETCHES).task(sample(known), ANY, whole=True, ways=Ways(channels_last=True))
    task.write((), Style(captured=True, channels_last=True), tmp_path / "pass")
    source = (tmp_path / "pass" / "whole_graph_0.py").read_text()
    assert re.search(r"def steps\(.*\):\n    if plan_for\(WRITTEN_FOR, .*\) is None:\n        return library\(", source)
    assert re.search(r"def whole_\w+\(.*\):\n    return captured\(steps, .*\)\n", source)

"""Copies of a CUDA graph's outputs, and what asks for copies in a graph, which need no GPU to be looked at."""

import ast
import inspect

import pytest
import torch

from passbench.launch import recording
from passbench.launch.graph_copies import GraphCopies
from passbench.models import replayed
from passbench.models.replayed import _copying


def test_copies_have_the_strides_of_what_they_copy():
    x = torch.randn(4, 6)
    outputs = [x * 2, (x * 3).t(), (x * 4)[:, ::2], torch.randn(6).expand(4, 6)]
    for a, b in zip(_copying(outputs)(outputs), outputs, strict=True):
        assert torch.equal(a, b) and a.stride() == b.stride() and a.data_ptr() != b.data_ptr()


def test_outputs_that_share_memory_share_that_of_the_copy():
    y = torch.randn(8)
    outputs = [y, y[1:], torch.ones(2), y.view(2, 4)]
    copies = _copying(outputs)(outputs)
    assert all(torch.equal(a, b) and a.stride() == b.stride() for a, b in zip(copies, outputs, strict=True))
    copies[0].zero_()
    assert not copies[3].any() and not copies[1].any() and copies[2].all() and y.any()


@pytest.mark.parametrize("module", (recording, replayed))
def test_what_is_called_of_copies_in_a_graph_is_there(module):
    """These calls run on a GPU alone, where a name that is gone would be found late."""
    attributes = [n for n in ast.walk(ast.parse(inspect.getsource(module))) if isinstance(n, ast.Attribute)]
    called = {n.attr for n in attributes if isinstance(n.value, ast.Attribute) and n.value.attr == "_copies"}
    assert len(called) == 4 and called <= set(dir(GraphCopies))

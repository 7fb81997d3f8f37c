"""Kernels that Triton takes for the same in all passes of a search, so that it compiles them once."""

import ast

import torch
import torch.nn.functional as F

from agent.distill.source.style import Style
from agent.distill.static import Distill
from agent.distill.ways import Ways
from tests.agent.support import ANY, sample, tensor, variant


def _several(x, w, v):
    """Kernels with helpers, with functions, and behind a library call."""
    hidden = torch.matmul(torch.tanh(torch.sigmoid(x) * 2.0 + 1.0), w)
    hidden = F.linear(F.layer_norm(hidden * 2.0 + x, (64,)), v, v[0])
    return torch.softmax(F.gelu(hidden) + x, -1) * 2.0


def _kernels(directory):
    """What Triton knows a kernel by: its source, the line where that begins, and the same of what it calls."""
    return {
        (path.name, node.name, ast.unparse(node), node.lineno)
        for path in directory.glob("fuse_*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and any("jit" in ast.unparse(one) for one in node.decorator_list)
    }


def test_a_cuda_graph_has_the_kernels_of_the_pass_without_one(tmp_path):
    one = sample(variant(_several, tensor(64, 64), tensor(64, 64), tensor(64, 64)))
    task = Distill().task(one, ANY, whole=True, ways=Ways(biases=True))
    for captured in (True, False):
        task.write(tuple(task.gains()), Style(captured=captured), tmp_path / str(captured))
    found = _kernels(tmp_path / "True")
    assert (tmp_path / "True" / "whole_graph_0.py").exists() and len(found) > 3
    assert found == _kernels(tmp_path / "False")

"""TorchInductor's own code as a pass."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from agent.distill.inductor.kernel_code import helper_sources
from agent.distill.inductor.whole_source import compiled_graph, compiled_source
from agent.distill.inductor.wrapper_code import KernelCall
from agent.distill.kernels.index_expressions import Unsupported
from agent.distill.source.style import Style
from agent.distill.static import Distill
from agent.distill.whole_graphs import whole_graph
from passbench.contract import read_pass_dir
from passbench.policy.check import check_files
from storage.versions.samples import load_samples
from storage.versions.store import Version
from tests.agent.support import ANY, sample, tensor, variant

VERSIONS = Path(__file__).parents[3] / "benchmarks" / "extraction"


def _task(one):
    return Distill().task(one, ANY, whole=True)


def _written(one, directory, **style):
    submission = _task(one).write((), Style(compiled="strict", **style), directory)
    assert submission.pass_dir == directory, submission.reason
    assert check_files(read_pass_dir(directory)) == []
    return (directory / "whole_graph_0.py").read_text()


def _real(name):
    """A sample of the committed versions with its first variant."""
    for version in ("corpus_578", "corpus_350", "corpus_328"):
        opened = Version.open(VERSIONS / version / "version")
        if name in opened.table("samples")["sample"].to_pylist():
            (one,) = load_samples(opened, names=[name])
            return replace(one, variants=one.variants[:1])
    raise LookupError(name)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("typical-69fdc87b5719", "torch.mm("),  # a backward with library calls
        ("fusible-d5b5d30c96dd", "torch.addmm("),
        ("sole_op-5438ce34266d", "LaunchPlan("),
    ],
)
def test_real_samples_are_right_and_allowed(name, told, tmp_path, interpreter):
    one = _real(name)
    assert told in _written(one, tmp_path / "pass", captured=True)
    assert interpreter.problems(tmp_path / "pass", one.variants[0], 1) == []


def _block(x, w):
    return torch.relu(torch.matmul(x, w) * 2.0 + 1.0).sum(-1)


def test_what_is_no_plan_gets_the_calls_of_eager_and_configurations_differ(tmp_path, interpreter):
    shapes = [variant(_block, tensor(rows, 8), tensor(8, 64)) for rows in (4, 6, 5)]
    source = _written(sample(*shapes[:2]), tmp_path / "pass")
    assert all(interpreter.problems(tmp_path / "pass", each, 1) == [] for each in shapes)
    assert "plan == 1" in source and "enable_fp_fusion=False" in source and "captured" not in source
    whole = whole_graph(shapes[:2])
    loose = compiled_graph(whole, "default")
    assert loose.configs == compiled_graph(whole, "strict").configs > 1
    assert "enable_fp_fusion=True" in compiled_source(loose, "", 0, True)
    assert compiled_source(loose, "", 0, True) != compiled_source(loose, "", 1, True)
    with pytest.raises(Unsupported, match="more shapes"):
        compiled_graph(replace(whole, shapes=whole.shapes * 7), "strict")


def test_the_first_configuration_is_one_whose_warps_keep_the_gpu_busy():
    def launches(elements, config):
        shape = variant(lambda x: torch.relu(x) + 1.0, tensor(elements))
        source = compiled_source(compiled_graph(whole_graph([shape]), "strict"), "", config, False)
        return re.findall(r"Launch\(\w+, \((\d+),\), .*num_warps=(\d+)", source)

    assert launches(150528, 0) == [("294", "8")] and launches(150528, 1) == [("147", "4")]
    assert launches(32000000, 0) == [("31250", "4")] and launches(32000000, 1) == [("62500", "8")]


def test_the_first_configuration_of_short_sums_has_several_in_a_program():
    """Of 12 numbers each: a program of one sum has 64 threads for 16 elements."""
    shape = variant(lambda x, y: (x + y.transpose(1, 2)).sum(1), tensor(1024, 12, 513), tensor(1024, 513, 12))
    ((_, code),) = compiled_graph(whole_graph([shape]), "strict").plans
    (call,) = [step for step in code.steps if isinstance(step, KernelCall)]
    found = [config.kwargs["XBLOCK"] for config in call.kernel.ordered(call.numbers)]
    assert found == [32, 128, 8, 1] and [c.kwargs["XBLOCK"] for c in call.kernel.configs] == [1, 8, 32, 128]


def test_helpers_come_with_what_they_call():
    sources = helper_sources({"welford", "any"})
    assert [source.split("def ")[1].partition("(")[0] for source in sources] == [
        "helper__any_combine",
        "helper_any",
        "helper_welford_combine",
        "helper_welford",
    ]
    with pytest.raises(Unsupported, match="no_such"):
        helper_sources({"no_such"})

"""Passes for hand-written families: allowed, few kernels, and eager's results under the Triton interpreter.

Inputs that were no variants when a pass was written get eager's results, too, and never raise.
"""

import pytest

from agent.distill.eager.op_effects import OpEffectsError, find_effects
from agent.distill.kernels.launch_configs import LaunchLimits
from agent.distill.pass_source import Style
from agent.distill.static import Distill
from passbench.policy.check import check_dir
from tests.agent.distill.families import FAMILIES, others
from tests.agent.support import PAIR, in_dtype, sample, variant


@pytest.mark.parametrize("name", FAMILIES)
def test_family(name, tmp_path, interpreter):
    family = FAMILIES[name]
    variants = [variant(family.function, *in_dtype(family.inputs, dtype)) for dtype in family.dtypes]
    directory = tmp_path / name
    submission = Distill(margin=family.margin).write(sample(*variants), directory)
    assert submission.compiler == "pass", submission.reason
    assert check_dir(directory) == []
    for one in variants:
        assert interpreter.problems(directory, one) == []
    sources = [file.read_text() for file in directory.glob("fuse_*.py")]
    assert len(sources) == family.modules
    assert all(f" in {family.kernels}." in source for source in sources)
    tried = 0
    for inputs in others(family.inputs):
        other = variant(family.function, *inputs)
        try:
            find_effects(other.graph, other.inputs)
        except OpEffectsError:
            continue  # eager does not take these
        assert interpreter.problems(directory, other, draws=1) == []
        tried += 1
    assert tried


@pytest.mark.parametrize("name", ["residual_layer_norm", "attention_softmax", "log_softmax_and_best", "extremes"])
def test_rows_longer_than_a_block(name, tmp_path, interpreter):
    family = FAMILIES[name]
    one = variant(family.function, *family.inputs)
    Distill(margin=family.margin, style=Style(LaunchLimits(persistent=8))).write(sample(one), tmp_path / "pass")
    source = "".join(f.read_text() for f in (tmp_path / "pass").glob("fuse_*.py"))
    assert "for start in range(0, " in source
    assert interpreter.problems(tmp_path / "pass", one) == []


def test_nan_where_eager_has_nan(tmp_path, interpreter):
    def largest_logarithm(x):
        return (x.log() * 2.0).amax(-1)

    one = variant(largest_logarithm, *FAMILIES["extremes"].inputs)
    for limits in (LaunchLimits(), LaunchLimits(persistent=8)):
        directory = tmp_path / f"pass_{limits.persistent}"
        Distill(margin=PAIR, style=Style(limits)).write(sample(one), directory)
        assert interpreter.problems(directory, one) == []


@pytest.mark.parametrize("name", ["rms_norm", "mean_and_variance", "log_softmax_and_best", "integers", "rotate", "mlp"])
def test_kernels_as_torch_inductor_schedules_them(name, tmp_path, interpreter):
    family = FAMILIES[name]
    one = variant(family.function, *family.inputs)
    task = Distill(margin=family.margin).task(sample(one), family.margin, own_schedule=True)
    submission = task.write(tuple(task.gains()), Style(own_schedule=True), tmp_path / name)
    assert submission.compiler == "pass", submission.reason
    assert check_dir(tmp_path / name) == []
    assert interpreter.problems(tmp_path / name, one) == []

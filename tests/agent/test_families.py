"""Both offline authors' passes for hand-written families: allowed, and eager's results under the Triton interpreter.

Inputs that were no variants when a pass was written get eager's results, too, and never raise.
"""

import json
from dataclasses import replace

import pytest
import torch

from agent.distill.eager.op_effects import OpEffectsError, find_effects
from agent.distill.kernels.launch_configs import LaunchLimits
from agent.distill.lowered_regions import Sketches
from agent.distill.rounding import Rounding
from agent.distill.source.style import Style
from agent.distill.static import Distill
from agent.distill.ways import Ways
from agent.readable.author import Readable
from passbench.contract import NAMES_FILE, write_pass_dir
from passbench.policy.check import check_dir
from storage.graph.as_fx import to_fx
from storage.records import Input, Variant
from tests.agent.distill.families import FAMILIES, others
from tests.agent.support import PAIR, in_dtype, sample, variant

SKETCHES = Sketches()
"""What has been lowered is known to all tests of this file: both authors lower the same regions."""


@pytest.mark.parametrize("name", FAMILIES)
def test_family(name, tmp_path, interpreter):
    family = FAMILIES[name]
    variants = [variant(family.function, *in_dtype(family.inputs, dtype)) for dtype in family.dtypes]
    directory = tmp_path / name
    author = Distill(margin=family.margin, rounding=Rounding.ANY, sketches=SKETCHES)
    submission = author.write(sample(*variants), directory)
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
    style = Style(LaunchLimits(persistent=8))
    author = Distill(margin=family.margin, style=style, rounding=Rounding.ANY, sketches=SKETCHES)
    author.write(sample(one), tmp_path / "pass")
    source = "".join(f.read_text() for f in (tmp_path / "pass").glob("fuse_*.py"))
    assert "for start in range(0, " in source
    assert interpreter.problems(tmp_path / "pass", one) == []


def test_nan_where_eager_has_nan(tmp_path, interpreter):
    def largest_logarithm(x):
        return (x.log() * 2.0).amax(-1)

    one = variant(largest_logarithm, *FAMILIES["extremes"].inputs)
    for limits in (LaunchLimits(), LaunchLimits(persistent=8)):
        directory = tmp_path / f"pass_{limits.persistent}"
        author = Distill(margin=PAIR, style=Style(limits), rounding=Rounding.ANY, sketches=SKETCHES)
        author.write(sample(one), directory)
        assert interpreter.problems(directory, one) == []


@pytest.mark.parametrize("name", ["rms_norm", "mean_and_variance", "log_softmax_and_best", "integers", "rotate", "mlp"])
def test_kernels_as_torch_inductor_schedules_them(name, tmp_path, interpreter):
    family = FAMILIES[name]
    one = variant(family.function, *family.inputs)
    task = Distill(margin=family.margin, sketches=SKETCHES).task(
        sample(one), family.margin, ways=Ways(own_schedule=True)
    )
    submission = task.write(tuple(task.gains()), Style(own_schedule=True), tmp_path / name)
    assert submission.compiler == "pass", submission.reason
    assert check_dir(tmp_path / name) == []
    assert interpreter.problems(tmp_path / name, one) == []


_DECLINED = frozenset({"in_place_residual", "in_place_clamp"})
"""Families that `readable` does not write, and should know that it does not."""


def _readable(name):
    family = FAMILIES[name]
    variants = [variant(family.function, *in_dtype(family.inputs, dtype)) for dtype in family.dtypes]
    return variants, Readable(margin=family.margin, sketches=SKETCHES).write(sample(*variants))


@pytest.mark.parametrize("name", [name for name in FAMILIES if name not in _DECLINED])
def test_a_readable_family_in_its_dtypes_and_at_another_size(name, tmp_path, interpreter):
    variants, made = _readable(name)
    assert made.files, made.reason
    assert json.loads(made.files[NAMES_FILE]) == [module.name for module in made.modules]
    write_pass_dir(made.files, tmp_path / "pass")
    assert check_dir(tmp_path / "pass") == []
    for one in variants:
        assert interpreter.problems(tmp_path / "pass", one) == []
    if (larger := _resized(variants[0])) is not None:
        assert interpreter.problems(tmp_path / "pass", larger) == []


@pytest.mark.parametrize("name", sorted(_DECLINED))
def test_what_readable_does_not_write(name):
    assert not _readable(name)[1].files


def _resized(one: Variant) -> Variant | None:
    """The variant with three more of its first input's leading size, wherever inputs have it; None where eager does not
    run on that."""
    size = one.inputs[0].shape[0]
    inputs = tuple(_longer(i, size) if i.role == "input" and i.shape[:1] == (size,) else i for i in one.inputs)
    if any(i.dtype not in ("float32", "float16", "bfloat16") for i in inputs):
        return None
    given = [torch.ones(i.shape) for i in inputs]
    try:
        torch.fx.GraphModule({}, to_fx(one.graph, "cpu"))(*given)
    except RuntimeError:
        return None
    return replace(one, inputs=inputs, variant_hash="")


def _longer(one: Input, size: int) -> Input:
    return replace(one, shape=(size + 3, *one.shape[1:]))

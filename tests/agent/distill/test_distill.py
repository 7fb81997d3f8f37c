"""What the offline author writes, when it declines, and that it writes the same again."""

import re
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from agent.ahead.quick_measure import QuickMeasure
from agent.distill.lowered_regions import Sketches
from agent.distill.rewrites.sample_graphs import float_dtypes
from agent.distill.rounding import Rounding, assumed
from agent.distill.source.style import Style
from agent.distill.static import Distill
from storage.graph.as_json import to_json
from tests.agent.distill.families import FAMILIES
from tests.agent.support import ANY, PAIR, in_dtype, sample, tensor, variant

SKETCHES = Sketches()
"""What has been lowered is known to all tests of this file."""


def _relu(x):
    return torch.relu(x)


def _linear(x, w):
    return F.linear(x, w)


def _files(directory):
    return {path.name: path.read_text() for path in sorted(directory.iterdir())}


def _written(tmp_path, *variants, **options):
    submission = Distill(**({"margin": PAIR, "sketches": SKETCHES} | options)).write(
        sample(*variants), tmp_path / "pass"
    )
    return submission, _files(tmp_path / "pass") if submission.pass_dir else {}


def test_same_sample_same_bytes(tmp_path):
    family = FAMILIES["mlp"]
    one = sample(*(variant(family.function, *in_dtype(family.inputs, d)) for d in family.dtypes))
    Distill(margin=PAIR).write(one, tmp_path / "a")
    Distill(margin=PAIR).write(one, tmp_path / "b")
    assert _files(tmp_path / "a") == _files(tmp_path / "b")


def test_constants_of_a_family_become_modules_and_all_variants_match(tmp_path, interpreter):
    def scaled(factor):
        return lambda x, y: F.relu(x * factor) + y

    variants = [variant(scaled(factor), tensor(3, 8), tensor(3, 8)) for factor in (0.5, 2.0)]
    submission, files = _written(tmp_path, *variants)
    assert sum(name.startswith("fuse_") for name in files) == 2
    for one in variants:
        assert interpreter.problems(submission.pass_dir, one) == []


def test_shapes_of_a_family_share_a_kernel(tmp_path, interpreter):
    variants = [variant(FAMILIES["attention_softmax"].function, tensor(2, 3, n, n), tensor(1, 1, n, n)) for n in (5, 9)]
    submission, files = _written(tmp_path, *variants, rounding=Rounding.ANY)
    (source,) = (text for name, text in files.items() if name.startswith("fuse_"))
    assert len(re.findall(r"\ndef \w+_kernel(?:_\d+)?\(", source)) == 1
    for one in variants:
        assert interpreter.problems(submission.pass_dir, one) == []


def test_two_spellings_of_one_graph_share_a_module(tmp_path, interpreter):
    """Each of two patterns would match where the other is meant to, and the sample was left to eager."""
    inputs = tensor(4, 6, 8), tensor(4, 6, 1, dtype="int64")
    functions = (lambda x, y: (x * y.to(torch.float32),), lambda x, y: (x * y.to(dtype=torch.float32),))
    variants = [variant(function, *inputs) for function in functions]
    assert len({to_json(one.graph) for one in variants}) == 2 and len(float_dtypes(variants)) == 2
    submission, files = _written(tmp_path, *variants, rounding=Rounding.ANY)
    assert [name for name in files if name.startswith("fuse_")] == ["fuse_mul.py"]
    for one in variants:
        assert interpreter.problems(submission.pass_dir, one) == []


def _masked_and_summed(mask, x):
    return torch.where(mask, 0.0, x), torch.where(mask, x, 0.0).sum([0, 1], keepdim=True)


def _batch_summed(x):
    return F.pad(x.sum(0, keepdim=True).relu(), (0, 0, 1, 0))


def _normed_and_padded(x, mean, var, w, b):
    return F.pad(F.relu(F.batch_norm(x, mean, var, w, b)), (1, 1, 1, 1), "reflect")


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (_masked_and_summed, (tensor(2, 5, 1, dtype="bool"), tensor(2, 5, 8))),
        (_batch_summed, in_dtype((tensor(2, 5, 8),), "float16")),
        (_normed_and_padded, in_dtype((tensor(2, 4, 6, 6), *(tensor(4),) * 4), "float16")),
    ],
)
def test_a_region_is_as_few_kernels_as_torchinductor_makes_of_it_on_a_gpu(function, inputs, tmp_path, interpreter):
    """Sums of columns share a loop with what is written by row, sums of two terms one with all; a half type's
    conversions split nothing."""
    one = sample(variant(function, *inputs))
    task = Distill(sketches=SKETCHES).task(one, ANY)
    assert len(task.kernels()) == 1
    assert task.write(task.gains(), Style(), tmp_path / "pass").compiler == "pass"
    assert interpreter.problems(tmp_path / "pass", *one.variants) == []


@pytest.mark.parametrize(("shape", "kernels"), [((2, 512, 8, 8), 1), ((2, 8, 128, 128), 2)])
def test_a_kernel_of_few_long_rows_does_not_write_them_too(shape, kernels):
    """Eight programs, one a channel, cannot draw the bandwidth for what all of them could write."""
    one = sample(variant(lambda x: x - (x * x).sum((0, 2, 3), keepdim=True), tensor(*shape)))
    assert len(Distill(sketches=SKETCHES).task(one, ANY).kernels()) == kernels


def test_equal_halves_of_a_pattern_get_their_own_operands(tmp_path, interpreter):
    def halves(x, w, y, z):
        scaled = torch.relu(x) * w
        return scaled * y, scaled * z

    one = variant(halves, tensor(4, 8), tensor(8), tensor(4, 8), tensor(8))
    submission, _ = _written(tmp_path, one)
    assert interpreter.problems(submission.pass_dir, one) == []


@pytest.mark.parametrize(
    ("backward", "steps"),
    [
        (torch.ops.aten.sigmoid_backward, lambda grad, y: grad * (1 - y) * y),
        (torch.ops.aten.tanh_backward, lambda grad, y: grad * (1 - y * y)),
    ],
    ids=["sigmoid", "tanh"],
)
def test_backwards_round_a_half_type_after_each_step_as_eager_does_on_a_gpu(backward, steps, tmp_path):
    def body(function, place):
        inputs = in_dtype((tensor(4, 8), tensor(4, 8)), "float16")
        Distill(margin=PAIR).write(sample(variant(lambda g, y: function(g * 0.3, y), *inputs)), tmp_path / place)
        (source,) = (path.read_text() for path in (tmp_path / place).glob("fuse_*.py"))
        return re.findall(r"^    (\w+ = .*|tl.store.*)$", source.split("@triton.jit")[1], re.M)

    assert body(backward.default, "whole") == body(steps, "steps")


BACKWARDS = {
    "silu": lambda g, x: torch.ops.aten.silu_backward.default(g * 2.0, x),
    "gelu": lambda g, x: torch.ops.aten.gelu_backward.default(g * 2.0, x, approximate="tanh"),
    "gelu of x": lambda g, x: F.gelu(x, approximate="tanh") * g,
    "glu": lambda g, x: torch.ops.aten.glu_backward.default(g[:, ::2] * 2.0, x, 1),
    "hardswish": lambda g, x: torch.ops.aten.hardswish_backward.default(g * 2.0, x),
    "tanh": lambda g, x: torch.ops.aten.tanh_backward.default(g * 2.0, x),
    "pow": lambda g, x: torch.ops.aten.pow.Tensor_Scalar(x, -2) * g + x**3,
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("backward", "steps"),
    [
        ("silu", ("libdevice.exp(", "tl.div_rn(1.0, ", "tl.fma(")),
        ("gelu", ("libdevice.tanh(", "tl.fma(", "0.13414")),
        ("gelu of x", ("libdevice.tanh(", "tl.fma(")),
        ("glu", ("1.0 - ", "tl.div_rn(1.0, ")),
        ("hardswish", (".to(tl.float64)", "/ 3.0", "+ 0.5")),
        ("tanh", ("tl.fma(",)),
        ("pow", ("tl.div_rn(1.0, ",)),
    ],
)
def test_backwards_have_the_steps_of_eagers_kernels(backward, steps, dtype, tmp_path, interpreter):
    """A tanh and powers of a half type are rounded after each step on a GPU, and at their end on a CPU."""
    one = variant(BACKWARDS[backward], *in_dtype((tensor(4, 30), tensor(4, 30)), dtype))
    sources = {}
    for rounding in (Rounding.ANY, Rounding.EXACT):
        task = Distill(sketches=SKETCHES).task(sample(one), ANY, dict.fromkeys(float_dtypes([one]).values(), rounding))
        assert task.write(task.gains(), Distill().style, tmp_path / rounding.name).compiler == "pass"
        texts = [path.read_text() for path in (tmp_path / rounding.name).glob("fuse_*.py")]
        sources[rounding] = "".join(text.partition("@triton.jit")[2].partition("def library_")[0] for text in texts)
    if not (backward == "tanh" and dtype == "bfloat16"):
        assert all(step in sources[Rounding.EXACT] for step in steps)
    if dtype == "float32" or backward in ("silu", "hardswish"):
        assert interpreter.problems(tmp_path / "ANY", one) == []


def test_a_gated_units_gradient_is_multiplied_by_the_gradient_before_the_operand(tmp_path):
    """As `ActivationGluKernel.cu` does; TorchInductor multiplies by the operand first."""
    one = variant(BACKWARDS["glu"], tensor(4, 30), tensor(4, 30))
    submission, _ = _written(tmp_path, one, margin=ANY)
    (source,) = (path.read_text() for path in submission.pass_dir.glob("fuse_*.py"))
    steps = dict(re.findall(r"^    (\w+) = (.*)$", source, re.M))
    (share_left,) = (name for name, step in steps.items() if step.startswith("1.0 - "))
    (product,) = (name for name, step in steps.items() if f"{share_left} * " in step)
    by_gradient = [step for step in steps.values() if f"{product} * " in step]
    assert len(by_gradient) == 1 and steps[by_gradient[0].split(" * ")[1]].endswith("2.0"), by_gradient


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("backward", BACKWARDS)
def test_backwards_of_activations_have_eagers_bits_on_a_gpu(backward, dtype, tmp_path):
    one = variant(BACKWARDS[backward], *in_dtype((tensor(400, 300), tensor(400, 300)), dtype))
    _written(tmp_path, one, margin=ANY)
    (result,) = QuickMeasure(torch.device("cuda"))(sample(one), tmp_path / "pass")
    assert (result.status, result.t_min) == ("ok", -10), result


@pytest.mark.parametrize("function", [torch.erfc, torch.exp2, torch.expm1], ids=["erfc", "exp2", "expm1"])
def test_functions_without_eagers_bits_are_left_to_eager_where_bits_count(function, tmp_path):
    one = variant(lambda x, y: function(x * 2.0) * y + 1.0, tensor(4, 8), tensor(4, 8))
    for rounding, left in ((Rounding.ANY, 0), (Rounding.EXACT, 1)):
        task = Distill(sketches=SKETCHES).task(sample(one), ANY, dict.fromkeys(float_dtypes([one]).values(), rounding))
        inside = {op for each in task.graphs for c in each.candidates for op in c.region.ops}
        assert len(one.graph.ops) - len(inside) >= left
        assert bool(inside & {1}) is (left == 0)


def test_a_weight_norm_of_a_half_type_is_rounded_once_as_eager_does_on_a_gpu(tmp_path):
    inputs = in_dtype((tensor(6, 5, 8), tensor(1, 1, 8)), "float16")
    one = variant(lambda v, g: torch._weight_norm(v, g, 2), *inputs)
    submission, _ = _written(tmp_path, one, margin=ANY, rounding=Rounding.ANY)
    (source,) = (path.read_text() for path in submission.pass_dir.glob("fuse_*.py"))
    assert "tl.sqrt_rn(" in source and "tl.float16" not in source


def test_a_kernel_for_a_kernel_is_declined_before_anything_is_lowered(tmp_path):
    author = Distill()
    submission = author.write(sample(variant(_relu, tensor(4, 4))), tmp_path / "pass")
    assert submission.declined
    assert submission.compiler == "eager"
    assert "nothing that one kernel could do faster" in submission.reason
    assert not (tmp_path / "pass").exists()
    assert author.sketches.lowered == 0


def test_a_kernel_for_a_kernel_on_request(tmp_path, interpreter):
    one = variant(_relu, tensor(4, 4))
    submission, _ = _written(tmp_path, one, margin=ANY)
    assert interpreter.problems(submission.pass_dir, one) == []


def test_library_calls_alone_are_declined_with_their_names(tmp_path):
    submission, _ = _written(tmp_path, variant(_linear, tensor(4, 8), tensor(8, 8)), margin=ANY)
    assert submission.declined
    assert "torch.nn.functional.linear" in submission.reason


def test_complex_numbers_are_declined(tmp_path):
    def rotated(x, y):
        return torch.abs(x * y)

    submission, _ = _written(
        tmp_path, variant(rotated, tensor(4, 8, dtype="complex64"), tensor(4, 8, dtype="complex64"))
    )
    assert submission.declined


def test_random_numbers_are_declined(tmp_path):
    def noisy(x):
        return F.relu(x + torch.rand_like(x))

    submission, _ = _written(tmp_path, variant(noisy, tensor(4, 8)))
    assert submission.declined


def test_the_sample_is_declined_where_one_variant_has_nothing_to_match(tmp_path):
    def gated(x, y):
        return torch.sigmoid(x) * y

    variants = [variant(gated, tensor(4, 4, dtype=d), tensor(4, 4, dtype=d)) for d in ("float32", "complex64")]
    submission, _ = _written(tmp_path, *variants)
    assert submission.declined


def test_modules_read_well(tmp_path):
    family = FAMILIES["silu_mul"]
    _, files = _written(tmp_path, variant(family.function, *family.inputs))
    source = files["fuse_silu_mul.py"]
    assert source.startswith('"""silu, mul in one kernel.')
    assert "def silu_mul_kernel(" in source
    assert "«" not in source


@pytest.mark.parametrize(("rows", "compiler"), [(64, "pass"), (2**18, "eager")])
def test_nothing_is_written_unmeasured_that_memory_may_bound(rows, compiler, tmp_path):
    """A batch norm costs eager's host more than a pass; with many rows the host's time does not count."""

    def norm(x, mean, var):
        return F.batch_norm(x, mean, var)

    one = sample(variant(norm, tensor(rows, 64), tensor(64), tensor(64, mean=1.0, std=0.1)))
    assert Distill().write(one, tmp_path / "pass").compiler == compiler


@pytest.mark.parametrize(("rows", "compiler"), [(2**17, "pass"), (2**19, "eager")])
def test_what_a_pattern_saves_in_all_its_places_counts(rows, compiler, tmp_path):
    """Eager's host is late for two small batch norms, meanwhile the device normalises many rows, if not too many."""

    def norms(x, mx, vx, y, my, vy, z, mz, vz):
        return F.batch_norm(x, mx, vx), F.batch_norm(y, my, vy), F.batch_norm(z, mz, vz)

    channels = tensor(64), tensor(64, mean=1.0, std=0.1)
    given = (i for size in (64, 64, rows) for i in (tensor(size, 64), *channels))
    one = sample(variant(norms, *given))
    (graph,) = Distill().task(one, ANY).graphs
    assert len(graph.candidates) == 3 and min(c.sure for c in graph.candidates) < 0
    assert Distill().write(one, tmp_path / "pass").compiler == compiler


def test_what_is_not_measured_has_eagers_bits(tmp_path):
    def block(x):
        return (torch.softmax(x * 2.0, -1),)

    one = sample(variant(block, tensor(512, 600)))
    _, files = _written(tmp_path, *one.variants)
    author, found = Distill(margin=PAIR, sketches=SKETCHES), {}
    for rounding in (Rounding.EXACT, Rounding.ANY):
        task = author.task(one, PAIR, dict.fromkeys(float_dtypes(one.variants).values(), rounding))
        task.write(task.sure(PAIR), replace(author.style, for_others=assumed), tmp_path / rounding.name)
        found[rounding] = _files(tmp_path / rounding.name)
    assert files == found[Rounding.EXACT] != found[Rounding.ANY]

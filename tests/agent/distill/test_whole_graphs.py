"""Whole graphs as one replacement: library calls, kernels between them, and what cannot be replaced so."""

import json
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from agent.distill.inductor.whole_source import STRICT, compiled_graph, compiled_source
from agent.distill.lowered_regions import Sketches
from agent.distill.source.style import Style
from agent.distill.static import Distill
from agent.distill.whole_graphs import whole_graph
from passbench.bench import Bench
from passbench.contract import NAMES_FILE
from passbench.policy.check import check_dir
from passbench.settings import Settings
from tests.agent.support import ANY, FLOATS, in_dtype, sample, tensor, variant

SKETCHES = Sketches()
"""What has been lowered is known to all tests of this file."""

CAPTURED = Style(captured=True)


def _mlp(x, w, b, v, c):
    hidden = F.gelu(F.linear(x, w, b))
    return F.linear(hidden, v, c) + x


def _attention(x, w, m):
    q, k, v = F.linear(x, w).view(2, 5, 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
    weights = torch.softmax(q @ k.transpose(-2, -1) * 0.5 + m, dim=-1)
    return (weights @ v).transpose(1, 2).reshape(2, 5, 8)


def _convolved(x, w, m, v, s, b):
    y = F.batch_norm(F.conv2d(x, w, None, (1, 1), (1, 1)), m, v, s, b, False, 0.1, 1e-5)
    y = F.relu(y, inplace=True)
    y += x
    return F.relu(y, inplace=True)


def _diamond(x, w):
    first = torch.sigmoid(x) * 2.0
    product = torch.matmul(first, w)
    return torch.tanh(first) + product, product.relu()


def _unordered(w, x):
    return F.relu(torch.matmul(x, w)) + x, (x * 2.0).sum(-1)


def _backward(grad, y, w):
    """By names that are private in torch: those of backward graphs."""
    into = torch.ops.aten._softmax_backward_data.default(grad, y, -1, torch.float32)
    rows = torch.ops.aten._unsafe_view.default(torch.ops.aten._to_copy.default(into, dtype=torch.float16), [6, 8])
    return torch.sigmoid(torch.mm(rows.float(), w))


def _twice(x, w, v):
    """Regions before, between and behind two products, two of which have one pattern, at different shapes."""
    first = torch.matmul(torch.sigmoid(torch.tanh(x) * 2.0), w)
    return torch.matmul(torch.sigmoid(torch.tanh(first) * 2.0), v).relu() + 1.0


def _returns_a_view(x, w):
    wide = x.view(-1)
    return torch.sigmoid(torch.tanh(x) @ w), wide.view(2, -1), torch.relu(wide)


def _returns_a_part(x, w):
    """A part of a tuple is returned and read, and another one is read."""
    first, second = torch.split(x, [2, 8], 1)
    turned = first.transpose(0, 1)
    return turned, torch.sigmoid(torch.tanh(second) @ w), torch.relu(turned) * 2.0


def _parameter(*shape):
    return tensor(*shape, role="parameter", mean=1.0, std=0.1)


CASES = {
    "mlp": (_mlp, (tensor(3, 8), tensor(16, 8), tensor(16), tensor(8, 16), tensor(8))),
    "attention": (_attention, (tensor(2, 5, 8), tensor(24, 8), tensor(2, 1, 5, 5))),
    "convolved": (_convolved, (tensor(2, 4, 6, 6), tensor(4, 4, 3, 3), tensor(4), *[_parameter(4)] * 3)),
    "diamond": (_diamond, (tensor(6, 8), tensor(8, 8))),
    "backward": (_backward, (tensor(2, 3, 8), tensor(2, 3, 8), tensor(8, 8))),
    "twice": (_twice, (tensor(6, 8), tensor(8, 4), tensor(4, 8))),
    "returns a view": (_returns_a_view, (tensor(4, 8), tensor(8, 8))),
    "returns a part": (_returns_a_part, (tensor(4, 10), tensor(8, 8))),
    "unordered": (_unordered, (tensor(8, 8), tensor(4, 8))),
}


def _dtypes(name):
    return FLOATS[:1] if name == "backward" else FLOATS[:2]  # softmax's names its input's dtype


def _written(directory, *variants, patterns=None):
    task = Distill(margin=ANY, sketches=SKETCHES).task(sample(*variants), ANY, whole=True)
    chosen = task.gains() if patterns is None else patterns
    return task.write(tuple(chosen), CAPTURED, directory), task


@pytest.mark.parametrize("regions", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_a_whole_graph(name, regions, tmp_path, interpreter):
    function, inputs = CASES[name]
    variants = [variant(function, *in_dtype(inputs, dtype)) for dtype in _dtypes(name)]
    submission, task = _written(tmp_path / "pass", *variants, patterns=None if regions else ())
    assert submission.compiler == "pass", submission.reason
    assert check_dir(tmp_path / "pass") == []
    names = json.loads((tmp_path / "pass" / NAMES_FILE).read_text())
    assert names[0] == "whole_graph_0" and all(name.startswith("any_") for name in names[1:])
    source = (tmp_path / "pass" / "whole_graph_0.py").read_text()
    assert "captured(steps, " in source
    assert ("import fused_" in source) == (regions and bool(task.gains()))
    for one in variants:
        assert interpreter.problems(tmp_path / "pass", one, draws=1) == []


@pytest.mark.parametrize("branches", [True, False])
def test_regions_with_one_pattern_are_all_in_kernels(branches, tmp_path, interpreter):
    one = variant(_twice, *CASES["twice"][1])
    task = Distill(margin=ANY, sketches=SKETCHES).task(sample(one), ANY, whole=True)
    patterns = tuple(task.gains())
    submission = task.write(patterns, replace(CAPTURED, branches=branches), tmp_path / "pass")
    assert submission.compiler == "pass", submission.reason
    steps = (tmp_path / "pass" / "whole_graph_0.py").read_text().partition("def steps(")[2]
    assert steps.count("fused_tanh_mul_sigmoid(") == 2 and steps.count("fused_relu_add(") == 1
    assert "torch.tanh(" not in steps and "torch.sigmoid(" not in steps
    assert interpreter.problems(tmp_path / "pass", one) == []


def test_graphs_that_are_one_and_graphs_that_are_not(tmp_path, interpreter):
    def scaled(factor):
        def function(x, y):
            z = torch.sigmoid(x * factor)
            if factor == 2.0:
                y += z
            return torch.tanh(z + y)

        return function

    inputs = (tensor(4, 8), tensor(4, 8))
    variants = [variant(scaled(factor), *inputs) for factor in (0.5, 2.0)]
    submission, _ = _written(tmp_path / "pass", *variants)
    assert submission.compiler == "pass", submission.reason
    names = json.loads((tmp_path / "pass" / NAMES_FILE).read_text())
    assert names[0] == "whole_graph_0" and names[1].startswith("fuse_")
    assert names[2:] == ["any_constants_0", "any_constants_1"]
    for one in variants:
        assert interpreter.problems(tmp_path / "pass", one) == []


def _writes(x, w):
    x += 1.0
    return torch.sigmoid(torch.tanh(x) @ w)


def _noisy(x, w):
    return F.dropout(torch.sigmoid(torch.tanh(x) @ w), 0.5, True)


def _on_host(x, w):
    return torch.sigmoid(torch.tanh(x) @ w)[torch.arange(2)]


def _attention_of_three_weights(x, q, k, v, b, w, c):
    y = torch.tanh(x) * 2.0
    given = {"use_separate_proj_weight": True, "q_proj_weight": q, "k_proj_weight": k, "v_proj_weight": v}
    nothing = torch.empty([0])
    y, _ = F.multi_head_attention_forward(y, y, y, 8, 2, nothing, b, None, None, False, 0.0, w, c, False, **given)
    return torch.relu(y + x)


def test_a_tensor_without_elements_on_the_host_is_in_no_ones_way(tmp_path, interpreter):
    weights = [tensor(8, 8)] * 3
    one = variant(_attention_of_three_weights, tensor(5, 2, 8), *weights, tensor(24), tensor(8, 8), tensor(8))
    submission, task = _written(tmp_path / "pass", one, patterns=())
    assert task.any_whole and submission.compiler == "pass", submission.reason
    assert "multi_head_attention_forward" in (tmp_path / "pass" / "whole_graph_0.py").read_text()
    assert check_dir(tmp_path / "pass") == []
    assert interpreter.problems(tmp_path / "pass", one) == []


@pytest.mark.parametrize("function", [_writes, _noisy, _on_host])
def test_what_is_no_whole(function):
    assert whole_graph([variant(function, tensor(4, 8), tensor(8, 8))]) is None


def test_numbers_on_the_host_belong_to_a_whole_where_arithmetic_reads_them(tmp_path, interpreter):
    def scaled(x, w):
        root = torch.sqrt(torch.tensor(8, dtype=torch.float32) * 1)
        return torch.sigmoid(torch.matmul(torch.tanh(x) / root, w) + 1.0)

    one = variant(scaled, tensor(4, 8), tensor(8, 8))
    submission, task = _written(tmp_path / "pass", one)
    assert submission.compiler == "pass" and task.any_whole and task.gains()
    assert interpreter.problems(tmp_path / "pass", one) == []


def test_a_number_on_the_host_that_fills_by_a_mask_belongs_to_a_whole_and_to_torchinductors_code(tmp_path, interpreter):
    def masked(x, mask):
        filled = torch.tanh(x).masked_fill(mask, torch.tensor(-3.4028234663852886e38))
        return torch.softmax(filled, -1)

    one = variant(masked, tensor(4, 8), tensor(4, 8, dtype="bool"))
    whole = whole_graph([one])
    source = compiled_source(compiled_graph(whole, STRICT), "", 0, captured=False)
    assert "-3.4028234663852886e+38" in source.partition("def library")[0].rpartition("@triton.jit")[2]
    submission, _ = _written(tmp_path / "pass", one)
    assert submission.compiler == "pass" and interpreter.problems(tmp_path / "pass", one) == []


def test_library_calls_alone_can_be_a_whole(tmp_path, interpreter):
    def three(x, w):
        return torch.matmul(torch.matmul(torch.matmul(x, w), w), w)

    one = variant(three, tensor(4, 8), tensor(8, 8))
    submission, task = _written(tmp_path / "pass", one)
    assert submission.compiler == "pass" and not task.gains()
    assert interpreter.problems(tmp_path / "pass", one) == []


@pytest.fixture(scope="module")
def gpu_bench():
    with Bench("cuda", Settings(seed=5)) as one:
        yield one


@pytest.mark.gpu
@pytest.mark.parametrize("regions", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_a_whole_graph_on_a_gpu(name, regions, tmp_path, gpu_bench):
    function, inputs = CASES[name]
    one = sample(*(variant(function, *in_dtype(inputs, dtype)) for dtype in _dtypes(name)))
    submission, _ = _written(tmp_path / "pass", *one.variants, patterns=None if regions else ())
    for result in gpu_bench.run(one, "pass", submission.pass_dir):
        assert result.status == "ok", result.reason
        assert result.capture_used is True
        assert regions or result.t_min <= -5, "library calls alone give eager's values"


@pytest.mark.gpu
def test_a_chain_of_library_calls_is_one_cuda_graph(tmp_path, gpu_bench):
    def chain(x, w):
        for _ in range(8):
            x = torch.matmul(x, w)
        return x

    one = sample(variant(chain, tensor(64, 64), tensor(64, 64, std=0.1)))
    submission, _ = _written(tmp_path / "pass", *one.variants)
    (result,) = gpu_bench.run(one, "pass", submission.pass_dir)
    assert (result.status, result.t_min, result.capture_used) == ("ok", -10, True), result.reason


@pytest.mark.gpu
def test_shapes_without_a_plan_on_a_gpu(tmp_path, gpu_bench):
    function, inputs = CASES["mlp"]
    known = variant(function, *inputs)
    other = variant(function, *in_dtype((tensor(5, 8), *inputs[1:]), "float64"))  # float32 has kernels for any size
    for style in (Style(), CAPTURED):
        directory = tmp_path / f"pass_{style.captured}"
        task = Distill(margin=ANY, sketches=SKETCHES).task(sample(known), ANY, whole=True)
        task.write(tuple(task.gains()), style, directory)
        (result,) = gpu_bench.run(sample(other), "pass", directory)
        assert (result.status, result.reason) == ("ok", ""), style
        assert result.t_min == -10, "library calls alone give eager's values"


@pytest.mark.gpu
def test_a_region_without_a_plan_is_replayed_where_it_is_small(tmp_path, gpu_bench):
    def chain(x, y):
        for _ in range(4):
            x = torch.sigmoid(x * 0.5 + y)
        return x

    Distill(margin=ANY, sketches=SKETCHES).write(
        sample(variant(chain, tensor(8, 64), tensor(8, 64))), tmp_path / "pass"
    )
    for rows, replayed in ((9, True), (1 << 14, False)):
        inputs = tensor(rows, 64), tensor(rows, 64)
        other = sample(variant(chain, *in_dtype(inputs, "float64")))  # float32 has a kernel for any size
        (result,) = gpu_bench.run(other, "pass", tmp_path / "pass")
        assert (result.status, result.t_min) == ("ok", -10), result.reason
        assert result.capture_used is replayed


@pytest.mark.gpu
def test_an_addition_in_place_without_a_plan(tmp_path, gpu_bench):
    def add(x, y):
        x += y
        return x

    Distill(margin=ANY, sketches=SKETCHES).write(sample(variant(add, tensor(8, 64), tensor(8, 64))), tmp_path / "pass")
    others = in_dtype((tensor(9, 64), tensor(9, 64)), "float64")  # float32 has a kernel for any size
    (result,) = gpu_bench.run(sample(variant(add, *others)), "pass", tmp_path / "pass")
    assert (result.status, result.t_min) == ("ok", -10), result.reason


def test_a_region_that_only_the_whole_calls_has_no_pattern(tmp_path, interpreter):
    """The policy reads what is no rule's pattern as host code, in which this one would be refused."""

    def function(x, w):
        y = F.hardswish(torch.matmul(x, w))
        return F.pad(torch._C._nn.pad(y * 2.0, (1, 0), "constant", 0.0), (0, 1)) + 1.0

    one = variant(function, tensor(4, 8), tensor(8, 8))
    submission, task = _written(tmp_path / "pass", one)
    assert task.gains() and submission.compiler == "pass"
    assert check_dir(tmp_path / "pass") == []
    for path in (tmp_path / "pass").glob("fuse_*.py"):
        assert "def pattern" not in path.read_text() and "def replacement_func" not in path.read_text()
    assert interpreter.problems(tmp_path / "pass", one, draws=1) == []


def test_a_region_of_which_the_replacement_has_a_part_is_left_out(tmp_path, interpreter):
    """What is added to an input in place stays with eager, and the region has that, too."""

    def function(x, w, total):
        doubled = torch.matmul(x, w) * 2.0
        made = torch.matmul(torch.relu(doubled) * doubled, w)
        total += torch.sigmoid(doubled)
        return made, total

    one = variant(function, tensor(4, 8), tensor(8, 8), tensor(4, 8))
    submission, task = _written(tmp_path / "pass", one)
    (whole,) = (each.whole for each in task.graphs)
    (left,) = set(range(len(one.graph.ops))) - set(whole.region.ops)
    assert one.graph.ops[left].target == "operator.iadd"
    regions = [c.region for each in task.graphs for c in each.candidates]
    assert any(
        set(region.ops) - set(whole.region.ops) and set(region.ops) & set(whole.region.ops) for region in regions
    )
    assert submission.compiler == "pass", submission.reason
    assert "import fused_" not in (tmp_path / "pass" / "whole_graph_0.py").read_text()
    assert interpreter.problems(tmp_path / "pass", one) == []


def test_a_whole_does_not_read_what_an_input_had_before_it_was_written_to():
    def function(x, w, total):
        made = torch.matmul(torch.relu(x), w)
        total += made
        return torch.matmul(torch.tanh(total), w), total

    assert whole_graph([variant(function, tensor(4, 8), tensor(8, 8), tensor(4, 8))]) is None


def _layers(x, w):
    for _ in range(8):
        x = torch.matmul(x, w) + 1.0
    return x, w * 2.0


def test_large_inputs_are_not_copied_for_a_cuda_graph(tmp_path, interpreter):
    """A graph that the device takes long for saves the host nothing, and copies the inputs."""
    small, large = (variant(_layers, tensor(2, n), tensor(n, n)) for n in (8, 4096))
    assert whole_graph([small]).larger == []
    assert [one[0].shape for one in whole_graph([large, small]).larger] == [(2, 4096)]
    for name, variants, told in (
        ("small", [small], (True, False)),
        ("large", [large], (False, False)),
        ("both", [small, large], (True, True)),
    ):
        directory = tmp_path / name
        task = Distill(margin=ANY).task(sample(*variants), ANY, whole=True)
        assert task.write((), Style(captured=True), directory).compiler == "pass"
        assert check_dir(directory) == []
        source = (directory / "whole_graph_0.py").read_text()
        assert ("captured(steps, in_0, in_1)" in source, "LARGER = PlanTable" in source) == told
        assert interpreter.other_calls(directory, small) == []

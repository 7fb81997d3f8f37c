"""Half-type convolutions in channels-last memory: where they are, and that passes compute the same."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from agent.distill.rewrites.channels_last import in_channels_last
from agent.distill.source.style import Style
from agent.distill.tuned import Tuned
from agent.distill.ways import Ways
from passbench.policy.check import check_dir
from storage.graph.as_fx import to_module
from tests.agent.distill.search_support import attempt_by, measuring, names_of
from tests.agent.support import in_dtype, sample, tensor, variant

LAST = Style(captured=True, channels_last=True)


def _net(x, w, v, scale):
    first = F.relu(F.conv2d(x, w, None, (1, 1), (1, 1), (1, 1), 1) * scale, True)
    return F.conv2d(first, v, None, (1, 1), (0, 0), (1, 1), 1) + x


def _grouped(x, w):
    return F.conv2d(x, w, None, (1, 1), (1, 1), (1, 1), 8) + 1.0


def _variant(dtype="bfloat16"):
    return variant(_net, *in_dtype((tensor(2, 8, 6, 6), tensor(8, 8, 3, 3), tensor(8, 8, 1, 1), tensor(1)), dtype))


def _converted(graph):
    return [op for op in graph.ops if op.kwargs.get("memory_format") is torch.channels_last]


def test_half_type_convolutions_without_groups_are_converted():
    graph = in_channels_last([_variant()])
    assert len(_converted(graph)) == 4 and sum(op.target == "contiguous" for op in graph.ops) == 6
    assert in_channels_last([_variant("float32")]) is None
    assert in_channels_last([_variant(), _variant("float32")]) is None, "one graph"
    grouped = variant(_grouped, *in_dtype((tensor(2, 8, 6, 6), tensor(8, 1, 3, 3)), "bfloat16"))
    assert in_channels_last([grouped]) is None


def test_what_is_written_over_is_converted_again():
    def twice(x, w):
        first = F.conv2d(x, w, None, (1, 1), (1, 1), (1, 1), 1)
        once = F.conv2d(first, w, None, (1, 1), (1, 1), (1, 1), 1)
        first += 1.0
        return once, F.conv2d(first, w, None, (1, 1), (1, 1), (1, 1), 1)

    one = variant(twice, *in_dtype((tensor(2, 8, 6, 6), tensor(8, 8, 3, 3)), "bfloat16"))
    graph = in_channels_last([one])
    assert len(_converted(graph)) == 4, "x, the weight once, and `first` twice"
    given = [torch.randn(2, 8, 6, 6).bfloat16(), torch.randn(8, 8, 3, 3).bfloat16()]
    for have, want in zip(to_module(graph, "cpu")(*given), to_module(one.graph, "cpu")(*given), strict=True):
        torch.testing.assert_close(have, want, rtol=0.1, atol=0.5)
        assert have.stride() == want.stride()


def test_views_of_inputs_that_are_returned_are_left_to_eager(tmp_path, interpreter):
    """Those behind a convolution have other numbers in the graph that is computed (typical-0df2d21be093)."""

    def net(y, x, w):
        first, second = torch.split(y, [36, 9], 1)
        image = first.transpose(1, 2).view(2, 8, 6, 6)
        convolved = F.relu(F.conv2d(x, w) * 2.0) + image
        turned = y.transpose(0, 1)
        return image, convolved, second * 2.0, turned, turned * 2.0

    inputs = in_dtype((tensor(2, 45, 8), tensor(2, 8, 6, 6), tensor(8, 8, 1, 1)), "float16")
    one = sample(variant(net, *inputs))
    task = Tuned().tasks_of(one).task(ways=Ways(channels_last=True))
    assert task.write(task.gains(), LAST, tmp_path / "pass").compiler == "pass"
    (source,) = (path.read_text() for path in (tmp_path / "pass").glob("whole_graph_*.py"))
    assert "memory_format=torch.channels_last" in source and "split" not in source
    assert interpreter.problems(tmp_path / "pass", one.variants[0]) == []


@pytest.mark.parametrize("captured", [True, False])
def test_a_pass_matches_the_graph_as_it_was_and_computes_the_other(captured, tmp_path, interpreter):
    one = sample(_variant())
    task = Tuned().tasks_of(one).task(ways=Ways(channels_last=True))
    assert task.write(task.gains(), replace(LAST, captured=captured), tmp_path / "pass").compiler == "pass"
    sources = [path.read_text() for path in sorted((tmp_path / "pass").glob("whole_graph_*.py"))]
    behind = [source.partition("def replacement_args") for source in sources]
    assert any("channels_last" in computed for _, _, computed in behind)
    assert not any("channels_last" in pattern for pattern, _, _ in behind), "the pattern is eager's"
    assert all(("captured(steps" in computed) == captured for _, _, computed in behind)
    assert check_dir(tmp_path / "pass") == []
    assert interpreter.problems(tmp_path / "pass", one.variants[0]) == []


@pytest.mark.parametrize("faster", [True, False])
def test_it_is_handed_in_where_it_is_measured_to_be_faster(faster, tmp_path):
    def rule(names, source):
        last = "memory_format=torch.channels_last" in source
        return 1.5 + (0.5 if faster else -0.3) * last

    one = sample(_variant())
    assert measuring(channels_last=True).attempt(one, tmp_path / "pass", attempt_by(rule, [])).compiler == "pass"
    written = "".join(path.read_text() for path in (tmp_path / "pass").glob("*.py"))
    assert ("memory_format=torch.channels_last" in written) == faster
    assert names_of(tmp_path / "pass")


@pytest.mark.gpu
@pytest.mark.parametrize("captured", [True, False])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_pass_has_eagers_bits_on_a_gpu(dtype, captured, tmp_path):
    from agent.ahead.quick_measure import QuickMeasure

    inputs = (tensor(2, 64, 28, 28), tensor(64, 64, 3, 3), tensor(64, 64, 1, 1), tensor(1))
    one = sample(variant(_net, *in_dtype(inputs, dtype)))
    task = Tuned().tasks_of(one).task(ways=Ways(channels_last=True))
    assert task.write(task.likely(0.0), replace(LAST, captured=captured), tmp_path / "pass").compiler == "pass"
    (result,) = QuickMeasure(torch.device("cuda:0"))(one, tmp_path / "pass")
    assert (result.status, result.t_min) == ("ok", -10)

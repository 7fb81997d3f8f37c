"""Passes of library calls, measured beside eager in this process."""

import json

import pytest
import torch

from agent.ahead.device_levels import agree, largest_share
from agent.ahead.output_levels import counted
from agent.ahead.quick_measure import QuickMeasure
from agent.distill.search.scores import is_right
from passbench.bench import Bench
from passbench.checking.tolerance import LEVELS, t_min
from passbench.contract import NAMES_FILE
from passbench.result import EAGER_FAILED
from passbench.settings import Settings
from tests.agent.support import in_dtype, sample, tensor, variant


def add_relu(x, y):
    return torch.relu(x + y)


def add_in_place(x, y):
    x += y
    return torch.relu(x)


SUM = "def pattern(x, y):\n    return x + y\n"
SMALL = (tensor(6, 8), tensor(6, 8))
PATTERN = "def pattern(x, y):\n    return torch.relu(x + y)\n"
IN_PLACE = "def pattern(x, y):\n    x += y\n    return torch.relu(x)\n"


def written(directory, body, pattern=PATTERN):
    """The directory of a pass that computes `body` where the pattern is."""
    directory.mkdir()
    source = f"import torch\n\n\n{pattern}\n\ndef replacement_args(x, y):\n    return (x, y)\n"
    source += f"\n\n@torch.fx.wrap\ndef fused(x, y):\n    {body}\n\n\ndef replacement_func():\n    return fused\n"
    (directory / "fuse.py").write_text(source)
    (directory / NAMES_FILE).write_text(json.dumps(["fuse"]))
    return directory


def measured(tmp_path, body, function=add_relu, pattern=PATTERN, inputs=SMALL, device="cpu"):
    one = sample(variant(function, *inputs))
    (result,) = QuickMeasure(torch.device(device))(one, written(tmp_path / "pass", body, pattern))
    return result


def test_a_right_pass_has_its_level_and_its_time(tmp_path):
    result = measured(tmp_path, "return torch.relu(x + y)")
    assert (result.status, result.t_min) == ("ok", -10)
    assert result.speedup("e2e") > 0 and result.speedup("device") is None


@pytest.mark.parametrize(("rows", "said"), [(6, ""), (5, "no plan for these tensors: pass_dir.fuse")])
def test_a_pass_without_a_plan_for_the_variant_says_so(rows, said, tmp_path):
    plans = f"from passbench.launch import PlanTable, plan_for\n\nX = (torch.float32, ({rows}, 8), (8, 1))\n"
    plans += f"PLANS = PlanTable({{(*X, *X): 1}})\n\n\n{PATTERN}"
    assert measured(tmp_path, "plan_for(PLANS, x, y)\n    return torch.relu(x + y)", pattern=plans).reason == said


def test_a_pass_that_does_more_is_slower(tmp_path):
    assert measured(tmp_path, "return [torch.relu(x + y) for _ in range(50)][-1]").speedup("e2e") < 0.5


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("return torch.relu(x + y) * 1000.0", "wrong"),
        ("return torch.relu(x + y).double()", "runtime_error"),
        ("return torch.relu(x + y)[:3]", "runtime_error"),
        ("return torch.relu((x + y).t().contiguous().t())", "runtime_error"),
        ("return x", "runtime_error"),
        ("raise ValueError('no')", "runtime_error"),
    ],
    ids=["wrong", "dtype", "shape", "strides", "alias", "raises"],
)
def test_what_is_wrong_is_told(tmp_path, body, status):
    result = measured(tmp_path, body)
    assert result.status == status and not result.timings


def test_what_is_hardly_wrong_is_right_at_a_higher_level_alone(tmp_path):
    result = measured(tmp_path, "return torch.relu(x + y) * 1.001")
    assert result.status == "ok" and result.t_min > -5 and result.t_min_eager == -10


@pytest.mark.gpu
def test_where_eager_adds_in_any_order_its_own_level_is_told(tmp_path):
    def scattered(x, y):
        return torch.zeros(4, device=x.device).index_add(0, (y.abs() * 1e6).long() % 4, x) + x.sum()

    found = measured(
        tmp_path,
        "return torch.add(x, y)",
        lambda x, y: scattered(x, y) + scattered(y, x),
        SUM,
        (tensor(1 << 18), tensor(1 << 18)),
        "cuda",
    )
    assert is_right(found) and found.t_min_eager > -5, found


@pytest.fixture
def many_threads():
    """More of torch's than there are cores, which add to one element of a tensor in any order: with two on a busy
    machine, the second often begins after the first has ended, so that both orders are the same."""
    before = torch.get_num_threads()
    torch.set_num_threads(8)
    yield
    torch.set_num_threads(before)


def varying_and_sum(x, y):
    """A number between -0.5 and 0.5 by the last bits of a sum that a CPU takes in any order, and a sum that comes in
    one."""
    place = torch.zeros(x.numel(), dtype=torch.int64, device=x.device)
    left = torch.zeros(1, device=x.device).index_put((place,), x.reshape(-1), accumulate=True) - x.sum()
    return torch.sin(left * 1e6) * 0.5, x + y


def varying_on_a_gpu_and_sum(x, y):
    """As `varying_and_sum`: a GPU adds for `index_add` in any order, a CPU in one. `index_put` sorts on a GPU."""
    place = torch.zeros(x.numel(), dtype=torch.int64, device=x.device)
    left = torch.zeros(1, device=x.device).index_add(0, place, x.reshape(-1)) - x.sum()
    return torch.sin(left * 1e6) * 0.5, x + y


@pytest.mark.parametrize(
    ("factor", "low", "high"),
    [("1.0", -10, -10), ("1.0000001", -9, -5), ("1.001", -4, -1)],
    ids=["equal", "inexact", "wrong"],
)
def test_an_output_that_eager_repeats_must_be_right_however_far_another_one_varies(
    factor, low, high, tmp_path, many_threads
):
    one = sample(variant(varying_and_sum, tensor(1 << 18), tensor(1 << 18)))
    measure = QuickMeasure(torch.device("cpu"), timed=False, further=2)
    directory = written(tmp_path / "pass", f"return (x + y) * {factor}", SUM)
    (found,) = measure(one, directory)
    assert found.status == "ok" and found.t_min_eager == 0 and low <= found.t_min <= high, found
    ((checked, draws, *_),) = measure.check(one, directory, 5, 60.0)
    assert low <= checked <= high and draws == (5 if high <= -5 else 1)


def test_passbench_tells_how_near_each_output_is(tmp_path):
    def both(x, y):
        return x + y, torch.relu(x * y)

    directory = written(tmp_path / "pass", "return (x + y) * 1.001", SUM)
    with Bench("cpu", Settings(double=False)) as bench:
        (found,) = bench.run(sample(variant(both, *SMALL)), "pass", directory)
    assert found.levels == {0: found.t_min} and -5 < found.t_min < 0 and found.levels_eager == {}
    assert counted(found) == found


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("factor", "low", "high"), [("1.0", -10, -10), ("1.001", -4, -1)], ids=["equal outputs", "a wrong output"]
)
def test_passbench_tells_how_near_eager_is_to_itself_in_each_output(factor, low, high, tmp_path):
    one = sample(variant(varying_on_a_gpu_and_sum, tensor(1 << 18), tensor(1 << 18)))
    directory = written(tmp_path / "pass", f"return (x + y) * {factor}", SUM)
    with Bench("cuda", Settings(double=False)) as bench:
        (found,) = bench.run(one, "pass", directory)
    assert found.status == "ok" and found.levels_eager == {0: 0} and found.levels[0] == found.t_min == 0, found
    assert low <= found.levels.get(1, -10) <= high and low <= counted(found).t_min <= high


def test_a_pass_that_is_right_on_usual_inputs_alone_is_wrong(tmp_path):
    assert not is_right(measured(tmp_path, "return torch.relu(x + y).clamp(max=6.0)"))


def test_a_pattern_that_is_nowhere_does_not_match(tmp_path):
    assert measured(tmp_path, "return x", pattern=PATTERN.replace("+", "-")).status == "no_match"


def test_what_eager_writes_in_place_must_be_written(tmp_path):
    assert measured(tmp_path, "return torch.relu(x.add_(y))", add_in_place, IN_PLACE).t_min == -10
    (tmp_path / "other").mkdir()
    assert not is_right(measured(tmp_path / "other", "return torch.relu(x + y)", add_in_place, IN_PLACE))


def test_where_eager_fails_the_pass_is_not_to_blame(tmp_path):
    result = measured(tmp_path, "return x", inputs=(tensor(6, 8), tensor(5, 7)))
    assert result.status == "runtime_error" and result.reason.startswith(EAGER_FAILED)


def test_each_variant_has_a_result_and_passes_follow_each_other(tmp_path):
    dtypes = ("float32", "bfloat16")
    one = sample(*(variant(add_relu, *in_dtype(SMALL, d)).with_changes(variant_hash=d) for d in dtypes))
    measure = QuickMeasure(torch.device("cpu"))
    wrong, right = (written(tmp_path / name, f"return torch.relu(x {name} y)") for name in ("-", "+"))
    assert not any(map(is_right, measure(one, wrong)))
    assert [r.t_min for r in measure(one, right)] == [-10] * 2


def test_a_pass_that_writes_over_an_input_is_wrong_and_spoils_nothing(tmp_path):
    one, measure = sample(variant(add_relu, *SMALL)), QuickMeasure(torch.device("cpu"), timed=False)
    (found,) = measure(one, written(tmp_path / "over", "return torch.relu(x.add_(y)).clone()"))
    assert found.status == "wrong" and "input 0" in found.reason
    (found,) = measure(one, written(tmp_path / "right", "return torch.relu(x + y)"))
    assert (found.status, found.t_min, found.timings) == ("ok", -10, ())


@pytest.mark.gpu
def test_both_sides_get_the_same_inputs(tmp_path):
    """Large ones, with thousands of spikes."""
    large = (tensor(1 << 12, 1 << 12), tensor(1 << 12, 1 << 12))
    assert measured(tmp_path, "return torch.relu(x + y)", inputs=large, device="cuda").t_min == -10


def test_what_is_measured_again_is_given_other_and_more_inputs(tmp_path, capsys):
    measure, seen = QuickMeasure(torch.device("cpu")), []
    directory = written(tmp_path / "pass", "print(float(x.sum()))\n    return torch.relu(x + y)")
    for _ in range(2):
        assert is_right(measure(sample(variant(add_relu, *SMALL)), directory)[0])
        seen.append(set(capsys.readouterr().out.split()))
    first, second = seen
    assert 8 <= len(first) < 24 <= len(second) and not first & second


@pytest.mark.parametrize(
    ("body", "doubtful", "draws"), [("x + y", False, 8), ("x * 1.0000004 + y", False, 13), ("x + y", True, 13)]
)
def test_a_pass_that_rounds_otherwise_or_is_doubtful_has_further_draws(tmp_path, capsys, body, doubtful, draws):
    measure = QuickMeasure(torch.device("cpu"), timed=False, further=5)
    directory = written(
        tmp_path / "pass", f"print(float(x.sum()))\n    return {body}", "def pattern(x, y):\n    return x + y\n"
    )
    (found,) = measure(sample(variant(add, *SMALL)), directory, doubtful)
    assert found.t_min <= -5 and (found.t_min == -10) == ("1.0000004" not in body)
    assert len(set(capsys.readouterr().out.split())) == draws


def test_timed_calls_do_not_add_up_what_they_write_to_an_index(tmp_path):
    """Eager fails at the second call on the same inputs, where the index is beyond the table."""
    index = tensor(6, dtype="int64", low=3.0, high=3.0)
    pattern = "def pattern(x, y):\n    x += 1\n    return torch.nn.functional.embedding(x, y)\n"
    body = "x += 1\n    return torch.nn.functional.embedding(x, y)"
    result = measured(tmp_path, body, embedded, pattern, (index, tensor(5, 8)))
    assert (result.status, result.t_min) == ("ok", -10) and result.speedup("e2e") > 0


def embedded(x, y):
    x += 1
    return torch.nn.functional.embedding(x, y)


def test_a_pass_that_is_wrong_in_a_further_draw_is_wrong(tmp_path):
    lines = "seen.append(1)\n    return x + y + (1e-3 if len(seen) > 10 else 3e-6)"
    directory = written(tmp_path / "pass", lines, f"seen = []\n\n\n{SUM}")
    one = sample(variant(add, *SMALL))
    levels = [QuickMeasure(torch.device("cpu"), timed=False, further=n)(one, directory)[0].t_min for n in (0, 5)]
    assert levels[0] <= -5 < levels[1]


@pytest.mark.parametrize(
    ("draws", "seconds", "expected"), [(5, 60.0, (-10, 5)), (99, 60.0, (-1, 8)), (99, 0.0, (-10, 0))]
)
def test_draws_on_top_end_with_a_wrong_one_or_with_their_time(tmp_path, draws, seconds, expected):
    """What is wrong from the ninth input on: the first one compiles the pass."""
    lines = "seen.append(float(x.sum()))\n    return x + y + (0.1 if len(set(seen)) > 8 else 0.0)"
    directory = written(tmp_path / "pass", lines, f"seen = []\n\n\n{SUM}")
    one, measure = sample(variant(add, *SMALL)), QuickMeasure(torch.device("cpu"))
    assert [found[:2] for found in measure.check(one, directory, draws, seconds)] == [expected]


@pytest.mark.parametrize(
    ("apart", "dtype", "low", "high", "draws"),
    [(0.0, "float32", 0.0, 0.0, 100), (3e-6, "float32", 0.1, 0.5, 100), (3e-6, "float16", None, None, 100)],
)
def test_draws_on_top_tell_how_much_of_what_is_allowed_is_taken(tmp_path, apart, dtype, low, high, draws):
    directory = written(tmp_path / "pass", f"return x + y + {apart}", SUM)
    one = sample(variant(add, *in_dtype(SMALL, dtype)))
    (found,) = QuickMeasure(torch.device("cpu")).check(one, directory, draws, 60.0)
    assert found.draws == draws and len(found.shares) == (draws if low is not None else 0)
    assert all(low <= share <= high for share in found.shares)


def test_draws_end_where_passbench_is_likely_to_find_one_wrong(tmp_path):
    body = "return x + y + 0.9e-5 * float(x[0, 0] * 100.0 % 1.0)"
    directory = written(tmp_path / "pass", body, SUM)
    (found,) = QuickMeasure(torch.device("cpu")).check(sample(variant(add, *SMALL)), directory, 512, 60.0)
    assert found.level == -5 and 48 <= found.draws < 100 and max(found.shares) < 1.0


def test_draws_of_large_outputs_are_few_at_a_time(tmp_path, capsys):
    """All of a batch are called before the first is compared. Here the first one is wrong."""
    pattern = "def pattern(x, y):\n    return torch.outer(x, y)\n"
    directory = written(tmp_path / "pass", "print('called')\n    return torch.outer(x, y) + 1.0", pattern)
    for size, calls in ((8, 8), (1500, 1)):
        one = sample(variant(lambda x, y: torch.outer(x, y), tensor(size), tensor(size)))
        (found,) = QuickMeasure(torch.device("cpu")).check(one, directory, 64, 60.0)
        assert found.draws == 1 and found.level != -10
        assert capsys.readouterr().out.count("called") == 1 + calls, "one compiles"


def test_shares_are_those_of_what_is_allowed_at_minus_5():
    expected = torch.tensor([0.0, 10.0, torch.inf, torch.nan])
    shares = largest_share([[expected + torch.tensor([0.0, 1e-5, 0.0, 0.0])], [expected]], [[expected], [expected]])
    assert shares.tolist() == [pytest.approx(10e-6 / (1e-5 + 10.0 * 10**-5.886), rel=0.1), 0.0]
    whole, half = torch.arange(3), expected.half()
    assert largest_share([[whole, expected]], [[whole, expected]]).tolist() == [0.0]
    assert largest_share([[half]], [[half]]).isnan().all()
    assert largest_share([[expected, half]], [[expected, half]]).isnan().all()
    assert largest_share([[], []], [[], []]).tolist() == [0.0, 0.0]
    number, nothing = torch.tensor(2.0), torch.empty(0)
    assert largest_share([[number, nothing]] * 2, [[number, nothing]] * 2).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.complex64, torch.int64])
def test_many_draws_are_compared_by_the_levels_of_one(dtype):
    expected = (torch.randn(500) * 10).to(dtype)
    others = [expected, expected + 1, *((expected * (1 + 10.0**-n)).to(dtype) for n in range(1, 9))]
    if dtype.is_floating_point:
        expected[:2] = torch.tensor([torch.nan, torch.inf], dtype=dtype)
        others += [torch.where(torch.arange(500) == n, 1, expected) for n in (0, 1)] + [expected.clone()]
        others[-1][5] = torch.nan
    found = agree([[expected, other] for other in others], [[expected, expected]] * len(others), LEVELS).tolist()
    for other, told in zip(others, found, strict=True):
        least = t_min([other], [expected])
        assert told == [least is not None and level >= least for level in LEVELS]


def add(x, y):
    return x + y


@pytest.mark.gpu
def test_the_gpu_has_a_clock_of_its_own(tmp_path):
    large = (tensor(1 << 12, 1 << 12), tensor(1 << 12, 1 << 12))
    body = "return [torch.relu(x + y) for _ in range(4)][-1]"
    result = measured(tmp_path, body, inputs=large, device="cuda")
    assert result.status == "ok"
    assert 0.2 < result.speedup("device") < 0.3
    device = next(t for t in result.timings if t.clock == "device")
    assert 30 < device.eager_us < 300, "two kernels that move 192 and 128 MB"

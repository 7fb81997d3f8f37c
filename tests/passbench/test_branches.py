"""`branch`: what it runs as it is, what a pass may hand to it, and on a GPU what is side by side."""

import pytest
import torch

from passbench.launch.branches import MOST_BRANCHES, branch
from passbench.launch.capture import GraphCapture
from tests.passbench.policy.test_policy import HEAD, check

needs_gpu = pytest.mark.gpu
CYCLES = 4_000_000
"""About 2 ms of an H200."""


def twice(x):
    return x * 2.0


def product(x, y):
    return x @ y


def both(x, w):
    """Four products, of which the last two each need one of the others; and what only one branch has made."""
    left = branch(0, product, x, w)
    right = branch(1, product, w, x)
    third = branch(2, twice, right)
    return branch(1, product, left, right), branch(0, product, right, left), third


def waits(x):
    torch.cuda._sleep(CYCLES)
    return x + 1.0


def three_waits(x):
    return branch(0, waits, x), branch(1, waits, x), branch(2, waits, x)


def nested(x):
    return [x + 1.0, (x * 2.0,)]


def fails(x):
    branch(1, twice, x)
    raise ValueError("after a branch began")


def test_where_nothing_is_recorded_the_function_is_called():
    x = torch.randn(4, 4)
    assert torch.equal(branch(1, twice, x), twice(x))
    with pytest.raises(ValueError, match="numbered from 0"):
        branch(MOST_BRANCHES, twice, x)
    with pytest.raises(ValueError, match="numbered from 0"):
        branch(-1, twice, x)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_gpu)])
def test_tensors_in_containers_are_refused(device):
    """Of these nobody would see which branch has made them, and another would read them too early."""
    x, capture = torch.ones(4, device=device), GraphCapture()

    def handed_on(x):
        return branch(0, sum, [x, branch(1, twice, x)])

    def returned(x):
        return branch(1, nested, x)

    for function in (handed_on, returned):
        with pytest.raises(TypeError, match="tensors"):
            capture(function, x)


PASS = (
    HEAD
    + """
def part(x):
    return x + 1.0, x * 2.0

def total(y, z):
    return y + z

def steps(x):
    y, z = branch(GIVEN)
    return branch(0, total, y, z)

@torch.fx.wrap
def wrapper(x, y, route, n):
    return captured(steps, x)
"""
)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("1, part, x", None),
        ("x.ndim, part, x", "branch takes its number"),
        ("1, torch.relu, x", "take a function of the pass"),
        ("1, part, [torch.zeros_like(x)]", "one by one"),
        ("part, x", "branch takes its number"),
    ],
)
def test_what_a_pass_may_hand_to_it(given, problem, tmp_path):
    imports = "from passbench.launch import branch, captured\n"
    found = check(tmp_path, imports + PASS.replace("GIVEN", given))
    assert (problem in str(found)) if problem else not found, found


def test_what_a_branch_gets_is_not_its_own_to_write_to(tmp_path):
    source = PASS.replace("GIVEN", "1, part, torch.zeros_like(x)")
    source = source.replace("return x + 1.0, x * 2.0", "x += 1.0\n    return x, x")
    assert check(tmp_path, "from passbench.launch import branch, captured\n" + source)


def _given(seed):
    generator = torch.Generator("cuda").manual_seed(seed)
    return [torch.randn(64, 64, generator=generator, device="cuda") for _ in range(2)]


@needs_gpu
def test_branches_return_what_the_calls_return_one_after_another():
    capture = GraphCapture()
    for seed in range(20):
        x, w = _given(seed)
        for got, wanted in zip(capture(both, x, w), both(x, w), strict=True):
            assert torch.equal(got, wanted)


@needs_gpu
def test_branches_are_side_by_side():
    capture, x = GraphCapture(), torch.ones(8, device="cuda")
    capture(three_waits, x)
    took = []
    for call in (waits, lambda x: capture(three_waits, x)):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        found = call(x)
        end.record()
        torch.cuda.synchronize()
        took.append(begin.elapsed_time(end))
    assert took[1] < 1.5 * took[0], "three take about as long as one"
    assert all(torch.equal(each, x + 1.0) for each in found)


@needs_gpu
def test_branches_within_another_capture_are_joined_too():
    """As the device clock captures calls of a pass."""
    capture, rows = GraphCapture(), [_given(seed) for seed in range(3)]
    capture(both, *rows[0])
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        found = [capture(both, *row) for row in rows]
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()
    for row, got in zip(rows, found, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(got, both(*row), strict=True))


@needs_gpu
def test_a_function_that_raises_leaves_no_branch_behind():
    capture, (x, w) = GraphCapture(), _given(0)
    with pytest.raises(ValueError, match="after a branch began"):
        capture(fails, x)
    torch.cuda.synchronize()
    assert all(torch.equal(a, b) for a, b in zip(capture(both, x, w), both(x, w), strict=True))

"""`captured`: what it runs as it is, and on a GPU what a replay returns."""

import functools
import math
import threading

import pytest
import torch
from triton.runtime.interpreter import InterpretedFunction

from passbench.launch import capture
from passbench.launch.capture import MOST_RECORDINGS, GraphCapture, _layout, captured, to_forget
from passbench.launch.copies import SLOTS, copy_pieces_kernel, pieces_of
from passbench.launch.graph_copies import is_flat, overlaps_itself
from tests.passbench.policy.test_policy import HEAD, check

needs_gpu = pytest.mark.gpu


def steps(x, w, scale):
    y = torch.relu(x @ w)
    return y * scale, y.sum(-1), None, 3


def one(x):
    return x.transpose(0, 1) + 1.0


def test_on_a_cpu_the_function_is_called():
    x, w = torch.randn(4, 8), torch.randn(8, 8)
    for got, wanted in zip(captured(steps, x, w, 2.0), steps(x, w, 2.0), strict=True):
        assert torch.equal(got, wanted) if isinstance(got, torch.Tensor) else got == wanted


def test_tensors_come_one_by_one():
    with pytest.raises(TypeError, match="tensors and numbers"):
        captured(one, [torch.ones(2, 2)])


def test_only_a_function_of_its_own_is_taken():
    outer = torch.ones(2)
    for bad in (torch.relu, functools.partial(one), lambda x: x + outer):
        with pytest.raises(TypeError, match="captured takes a function"):
            captured(bad, torch.ones(2, 2))


@pytest.mark.parametrize(
    ("shape", "stride", "expected"),
    [
        ((3, 4), (4, 1), False),
        ((3, 4), (1, 3), False),
        ((3, 4), (8, 2), False),
        ((3, 4), (0, 1), True),
        ((3, 4), (2, 1), True),
        ((1, 4), (0, 1), False),
        ((0, 4), (0, 0), False),
    ],
)
def test_what_overlaps_itself(shape, stride, expected):
    assert overlaps_itself(torch.empty(32).as_strided(shape, stride)) is expected


def test_what_is_copied_as_bytes():
    x = torch.empty(4, 6)
    assert all(is_flat(a) for a in (x, x.t(), x[1:], x.unsqueeze(1), x[:1].expand(3, 6)))
    assert not any(is_flat(a) for a in (x[:, 1:], x[::2], x.t()[1:]))


def test_the_copying_kernel():
    sizes = (0, 1, 7, 8, 8193)
    given = [torch.randint(-128, 128, (size,), dtype=torch.int8) for size in sizes]
    copies = [torch.zeros_like(x) for x in given]
    noted, unused = torch.zeros(SLOTS, dtype=torch.int64), [torch.zeros(1, dtype=torch.int8)] * (SLOTS - len(sizes))
    places = torch.tensor([x.data_ptr() for x in (*copies, *unused)])
    pieces = torch.tensor(pieces_of(sizes))
    kernel = InterpretedFunction(copy_pieces_kernel.fn)
    kernel[(len(pieces),)](*given, *unused, pieces, places, noted, NOTES=True, WORDS=1024)
    assert all(torch.equal(x, copy) for x, copy in zip(given, copies, strict=True))
    assert noted.tolist() == [x.data_ptr() for x in (*given, *unused)]


@pytest.mark.parametrize(("a", "b"), [(0.0, -0.0), (1, 1.0), (1, True), (0.1, 0.2)])
def test_numbers_that_are_told_apart(a, b):
    assert _layout(a) == _layout(a) and _layout(a) != _layout(b)


def test_nan_is_like_itself():
    assert _layout(float("nan")) == _layout(float("nan"))


_WRAPPER = """
from passbench.launch import captured

@functools.cache
def remembered(x):
    return x

def steps(x, y):
    {body}
    return torch.relu(x + y)

@torch.fx.wrap
def wrapper(x, y, route, k):
    {call}
"""


@pytest.mark.parametrize(
    ("body", "call", "rules"),
    [
        ("x = x * 2", "return captured(steps, x, y)", []),
        ("x = x * 2", "return captured(steps, torch.zeros_like(x), y)", []),
        ("x += 1", "return captured(steps, torch.zeros_like(x), y)", ["in_place"]),
        ("x = x * float(x.sum())", "return captured(steps, x, y)", ["host_read"]),
        ("x = x * 2", "return captured(remembered, x)", ["launch"]),
        ("x = x * 2", "return captured(torch.relu, x)", ["launch"]),
        ("x = x * 2", "return captured(steps, [torch.zeros_like(x)], y)", ["launch"]),
        ("x = x * 2", "return captured(steps, x=x, y=y)", ["launch"]),
        ("x = x * 2", "return captured(pattern, x, y)", ["forbidden_call"]),
        ("x = x * 2", "f = captured\n    return f(steps, x, y)", ["function_as_value"]),
        ("x = x * 2", "captured.forget()\n    return captured(steps, x, y)", ["forbidden_call"]),
    ],
)
def test_what_the_policy_says(body, call, rules, tmp_path):
    found = check(tmp_path, "import functools\n" + HEAD + _WRAPPER.format(body=body, call=call))
    assert set(rules) <= {f.rule for f in found}
    assert bool(found) == bool(rules), found


@pytest.fixture
def fresh():
    """A GraphCapture that knows nothing yet."""
    with torch.no_grad():
        yield GraphCapture()


def _given(*shape, **options):
    return torch.randn(*shape, device="cuda", **options)


@needs_gpu
def test_a_replay_returns_what_the_function_returns(fresh):
    kept = []
    for _ in range(4):
        x, w = _given(64, 32), _given(32, 48)
        got, wanted = fresh(steps, x, w, 2.0), steps(x, w, 2.0)
        assert got[2:] == (None, 3)
        for a, b in zip(got[:2], wanted[:2], strict=True):
            assert torch.equal(a, b) and a.stride() == b.stride()
        kept.append((got[0], wanted[0]))
    assert all(torch.equal(a, b) for a, b in kept), "a later call wrote over an earlier result"
    assert len({a.data_ptr() for a, _ in kept}) == 4
    assert len(fresh._recordings) == 1


def divided(x, y):
    return x / y


@needs_gpu
def test_zeros_of_both_signs_have_recordings_of_their_own(fresh):
    x = torch.ones(8, device="cuda")
    found = [fresh(divided, x, y)[0].item() for y in (0.0, -0.0, 0.0)]
    assert found == [math.inf, -math.inf, math.inf] and len(fresh._recordings) == 2


@needs_gpu
def test_layouts(fresh):
    for x in (_given(6, 5), _given(5, 6).t(), _given(6, 10)[:, ::2], _given(1, 5).expand(6, 5), _given(6, 5).half()):
        for _ in range(2):
            got, wanted = fresh(one, x), one(x)
            assert torch.equal(got, wanted) and got.stride() == wanted.stride()
    assert len(fresh._recordings) == 5
    numbers = [fresh(steps, _given(4, 4), _given(4, 4), n)[0] for n in (1, 1.0, True)]
    assert len(fresh._recordings) == 8 and len(numbers) == 3


def unwritten(x):
    return torch.empty_like(x), x + 1.0


@needs_gpu
def test_a_recording_waits_while_algorithms_are_to_be_deterministic(fresh):
    """They are others, such as those of a convolution's gradient, and torch fills memory with NaN then."""
    x = _given(64, 64)
    for _ in range(2):
        fresh(unwritten, x)
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        found = fresh(unwritten, x)
    finally:
        torch.use_deterministic_algorithms(False)
    assert found[0].isnan().all() and torch.equal(found[1], x + 1.0)
    assert len(fresh._recordings) == 1 and torch.equal(fresh(unwritten, x)[1], x + 1.0)


def many(*tensors):
    """More results than one launch copies: views of inputs, odd sizes, gaps, an offset, and a number."""
    return (*[x + 1 for x in tensors], tensors[0], tensors[1][1:], tensors[1][:, 1:], tensors[2] > 0, 7)


@needs_gpu
def test_many_tensors_of_any_size_and_address(fresh):
    for first in (0, 1):  # the second time no address is a multiple of 16
        for dtype in (torch.float16, torch.int8):
            given = [(_given(3 * n * n + first) * 9).to(dtype)[first:].view(3, n, n) for n in range(1, SLOTS + 3)]
            for _ in range(2):
                results = zip(fresh(many, *given), many(*given), strict=True)
                assert all(torch.equal(*pair) and pair[0].stride() == pair[1].stride() for pair in [*results][:-1])
    assert len(fresh._recordings) == 2


@needs_gpu
def test_threads_take_turns(fresh):
    wrong = []
    fresh(steps, _given(8, 8), _given(8, 8), 1.0)

    def work(value):
        for step in range(200):
            x, w = torch.full((8, 8), value + step, device="cuda"), torch.eye(8, device="cuda")
            with torch.no_grad():
                wrong.extend([step] * (not torch.equal(fresh(steps, x, w, 1.0)[0], x)))

    threads = [threading.Thread(target=work, args=(1000.0 * n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@needs_gpu
def test_inside_of_another_capture_the_function_runs(fresh):
    x = _given(8, 8)
    fresh(one, x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        got = fresh(one, x)
    x.fill_(3.0)
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(got, one(x))


@needs_gpu
def test_another_stream_has_buffers_of_its_own(fresh):
    x = _given(8, 8)
    wanted = one(x)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    fresh(one, x)
    with torch.cuda.stream(stream):
        got = fresh(one, x)
    torch.cuda.synchronize()
    assert torch.equal(got, wanted)
    assert len(fresh._recordings) == 2


@needs_gpu
def test_the_last_used_are_kept(fresh, monkeypatch):
    monkeypatch.setattr(capture, "MOST_RECORDINGS", 2)
    for n in (2, 3, 4, 3):
        x = _given(n, n)
        assert torch.equal(fresh(one, x), one(x))
    assert len(fresh._recordings) == 2


@pytest.mark.parametrize(
    ("recordings", "latest", "expected"),
    [("abcn", "", "a"), ("abcn", "a", "b"), ("abcn", "abc", "a"), ("bacn", "cba", "c"), ("an", "a", "a")],
)
def test_what_is_forgotten_is_neither_new_nor_what_a_function_used_last(recordings, latest, expected):
    """Unless all functions but the new one used theirs last."""
    assert to_forget(map(tuple, recordings), list(map(tuple, latest)), ("n",)) == (expected,)


@needs_gpu
def test_more_functions_than_recordings(fresh):
    """Each has used its own last, and the newest must stay."""
    x = torch.ones(8, device="cuda")
    functions = [_twice_plus(number) for number in range(MOST_RECORDINGS + 3)]
    for _ in range(2):
        for number, function in enumerate(functions):
            assert fresh(function, x).tolist() == [2.0 + number] * 8


def _twice_plus(number):
    names = {}
    exec(f"def function(x):\n    return x * 2 + {number}", names)
    return names["function"]


@needs_gpu
def test_large_inputs_and_gradients_run_as_they_are(fresh, monkeypatch):
    x = _given(8, 8, requires_grad=True)
    with torch.enable_grad():
        assert fresh(one, x).requires_grad
    monkeypatch.setattr(capture, "MOST_BYTES", 16)
    y = _given(4, 4)
    assert torch.equal(fresh(one, y), one(y))
    assert fresh._recordings[next(reversed(fresh._recordings))] is None

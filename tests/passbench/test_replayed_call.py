"""`ReplayedCall`: what reaches the driver and in which order, and when the call is left to Python.

Functions of CUDA's driver that note what they are asked for stand in for the real ones; the CPU's tensors for a GPU's.
"""

import functools

import pytest
import torch
from torch._C._dynamo import guards

from passbench.launch import replayed_call as module
from passbench.launch.native_launch import native
from passbench.launch.replayed_call import Condition, Replay, replayed_call
from tests.support.cuda_driver import CudaDriver, Run, skip_without_native

LAYOUT = ((4,), (1,), torch.float32)
STREAM, GRAPH = 7, 6000
FIRST, SECOND = 1, 2
"""Functions of two kernels, the copies."""


@pytest.fixture
def cuda(monkeypatch):
    """A driver that knows a graph of two copies."""
    skip_without_native()
    cuda = CudaDriver({FIRST: "OOO", SECOND: "OO"})
    cuda.graphs[GRAPH - 1000] = [10, 11]
    cuda.nodes |= {10: (FIRST, (1, 1, 1), 32, []), 11: (SECOND, (1, 1, 1), 32, [])}
    monkeypatch.setattr(module, "empty_on_current_device", guards._empty_strided_cpu)
    return cuda


def launches(cuda, results=1):
    """The first copy has an input, a result and a place; the second an input and a place."""
    driver, tensors = cuda.functions(), 2 + results
    first = native().Kernel(driver, 0, FIRST, (1, 1, 1), 32, 0, 3, "", ())
    second = native().Kernel(driver, 0, SECOND, (1, 1, 1), 32, 0, 2, "", ())
    steps = (first, (0, 2, tensors)), (second, (1, tensors + 1))
    return native().Launches(tensors + 2, steps, False, GRAPH, (10, 11))


def made(cuda, results=(LAYOUT,), *, single=False, same=lambda *given: True, says=True):
    replay = Replay(2, results, single, (4096, 8192), launches(cuda, len(results)), cuda)
    conditions = [Condition(abs, (-3,), 3), Condition(bool, (1,), says)]
    return replayed_call(replay, same, conditions, STREAM, lambda *given: ("otherwise", *given))


@pytest.mark.parametrize("single", [False, True])
def test_the_graph_gets_each_calls_tensors_and_results_are_fresh(cuda, single):
    results = (LAYOUT,) if single else (LAYOUT, LAYOUT)
    call, x = made(cuda, results, single=single), torch.zeros(4)
    kept = []
    for y in (torch.zeros(8), torch.zeros(8)):
        found = call(x, y)
        fresh = (found,) if single else found
        assert type(fresh) is tuple and len(fresh) == len(results)
        assert all(one.shape == (4,) and one.dtype == torch.float32 for one in fresh)
        kept.append((y, *fresh))
    assert cuda.runs == [
        Run(*each, STREAM, arguments, GRAPH)
        for y, one, *_ in kept
        for each, arguments in [
            ((FIRST, (1, 1, 1), 32), [x.data_ptr(), one.data_ptr(), 4096]),
            ((SECOND, (1, 1, 1), 32), [y.data_ptr(), 8192]),
        ]
    ]


def test_what_is_left_to_python(cuda):
    x, y = torch.zeros(4), torch.zeros(8)
    for call, given in [
        (made(cuda, says=False), (x, y)),
        (made(cuda, same=lambda *given: False), (x, y)),
        (made(cuda), (x[1:], y)),
        (made(cuda), (x,)),
        (made(cuda), ()),
    ]:
        found = call(*given)
        assert found[0] == "otherwise" and len(found) == 1 + len(given)
    assert not cuda.runs


def test_an_error_of_the_driver_is_raised(cuda):
    call = made(cuda)
    cuda.errors = [700, 700]
    for _ in range(2):
        with pytest.raises(RuntimeError, match="driver error 700 at a launch: a launch that failed"):
            call(torch.zeros(4), torch.zeros(8))
    cuda.refused = {"set_parameters"}
    with pytest.raises(RuntimeError, match="999"):
        call(torch.zeros(4), torch.zeros(8))
    cuda.refused = set()
    assert call(x := torch.zeros(4), torch.zeros(8)) and cuda.runs[0].arguments[0] == x.data_ptr()


def test_an_error_of_what_it_asks_is_raised(cuda):
    with pytest.raises(ZeroDivisionError):
        made(cuda, same=lambda *given: 1 / 0)(torch.zeros(4), torch.zeros(8))
    with pytest.raises(AttributeError, match="data_ptr"):
        made(cuda)(torch.zeros(4), 1.0)
    assert not cuda.runs


@pytest.mark.parametrize(
    "wrong",
    [
        {"launches": None},
        {"results": ((4,),)},
        {"results": (LAYOUT, LAYOUT), "single": True},
        {"places": ("text", 0)},
        {"places": ()},
        {"inputs": 5000},
        {"inputs": -1},
    ],
)
def test_what_it_is_not_made_of(cuda, wrong):
    right = Replay(2, (LAYOUT,), False, (4096, 8192), launches(cuda), cuda)
    make = functools.partial(replayed_call, same=bool, conditions=(), stream=STREAM, otherwise=bool)
    make(right)
    with pytest.raises((TypeError, ValueError)):
        make(right._replace(**wrong))

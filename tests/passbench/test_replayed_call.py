"""`ReplayedCall`: what reaches the driver and in which order, and when the call is left to Python.

Functions of CUDA's driver that note what they are asked for stand in for the real ones; the CPU's tensors for a GPU's.
"""

import ctypes
import functools
import subprocess
import threading

import pytest
import torch
from torch._C._dynamo import guards

from passbench.launch import replayed_call as module
from passbench.launch.guarded_call import Step
from passbench.launch.native_launch import native
from passbench.launch.replayed_call import Condition, Replay, replayed_call

LAYOUT = ((4,), (1,), torch.float32)
STREAM, GRAPH = 7, 99


class Driver:
    """Notes launches and replays in `seen`; a replay answers `error`."""

    def __init__(self) -> None:
        self.seen, self.error = [], 0
        integer, pointer = ctypes.c_int, ctypes.c_void_p
        pointers = ctypes.POINTER(pointer)
        launch = ctypes.CFUNCTYPE(integer, pointer, *[ctypes.c_uint] * 7, pointer, pointers, pointer)
        text = ctypes.CFUNCTYPE(integer, integer, ctypes.POINTER(ctypes.c_char_p))
        replay = ctypes.CFUNCTYPE(integer, pointer, pointer)
        self._kept = launch(self._launch), text(self._text), replay(self._replay)
        self.launch, self.text, self.replay = [ctypes.cast(each, pointer).value for each in self._kept]

    def kernel(self, tensors: int):
        functions = self.launch, self.text, self.text, self.text
        return native().Kernel(functions, 0, tensors, (1, 1, 1), 32, 0, tensors, "", ())

    def _launch(self, function, x, y, z, threads, threads_y, threads_z, shared, stream, arguments, extra):
        given = [ctypes.cast(arguments[n], ctypes.POINTER(ctypes.c_uint64)).contents.value for n in range(function)]
        self.seen.append(("copy", given, stream))
        return 0

    def _text(self, error, text):
        text[0] = b"a graph that failed"
        return 0

    def _replay(self, graph, stream):
        self.seen.append(("replay", graph, stream))
        return self.error


@pytest.fixture
def driver(monkeypatch):
    try:
        native()
    except (RuntimeError, subprocess.CalledProcessError) as error:
        pytest.skip(f"launches in C need gcc and Python's headers: {error}")
    driver = Driver()
    monkeypatch.setattr(module, "graph_launch", lambda: driver.replay)
    monkeypatch.setattr(module, "empty_on_current_device", guards._empty_strided_cpu)
    return driver


def made(driver, results=(LAYOUT, LAYOUT), *, single=False, same=lambda *given: True, says=True, lock=None):
    """A call of two inputs. Its first copy has an input, the results and a place; its second an input and a place."""
    tensors = 2 + len(results)
    steps = [
        Step(driver.kernel(2 + len(results)), (0, *range(2, tensors), tensors)),
        Step(driver.kernel(2), (1, tensors + 1)),
    ]
    replay = Replay(2, results, single, (4096, 8192), steps, GRAPH, lock or threading.Lock(), driver)
    conditions = [Condition(abs, (-3,), 3), Condition(bool, (1,), says)]
    return replayed_call(replay, same, conditions, STREAM, lambda *given: ("otherwise", *given))


@pytest.mark.parametrize("single", [False, True])
def test_copies_come_before_the_replay_and_results_are_fresh(driver, single):
    results = (LAYOUT,) if single else (LAYOUT, LAYOUT)
    call, (x, y) = made(driver, results, single=single), (torch.zeros(4), torch.zeros(8))
    found = [call(x, y) for _ in range(2)]
    fresh = [(each,) if single else each for each in found]
    assert [type(each) for each in fresh] == [tuple, tuple]
    assert all(one.shape == (4,) and one.dtype == torch.float32 for each in fresh for one in each)
    assert driver.seen == [
        event
        for each in fresh
        for event in (
            ("copy", [x.data_ptr(), *[one.data_ptr() for one in each], 4096], STREAM),
            ("copy", [y.data_ptr(), 8192], STREAM),
            ("replay", GRAPH, STREAM),
        )
    ]


def test_what_is_left_to_python(driver):
    x, y = torch.zeros(4), torch.zeros(8)
    held = threading.Lock()
    held.acquire()
    for call, given in [
        (made(driver, says=False), (x, y)),
        (made(driver, same=lambda *given: False), (x, y)),
        (made(driver, lock=held), (x, y)),
        (made(driver), (x[1:], y)),
        (made(driver), (x,)),
        (made(driver), ()),
    ]:
        found = call(*given)
        assert found[0] == "otherwise" and len(found) == 1 + len(given)
    assert made(driver, lock=held)(x, y)[0] == "otherwise" and held.locked()
    assert not driver.seen


def test_an_error_of_the_driver_is_raised_and_the_lock_is_free_again(driver):
    lock, driver.error = threading.Lock(), 700
    call = made(driver, lock=lock)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="driver error 700 at a replay: a graph that failed"):
            call(torch.zeros(4), torch.zeros(8))
        assert not lock.locked()


def test_an_error_of_what_it_asks_is_raised(driver):
    with pytest.raises(ZeroDivisionError):
        made(driver, same=lambda *given: 1 / 0)(torch.zeros(4), torch.zeros(8))
    with pytest.raises(AttributeError, match="data_ptr"):
        made(driver)(torch.zeros(4), 1.0)
    assert not driver.seen


@pytest.mark.parametrize(
    "wrong",
    [
        {"steps": []},
        {"results": ((4,),)},
        {"single": True},
        {"places": ("text",)},
        {"graph": 0},
        {"inputs": 5000},
        {"inputs": -1},
        {"steps": [Step(None, (0,))]},
        {"places": ()},
    ],
)
def test_what_it_is_not_made_of(driver, wrong):
    steps = [Step(driver.kernel(4), (0, 2, 3, 4))]
    right = Replay(2, (LAYOUT, LAYOUT), False, (4096,), steps, GRAPH, threading.Lock(), driver)
    make = functools.partial(replayed_call, same=bool, conditions=(), stream=STREAM, otherwise=bool)
    make(right)
    with pytest.raises((TypeError, ValueError)):
        make(right._replace(**wrong))

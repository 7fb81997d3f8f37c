"""Threads that use `one_thread` at a time: each works on one thread, and none leaves that number behind."""

from concurrent.futures import ThreadPoolExecutor
from threading import Thread

import pytest
import torch

from passbench.workers.one_thread import one_thread

MANY = 3


@pytest.fixture
def threads():
    """Two threads to give work to, begun by whoever gives it; all, and those that begin later, have `MANY` threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(MANY)
    with ThreadPoolExecutor(1) as first, ThreadPoolExecutor(1) as second:
        yield (lambda f: first.submit(f).result()), (lambda f: second.submit(f).result())
    torch.set_num_threads(before)


def number_of_a_new_thread() -> int:
    found = []
    thread = Thread(target=lambda: found.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    return found[0]


@pytest.mark.parametrize("first_leaves_first", [True, False])
def test_two_threads_that_begin_outside(threads, first_leaves_first):
    one, other = threads
    inside = [one_thread(), one_thread()]
    assert [one(torch.get_num_threads), other(torch.get_num_threads)] == [MANY, MANY]
    one(inside[0].__enter__)
    other(inside[1].__enter__)
    assert [one(torch.get_num_threads), other(torch.get_num_threads), number_of_a_new_thread()] == [1, 1, 1]
    (leaves, left), (stays, still) = list(zip(threads, inside, strict=True))[:: 1 if first_leaves_first else -1]
    leaves(lambda: left.__exit__(None, None, None))
    assert [leaves(torch.get_num_threads), stays(torch.get_num_threads), number_of_a_new_thread()] == [MANY, 1, 1]
    stays(lambda: still.__exit__(None, None, None))
    assert [one(torch.get_num_threads), other(torch.get_num_threads), number_of_a_new_thread()] == [MANY, MANY, MANY]


def test_a_thread_that_begins_in_the_context_of_another(threads):
    one, other = threads
    inside = [one_thread(), one_thread()]
    one(inside[0].__enter__)
    other(inside[1].__enter__)
    one(lambda: inside[0].__exit__(None, None, None))
    other(lambda: inside[1].__exit__(None, None, None))
    assert [one(torch.get_num_threads), other(torch.get_num_threads), number_of_a_new_thread()] == [MANY, MANY, MANY]


def test_one_within_another(threads):
    with one_thread():
        with one_thread():
            pass
        assert [torch.get_num_threads(), number_of_a_new_thread()] == [1, 1]
    assert [torch.get_num_threads(), number_of_a_new_thread()] == [MANY, MANY]

"""The parent's own tensor operations, on one thread.

Drawing inputs includes operations on a few numbers that torch splits among threads all the same, `repeat_interleave` of
a CPU tensor for one. The threads then wait for more work without sleeping for some milliseconds, one on each core. So
after each draw they took time from the worker that is timed, and from this process, which waits for its answer.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock, Thread

import torch

_changing = Lock()
_outside: list[int] = []
"""The process's number of threads before the first of those contexts that last, once for each."""


@contextmanager
def one_thread() -> Iterator[None]:
    """Have torch use no other thread of this process while the context lasts, nor in threads that begin in it. Several
    threads may be in such contexts at a time; the last to leave brings back the number that there was."""
    with _changing:
        before = torch.get_num_threads()
        _outside.append(_outside[0] if _outside else before)
        torch.set_num_threads(1)
    try:
        yield
    finally:
        with _changing:
            number = _outside.pop()
            torch.set_num_threads(before if _outside else number)
            if _outside:
                _have_new_threads_use_one()


def _have_new_threads_use_one() -> None:
    """torch sets the number of the thread that asks and of those that begin later: here of the latter alone."""
    thread = Thread(target=torch.set_num_threads, args=(1,))
    thread.start()
    thread.join()

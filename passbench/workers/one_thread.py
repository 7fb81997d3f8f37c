"""The parent's own tensor operations, on one thread.

Drawing inputs includes operations on a few numbers that torch splits among threads all the same, `repeat_interleave` of
a CPU tensor for one. The threads then wait for more work without sleeping for some milliseconds, one on each core. So
after each draw they took time from the worker that is timed, and from this process, which waits for its answer.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_thread() -> Iterator[None]:
    """Have torch use no other thread of this process while the context lasts, nor in threads that begin in it."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)

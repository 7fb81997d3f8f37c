"""What to do where a GPU has no memory left: authors share one with each other and with what else is at work there."""

import gc
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

from passbench.result import VariantResult

Found = TypeVar("Found")

WAITS = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0)
"""Seconds until the next try, one after another. Others give back what they hold when they come to their next sample,
some seconds later."""

_ROOM = 4 << 30
"""What a search of a sample of usual size may come to hold."""
_POLL, _LONGEST = 0.2, 20.0
"""Seconds between looks at what is free, and how long at most a process waits for room."""

_SIGNS = ("out of memory", "ALLOC_FAILED")
"""In what CUDA, torch and the libraries say then."""


def lacks_memory(said: object) -> bool:
    """Whether an error, or a reason, says that the GPU has no memory left. Of an error, also one that it came of: the
    end of a capture may raise another."""
    if isinstance(said, BaseException) and said.__context__ is not None and lacks_memory(said.__context__):
        return True
    return isinstance(said, torch.OutOfMemoryError) or any(sign in str(said) for sign in _SIGNS)


def not_measured(result: VariantResult) -> bool:
    """Whether a variant failed for lack of memory: that says nothing about the pass."""
    return result.status == "runtime_error" and lacks_memory(result.reason)


def with_memory(
    attempt: Callable[[bool], Found],
    give_back: Callable[[], None],
    lost: Callable[[float], None],
    waits: Sequence[float] = WAITS,
) -> Found:
    """What `attempt` returns. Where it lacks memory, the process gives back what it holds, waits, and attempts it once
    more; `lost` is told the seconds that this took. `attempt` is told whether it is the last time: what it raises then
    is raised, as is at once what is no lack of memory."""
    for seconds in waits:
        begin = time.monotonic()
        try:
            return attempt(False)
        except Exception as error:  # of torch, of a library, of a kernel's launch
            if not lacks_memory(error):
                raise
        # Not within `except`: the error holds the frames, and these hold tensors.
        give_back()
        gc.collect()
        free_cached()
        time.sleep(seconds)
        lost(time.monotonic() - begin)
    return attempt(True)


def free_cached(most: int = 0) -> None:
    """Give the GPU what torch keeps of the memory that nothing uses any more, if that is more than so many bytes."""
    if torch.cuda.is_initialized() and torch.cuda.memory_reserved() - torch.cuda.memory_allocated() > most:
        torch.cuda.empty_cache()


def wait_for_room(free: Callable[[], int], over: Callable[[], bool] = lambda: False) -> None:
    """Return as soon as so many bytes are `free` that one more search may begin, or this is `over` for other reasons,
    or after some seconds."""
    end = time.monotonic() + _LONGEST
    while free() < _ROOM and not over() and time.monotonic() < end:
        time.sleep(_POLL)


def free_bytes(device: torch.device) -> int:
    """The memory of the device that no process holds; as much as is ever asked for where it is no GPU."""
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else _ROOM
